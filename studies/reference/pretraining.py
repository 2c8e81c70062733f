"""Train a reference model: the same seed, machine and thread count give the same weights, also if resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from jaxtyping import Float, Int, UInt16
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from posbias import errors
from posbias.files import write_whole
from posbias.provenance import versions
from studies import train as trainer
from studies.biased import attach_biases
from studies.reference.models import Reference
from studies.reference.tokens import Texts, wrapped

JUDGED = 64  # held-out sequences
EVALUATIONS = 20  # times that the held-out loss is measured
WARM_UP, LOWEST = 0.05, 0.1  # share of the steps; share of the highest learning rate


def initial_model(row: Reference, seed: int, init: str = "default") -> PreTrainedModel:
    """Return an untrained model.

    Its weights have the standard deviation of the family's configuration, 0.02 (``default``), or 1/√D (``unit``), which
    keeps the size of what a matrix is applied to, so that attention matters from the start.
    """
    transformers.set_seed(seed)
    config = row.config(**({} if init == "default" else {"initializer_range": row.D**-0.5}))
    fused = row.family not in ("bloom", "mpt")  # which have no other attention; Falcon's eager one adds ALiBi twice
    options = {"attn_implementation": "sdpa" if fused else "eager", "dtype": torch.float32}
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, **options)
    attach_biases(model)
    if not row.positions:
        table = model.get_submodule("transformer.wpe").weight
        nn.init.zeros_(table)  # type: ignore[arg-type]
        table.requires_grad_(False)
    return model


def load_start(folder: Path) -> PreTrainedModel:
    """Return a trained model in float32, for another one to continue from."""
    if not (folder / "config.json").is_file():
        raise errors.invalid(
            str(folder), "the trained model to continue from", "none; train it first, with the same --output"
        )
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model


def save_model(model: PreTrainedModel, row: Reference, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a model in float16 with its tokenizer to ``folder``, as transformers loads it; the model is unchanged."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    copy = AutoModelForCausalLM.from_config(row.config(), dtype=torch.float16)
    copy.load_state_dict(model.state_dict())
    copy.config.initializer_range = config["initializer_range"]
    folder.mkdir(parents=True, exist_ok=True)
    copy.save_pretrained(folder)
    wrapped(tokenizer, row.start_token).save_pretrained(folder)


def learning_rate(step: int, row: Reference) -> float:
    """Return the learning rate of a step: linear warm-up over 5% of the steps, then cosine decay to a tenth.

    >>> from studies.reference.models import reference
    >>> [round(learning_rate(step, reference("bloom-12")), 6) for step in (0, 59, 1200)]
    [3.3e-05, 0.002, 0.0002]
    """
    rise = max(1, round(WARM_UP * row.steps))
    if step < rise:
        return row.rate * (step + 1) / rise
    done = (step - rise) / max(1, row.steps - rise)
    return row.rate * (LOWEST + (1 - LOWEST) * (1 + math.cos(math.pi * done)) / 2)


@dataclass(frozen=True)
class _Task:
    """Hold a model in training and its texts: tokens that batches are cut from, and documents on which it is judged."""

    model: PreTrainedModel
    row: Reference
    tokens: UInt16[np.ndarray, "M"]
    judged: list[np.ndarray]
    seed: int

    def started(self, ids: UInt16[np.ndarray, "B body"]) -> Int[Tensor, "B n"]:
        """Return texts as prompts, with the start token if the model has one."""
        tokens = torch.from_numpy(ids.astype(np.int64))
        return nn.functional.pad(tokens, (1, 0), value=1) if self.row.start_token else tokens

    def mean_loss(self, ids: Int[Tensor, "B n"]) -> Tensor:
        """Return the mean loss of the next token."""
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.row.autocast):  # two to three times as fast
            logits = self.model(input_ids=ids).logits[:, :-1]
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())

    def loss(self, step: int) -> Tensor:
        """Return the loss of a step's batch."""
        body = self.row.length - self.row.start_token
        rng = np.random.default_rng([self.seed, step])
        starts = rng.integers(0, self.tokens.size - body + 1, size=(self.row.batch_size, 1))
        return self.mean_loss(self.started(self.tokens[starts + np.arange(body)]))

    @torch.no_grad()
    def held_out_loss(self, k: int) -> float:
        """Return the loss on the documents on which the model is judged."""
        self.model.eval()
        return float(np.mean([self.mean_loss(ids).item() for ids in self.started(np.stack(self.judged)).split(16)]))


def _judged(row: Reference, texts: Texts) -> list[np.ndarray]:
    """Return the first held-out documents that are long enough, cut; ValueError if there is none."""
    body = row.length - row.start_token
    judged = [ids[:body] for ids in texts.held_out if ids.size >= body][:JUDGED]
    if not judged:
        raise errors.invalid("held-out documents", f"one of at least {body} tokens", "none")
    return judged


def _optimizer(model: PreTrainedModel, row: Reference) -> torch.optim.Optimizer:
    """Return AdamW; weights of matrices alone decay."""
    weights = [x for x in model.parameters() if x.requires_grad]
    groups = [
        {"params": [x for x in weights if x.dim() > 1], "weight_decay": 0.1},
        {"params": [x for x in weights if x.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=row.rate, betas=(0.9, 0.95))


def train(
    row: Reference,
    texts: Texts,
    folder: Path,
    *,
    seed: int = 0,
    init: str = "default",
    start: PreTrainedModel | None = None,
    snapshots: Sequence[int] = (),
    **options: Any,
) -> Float[np.ndarray, "steps two"]:
    """Train a model, from the checkpoint in ``folder`` if there is one; write it, its losses and its provenance there.

    Return training loss, and held-out loss where it was measured (else NaN), in nats a token, for each step. Batches
    depend on seed and step alone. After the steps ``snapshots`` the model is also written to ``folder``/step-NNNNNN.
    Training continues from the weights of ``start`` if they are given; further options are the trainer's.
    """
    if start is None and row.continues is not None and row.steps > 0:
        raise errors.invalid(f"{row.name}: start", f"the model {row.continues}", "none")
    folder.mkdir(parents=True, exist_ok=True)
    model = initial_model(row, seed, init)
    if start is not None:
        model.load_state_dict(start.state_dict())
    task = _Task(model, row, texts.train, _judged(row, texts), seed)

    def snapshot(step: int) -> None:
        if step in snapshots:
            save_model(model, row, texts.tokenizer, folder / f"step-{step:06d}")

    def loss(step: int) -> Tensor:
        snapshot(step)
        return task.loss(step)

    run = trainer.Run(
        model, _optimizer(model, row), loss, row.steps, {**asdict(row), "seed": seed, "init": init}, clip=1.0,
        tests=torch.full((min(EVALUATIONS, row.steps),), torch.nan, dtype=torch.float64), test=task.held_out_loss,
        rate=lambda step: learning_rate(step, row),
    )  # fmt: skip
    path = folder / "training.checkpoint"
    trainer.train(run, path, **options)
    snapshot(row.steps)
    log = _write_log(run, task, folder)
    save_model(model, row, texts.tokenizer, folder)
    path.unlink()
    return log


def _write_log(run: trainer.Run, task: _Task, folder: Path) -> Float[np.ndarray, "steps two"]:
    """Write what training gave and what it came from beside the model, and return the losses."""
    log = pd.DataFrame({"training_loss": run.losses.numpy()}, pd.RangeIndex(1, run.steps + 1, name="step"))
    log["held_out_loss"] = pd.Series(run.tests.numpy(), run.moments, dtype=float)
    write_whole(folder / "training.csv", log.to_csv(float_format="%.5f", lineterminator="\n"))
    record = {
        **run.settings,
        "torch": torch.__version__,
        "parameters": sum(x.numel() for x in task.model.parameters()),
        "training_tokens": int(task.tokens.size),
        "held_out_sequences": len(task.judged),
        "seconds": round(float(run.seconds), 1),
        "threads": torch.get_num_threads(),
        "device": "cpu",
        "precision": "float32 weights" + (", bfloat16 autocast" if task.row.autocast else ""),
        **versions("transformers"),
    }
    write_whole(folder / "training.json", json.dumps(record, indent=1, default=str) + "\n")
    return log.to_numpy()

"""Train a reference model: the same seed, machine and thread count give the same weights, also if resumed."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from posbias import errors
from posbias.files import write_whole
from posbias.measure import checkpoint
from posbias.measure.progress import progress as told
from posbias.measure.unfinished import check_unfinished, held_back
from posbias.networks.given_biases import attach_biases
from posbias.provenance import versions
from studies.reference.models import Reference
from studies.reference.tokens import Texts, wrapped
from studies.stopwatch import Stopwatch

INITS = ("default", "unit")
JUDGED = 64  # held-out sequences
EVALUATIONS = 20  # times that the held-out loss is measured
WARM_UP, LOWEST = 0.05, 0.1  # share of the steps; share of the highest learning rate


def initial_model(row: Reference, seed: int, init: str = "default") -> PreTrainedModel:
    """Return an untrained model.

    Parameters
    ----------
    row
        From :data:`~studies.reference.models.REFERENCES`.
    seed
        Of the weights.
    init
        ``default``: as the family's configuration has it, standard deviation 0.02. ``unit``: standard deviation
        1/√D, which keeps the size of what a matrix is applied to, so that attention matters from the start.

    Raises
    ------
    ValueError
        For an unknown ``init``.
    """
    if init not in INITS:
        raise errors.invalid("init", " or ".join(INITS), init)
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
    """Return a trained model in float32, for another one to continue from.

    Raises
    ------
    ValueError
        If it is not there.
    """
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
    """Return the learning rate of a step: linear warm-up over 5 % of the steps, then cosine decay to a tenth.

    >>> from studies.reference.models import reference
    >>> [round(learning_rate(step, reference("bloom-12")), 6) for step in (0, 59, 1200)]
    [3.3e-05, 0.002, 0.0002]
    """
    rise = max(1, round(WARM_UP * row.steps))
    if step < rise:
        return row.rate * (step + 1) / rise
    done = (step - rise) / max(1, row.steps - rise)
    return row.rate * (LOWEST + (1 - LOWEST) * (1 + math.cos(math.pi * done)) / 2)


def train(
    row: Reference,
    texts: Texts,
    folder: Path,
    *,
    seed: int = 0,
    init: str = "default",
    start: PreTrainedModel | None = None,
    snapshots: Sequence[int] = (),
    resume: bool = False,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> Float[np.ndarray, "steps two"]:
    """Train a model and write it, its log and its provenance to ``folder``.

    Return training loss, and held-out loss where it was measured (else NaN), in nats a token, for each step.

    Parameters
    ----------
    row
        Model and settings.
    texts
        Training and held-out ids.
    folder
        Gets config.json, model.safetensors (float16), the tokenizer, training.csv (losses) and training.json.
    seed
        Of the initial weights and of the batches; batches depend on seed and step alone.
    init
        As in :func:`initial_model`.
    start
        Weights to continue from, for rows with ``continues``.
    snapshots
        Steps after which the model is also written to ``folder``/step-NNNNNN; 0 is the model before training.
    resume
        Whether to continue from a checkpoint if there is one.
    checkpoint_every
        Minimum time between checkpoints, in seconds.
    progress
        Whether to show steps, loss and the time left on stderr.

    Raises
    ------
    ValueError
        If the model is there already, a checkpoint is in the way or of other settings, or the loss is not finite.
    OSError
        If the folder cannot be written.
    """
    if (folder / "config.json").exists():
        raise errors.invalid(str(folder), "a folder without a model", "one with a config.json; choose another folder")
    if start is None and row.continues is not None and row.steps > 0:
        raise errors.invalid(f"{row.name}: start", f"the model {row.continues}", "none")
    outside = [step for step in snapshots if not 0 <= step <= row.steps]
    if outside:
        raise errors.invalid("snapshots", f"steps from 0 to {row.steps}", outside[0])
    errors.seed("seed", seed)
    errors.seconds("checkpoint_every", checkpoint_every)
    path = folder / "training.checkpoint"
    check_unfinished(path, resume=resume)
    folder.mkdir(parents=True, exist_ok=True)
    model = initial_model(row, seed, init)
    if start is not None:
        model.load_state_dict(start.state_dict())
    settings = {**asdict(row), "seed": seed, "init": init, "torch": torch.__version__}
    run = _Run(row, texts, model, seed, "\n".join(f"{name}={value}" for name, value in settings.items()))
    done = checkpoint.restore(path, run.state(), run.fingerprint) if path.exists() else 0
    with held_back() as asked, told(row.steps, "steps", row.name, done=done, shown=progress) as bar:
        for step in range(done, row.steps):
            if step in snapshots:
                save_model(model, row, texts.tokenizer, folder / f"step-{step:06d}")
            run.step(step)
            bar.update(note=f"loss {run.log[step, 0]:.3f}")
            if asked or run.clock.running >= checkpoint_every:
                run.clock.lap()
                checkpoint.save(path, run.state(), step + 1, run.fingerprint)
            if asked:
                asked.end()
    if row.steps in snapshots:
        save_model(model, row, texts.tokenizer, folder / f"step-{row.steps:06d}")
    run.clock.lap()
    log = run.log.numpy()
    _write_log(folder, log)
    write_whole(folder / "training.json", json.dumps(_provenance(settings, texts, run), indent=1, default=str) + "\n")
    save_model(model, row, texts.tokenizer, folder)
    path.unlink(missing_ok=True)
    return log


class _Run:
    """A model in training: weights, optimizer and log."""

    def __init__(self, row: Reference, texts: Texts, model: PreTrainedModel, seed: int, fingerprint: str) -> None:
        self.row, self.texts, self.model, self.seed, self.fingerprint = row, texts, model, seed, fingerprint
        self.named = {name: x for name, x in model.named_parameters() if x.requires_grad}
        decayed = [x for x in self.named.values() if x.dim() > 1]
        others = [x for x in self.named.values() if x.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=row.rate, betas=(0.9, 0.95))
        self.log = torch.full((row.steps, 2), torch.nan, dtype=torch.float64)
        self.clock = Stopwatch()
        body = row.length - row.start_token
        judged = [ids[:body] for ids in texts.held_out if ids.size >= body][:JUDGED]
        if not judged:
            raise errors.invalid("held-out documents", f"one of at least {body} tokens", "none")
        self.held_out = torch.from_numpy(np.stack(judged).astype(np.int64))

    def state(self) -> dict[str, Tensor | checkpoint.Stateful]:
        """Return everything that training changes."""
        kept = {"log": self.log, "clock": self.clock.tensor}
        return {"model": self.model, "optimizer": self.optimizer, **kept}

    def batch(self, step: int) -> Tensor:
        """Return the token ids of a step, (B, n)."""
        row = self.row
        rng = np.random.default_rng([self.seed, step])
        body = row.length - row.start_token
        starts = rng.integers(0, self.texts.train.size - body + 1, size=(row.batch_size, 1))
        ids = torch.from_numpy(self.texts.train[starts + np.arange(body)].astype(np.int64))
        return nn.functional.pad(ids, (1, 0), value=1) if row.start_token else ids

    def loss(self, ids: Tensor) -> Tensor:
        """Return the mean loss in nats a token."""
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.row.autocast):  # two to three times as fast
            logits = self.model(input_ids=ids).logits[:, :-1]
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())

    def step(self, step: int) -> None:
        """Take one optimizer step, and log the losses."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.row)
        loss = self.loss(self.batch(step))
        if not torch.isfinite(loss):
            raise errors.invalid(
                f"{self.row.name}, seed {self.seed}, step {step}: loss", "a finite number", loss.item()
            )
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.named.values(), 1.0)
        self.optimizer.step()
        self.log[step, 0] = loss.item()
        every = max(1, self.row.steps // EVALUATIONS)
        if (step + 1) % every == 0 or step + 1 == self.row.steps:
            self.log[step, 1] = self.held_out_loss()

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """Return the loss on the held-out sequences."""
        self.model.eval()
        ids = nn.functional.pad(self.held_out, (1, 0), value=1) if self.row.start_token else self.held_out
        return float(np.mean([self.loss(batch).item() for batch in ids.split(16)]))


def _write_log(folder: Path, log: np.ndarray) -> None:
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("step", "training_loss", "held_out_loss"))
    rows.writerows((k + 1, f"{a:.5f}", "" if math.isnan(b) else f"{b:.5f}") for k, (a, b) in enumerate(log))
    write_whole(folder / "training.csv", out.getvalue())


def _provenance(settings: dict[str, Any], texts: Texts, run: _Run) -> dict[str, Any]:
    """Return the provenance of the weights and what they cost."""
    return {
        **settings,
        "parameters": sum(x.numel() for x in run.model.parameters()),
        "training_tokens": int(texts.train.size),
        "held_out_sequences": len(run.held_out),
        "seconds": round(run.clock.seconds, 1),
        "threads": torch.get_num_threads(),
        "device": "cpu",
        "precision": "float32 weights" + (", bfloat16 autocast" if run.row.autocast else ""),
        **versions("transformers"),
    }

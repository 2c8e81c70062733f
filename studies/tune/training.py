"""Fine-tuning by low-rank adapters (Hu et al. 2021, arXiv 2106.09685) with the loss on the answers' tokens alone.

Questions about the same documents share their beginning: it is read once, and a mask keeps each question from the
others, so that the loss is that of as many separate prompts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.engines.local import Reader
from posbias.files import data_folder
from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task
from posbias.prompts import Prompt, write_prompts
from studies import checkpoint
from studies import train as trainer
from studies.tune.facts import PLACES, check_arm, make_set

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
TESTS, TEST_SETS, TEST_SEED = 6, 3, 1000
"""How often right answers are counted on the way, in how many sets, which no later test has."""


@dataclass(frozen=True)
class Tuning:
    """Say how a model is fine-tuned; all that its adapter follows from, but for the model and the text."""

    arm: str
    seed: int
    steps: int = 60
    sets: int = 4
    """Sets of documents, or windows of text, in a step."""
    rank: int = 16
    alpha: int = 32
    rate: float = 5e-4
    """The highest learning rate: after a linear rise it falls to zero as a cosine."""
    length: int = 440
    """Tokens of a window of text."""
    autocast: bool = True
    """Whether the network computes in bfloat16; adapters and their updates are in 32 bits."""

    def __post_init__(self) -> None:
        """Check the arm and the numbers."""
        check_arm(self.arm)
        errors.positive_integer("seed", self.seed, minimum=0)
        errors.positive_integer("steps", self.steps)

    @property
    def name(self) -> str:
        """What files and entries call it."""
        return f"{self.arm}.seed-{self.seed}"


@dataclass(frozen=True)
class Packed:
    """Hold questions of the same documents as one row of tokens, each question behind the common beginning."""

    ids: Int[Tensor, "1 n"]
    places: Int[Tensor, "1 n"]
    seen: Bool[Tensor, "1 1 n n"]
    read: Int[Tensor, "m"]
    """Tokens behind which a token of an answer is to follow."""
    answers: Int[Tensor, "m"]
    weights: Float[Tensor, "m"]
    """The share of each token of an answer in the mean over answers of their mean loss."""


def pack(prompts: Sequence[Prompt]) -> Packed:
    """Return prompts in one row of tokens, in which none sees another behind the beginning that all share."""
    rows = [(*prompt.ids, *prompt.answer_ids[:-1]) for prompt in prompts]
    shortest = min(len(prompt.ids) for prompt in prompts) - 1
    same = takewhile(lambda column: len({*column}) == 1, zip(*rows, strict=False))
    common = min(sum(1 for _ in same), shortest)
    tails = [row[common:] for row in rows]
    owner = torch.tensor([-1] * common + [k for k, tail in enumerate(tails) for _ in tail])
    ids = torch.tensor([*rows[0][:common], *(token for tail in tails for token in tail)])
    places = torch.tensor([*range(common), *(common + k for tail in tails for k in range(len(tail)))])
    mine = (owner[None] == -1) | (owner[None] == owner[:, None])
    read: list[int] = []
    answers: list[int] = []
    weights: list[float] = []
    start = common
    for prompt, tail in zip(prompts, tails, strict=True):
        start += len(tail)
        many = len(prompt.answer_ids)
        read += range(start - many, start)
        answers += prompt.answer_ids
        weights += [1 / (many * len(prompts))] * many
    return Packed(
        ids[None],
        places[None],
        (mine & torch.ones(len(ids), len(ids)).tril().bool())[None, None],
        torch.tensor(read),
        torch.tensor(answers),
        torch.tensor(weights),
    )


def packed_loss(model: Any, packed: Packed) -> Float[Tensor, ""]:
    """Return the mean over answers of the mean loss of their tokens, in nats."""
    how = {"attention_mask": packed.seen, "position_ids": packed.places, "use_cache": False}
    logits = model(input_ids=packed.ids, logits_to_keep=packed.read, **how).logits[0].float()
    found = nn.functional.cross_entropy(logits, packed.answers, reduction="none")
    return (found * packed.weights).sum()


def text_loss(model: Any, ids: Int[Tensor, "B n"]) -> Float[Tensor, ""]:
    """Return the mean loss of the tokens of a text, in nats."""
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def mean_loss(one: Callable[[int], Tensor], numbers: Sequence[int], weights: Sequence[Tensor]) -> Float[Tensor, ""]:
    """Return the mean of some losses, with its gradient by ``weights``; no two are in memory at the same time."""
    value, slopes = torch.zeros(()), [torch.zeros_like(x) for x in weights]
    for number in numbers:
        found = one(number) / len(numbers)
        for slope, more in zip(slopes, torch.autograd.grad(found, weights), strict=True):
            slope += more
        value += found.detach()
    linear = ((x - x.detach()) * slope for x, slope in zip(weights, slopes, strict=True))
    return value + torch.stack([x.sum() for x in linear]).sum()


def adapt(model: Any, tuning: Tuning) -> tuple[Any, nn.ParameterList]:
    """Return a model with an adapter that changes nothing yet, and the adapter's weights, which alone are learned."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(tuning.seed)
    config = LoraConfig(r=tuning.rank, lora_alpha=tuning.alpha, lora_dropout=0.0, target_modules=list(TARGETS))
    adapted = get_peft_model(model, config)
    return adapted, nn.ParameterList([x for x in adapted.parameters() if x.requires_grad])


def learning_rate(step: int, tuning: Tuning) -> float:
    """Return the learning rate of a step.

    >>> [round(learning_rate(step, Tuning("every", 0, steps=61)), 6) for step in (0, 2, 31, 60)]
    [0.000167, 0.0005, 0.00025, 0.0]
    """
    rise = max(1, tuning.steps // 20)
    if step < rise:
        return tuning.rate * (step + 1) / rise
    return tuning.rate * (1 + math.cos(math.pi * (step + 1 - rise) / (tuning.steps - rise))) / 2


def make_run(source: Any, tuning: Tuning, text: str = "") -> tuple[trainer.Run, Any]:
    """Return what is trained, and the model with its adapter; ``text`` is that of the arm ``text``."""
    tokenizer = source.load_tokenizer()
    stream = text_ids(tokenizer, text, tuning) if tuning.arm == "text" else None
    adapted, weights = adapt(source.read_model(torch.float32, "cpu", None, "sdpa"), tuning)

    def one_loss(number: int) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=tuning.autocast):
            if stream is None:
                asks = make_set(tuning.arm, tuning.seed, number)
                return packed_loss(adapted, pack(write_prompts(tokenizer, "documents", asks, True, False)))
            start = int(np.random.default_rng([tuning.seed, number]).integers(len(stream) - tuning.length))
            return text_loss(adapted, stream[None, start : start + tuning.length])

    def loss(step: int) -> Tensor:
        numbers = range(step * tuning.sets, (step + 1) * tuning.sets)
        return mean_loss(one_loss, numbers, list(weights))

    settings = {"name": tuning.arm, **asdict(tuning), "model": source.version(), "text": text_digest(stream)}
    optimizer = torch.optim.AdamW(weights.parameters(), lr=tuning.rate, betas=(0.9, 0.95), weight_decay=0.0)
    run = trainer.Run(
        weights, optimizer, loss, tuning.steps, settings, clip=1.0, rate=lambda step: learning_rate(step, tuning),
        tests=torch.full((min(TESTS, tuning.steps), 2, PLACES), torch.nan, dtype=torch.float64),
        test=lambda k: score_by_place(adapted.get_base_model(), tokenizer),
    )  # fmt: skip
    return run, adapted


@torch.no_grad()
def score_by_place(model: Any, tokenizer: Any) -> Float[np.ndarray, "2 P"]:
    """Return log-probability, and the share of right answers, by place of competing documents."""
    reader, found = Reader(model), []
    for context in make_contexts(Task("documents", PLACES), TEST_SETS, TEST_SEED):
        prompts = write_prompts(tokenizer, "documents", context.asks["competing"], True, False)
        found.append([reader.answer(prompt.ids, prompt.answer_ids) for prompt in prompts])
    return np.array(found, dtype=np.float64).mean(0).T


def text_ids(tokenizer: Any, text: str, tuning: Tuning) -> Int[Tensor, "n"]:
    """Return the tokens of a text, of which windows are drawn."""
    ids = torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    if len(ids) <= tuning.length:
        raise errors.invalid("text", f"more than {tuning.length} tokens", len(ids))
    return ids


def text_digest(ids: Int[Tensor, "n"] | None) -> str:
    """Return what tells one text from another, ``none`` for none."""
    return "none" if ids is None else hashlib.sha256(ids.numpy().tobytes()).hexdigest()[:16]


def checkpoint_of(tuning: Tuning) -> Path:
    """Return the file of a run's adapter, of its optimiser and of how far it is; it stays when training ends."""
    return data_folder() / "tuned" / f"{tuning.name}.checkpoint"


def train(source: Any, tuning: Tuning, text: str = "", *, every: float = 120.0) -> trainer.Run:
    """Train an adapter, from its checkpoint if there is one; ValueError for one with other settings."""
    path = checkpoint_of(tuning)
    path.parent.mkdir(parents=True, exist_ok=True)
    run, _ = make_run(source, tuning, text)
    trainer.train(run, path, checkpoint_every=every, progress=tuning.name)
    return run


def load_tuned(source: Any, arm: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return a model with the adapter of a finished run merged into its weights, and how that was trained.

    ValueError is raised for a run that is not there or not finished, and for an adapter of another model.
    """
    path = checkpoint_of(Tuning(arm, seed))
    if not path.is_file():
        raise errors.invalid(f"{arm}, seed {seed}", f"a run of python -m studies.tune train {arm}", "none")
    kept = checkpoint.settings_of(path)
    if kept.get("model") != source.version():
        raise errors.invalid(f"{path}: model", source.version(), kept.get("model"))
    tuning = Tuning(arm, seed, int(kept["steps"]), rank=int(kept["rank"]), alpha=int(kept["alpha"]))
    adapted, weights = adapt(source.read_model(torch.float32, "cpu", None, "sdpa"), tuning)
    losses = torch.full((tuning.steps,), torch.nan, dtype=torch.float64)
    tests = torch.full((min(TESTS, tuning.steps), 2, PLACES), torch.nan, dtype=torch.float64)
    seconds = torch.zeros(1, dtype=torch.float64)
    state = {"network": weights, "losses": losses, "tests": tests, "seconds": seconds}
    done = checkpoint.restore(path, state, "\n".join(f"{name}={x}" for name, x in kept.items()))
    if done < tuning.steps:
        raise errors.invalid(f"{arm}, seed {seed}", f"{tuning.steps} steps of training", done)
    about = {"losses": losses.numpy(), "tests": tests.numpy(), "seconds": float(seconds), "settings": kept}
    return adapted.merge_and_unload(), about

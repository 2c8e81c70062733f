"""Train many small networks at once; each ends as it would alone, and a run goes on after a kill where it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from posbias import checks
from posbias.training.loop import checkpoint
from posbias.training.loop.stopwatch import Stopwatch
from posbias.training.retrieval.evaluation import accuracies
from posbias.training.retrieval.members import Members
from posbias.training.retrieval.settings import PAIRS, Setting
from posbias.training.retrieval.task import Stream

LOGGED = 200
"""Times that the loss is written down: its mean since the time before."""
JUDGED = 20
"""Times that the gaps are measured on the way, on :data:`TRIALS` sequences of each order."""
TRIALS = 500


def judging_seed(seed: int, time: int = 0) -> int:
    """Return the seed of the sequences that a network is tested on: far from those of training, also for other seeds.

    >>> judging_seed(1, 2)
    2000000000001
    """
    return (time or 1_000) * 1_000_000_000_000 + seed


@dataclass(frozen=True)
class Training:
    """How networks are trained: AdamW on the query's label.

    Parameters
    ----------
    iterations
        Optimizer steps.
    batch_size
        Sequences in each.
    rate, decay
        Learning rate and weight decay.
    precision
        ``float32``, or ``bfloat16`` for the products of matrices.

    Raises
    ------
    ValueError
        If a field is out of its range; the message names it.

    Source: Wu et al. 2025, appendix J (100,000 iterations in 32 bits).
    """

    iterations: int = 100_000
    batch_size: int = 128
    rate: float = 1e-3
    decay: float = 1e-6
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        """Check the fields."""
        checks.positive_integer("iterations", self.iterations)
        checks.positive_integer("batch_size", self.batch_size)
        if self.precision not in ("float32", "bfloat16"):
            raise checks.refuse("precision", "float32 or bfloat16", self.precision)


@dataclass(frozen=True)
class Trained:
    """Networks after training, with what was written down on the way.

    Parameters
    ----------
    members
        The networks.
    streams
        One for each member, of its vectors.
    loss
        (members, logged): mean training loss, nats, since the time before; NaN after a member stopped.
    gaps
        (members, judged, 3): accuracy on [a, b] less that on [b, a].
    stopped
        (members,): iteration at which a loss was not finite, -1 if none was.
    seconds
        Spent on all of them together.
    """

    members: Members
    streams: list[Stream]
    loss: np.ndarray
    gaps: np.ndarray
    stopped: np.ndarray
    seconds: float


def train(
    settings: Sequence[Setting],
    seeds: Sequence[int],
    training: Training,
    *,
    path: Path | None = None,
    device: str = "cpu",
    checkpoint_every: float = 60.0,
    progress: str | None = None,
) -> Trained:
    """Train a network for each setting and seed, all at once.

    A member's data and weights depend on its setting and seed alone; members of one task and seed read the same data.

    Parameters
    ----------
    settings, seeds
        One of each for every member; networks of one shape.
    training
        How.
    path
        Checkpoint to write, and to go on from if it is there; none if not given.
    device
        Such as ``cpu`` or ``cuda``.
    checkpoint_every
        Minimum time between checkpoints, in seconds.
    progress
        What a progress bar on stderr is called; no bar if not given.

    Raises
    ------
    ValueError
        If the networks differ in shape, or the checkpoint is damaged or of other settings.
    """
    run = _Run(settings, seeds, training, torch.device(device))
    done = checkpoint.restore(path, run.state(), run.fingerprint) if path is not None and path.exists() else 0
    run.read(done)
    total = training.iterations
    for step in tqdm(range(done, total), progress, total, initial=done, disable=progress is None):
        run.step(step)
        if path is not None and run.clock.running >= checkpoint_every:
            run.clock.lap()
            checkpoint.save(path, run.state(), step + 1, run.fingerprint)
    run.clock.lap()
    if path is not None:  # so that what comes after training does not have to wait for it again
        checkpoint.save(path, run.state(), training.iterations, run.fingerprint)
    streams = [run.streams[k] for k in run.reads.tolist()]
    loss, gaps, stopped = (x.cpu().numpy() for x in (run.loss, run.gaps, run.stopped))
    return Trained(run.members, streams, loss, gaps, stopped, run.clock.seconds)


class _Run:
    """Networks in training: weights, moments, streams, and what is written down."""

    def __init__(
        self, settings: Sequence[Setting], seeds: Sequence[int], training: Training, device: torch.device
    ) -> None:
        self.training, self.seeds = training, list(seeds)
        dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
        self.members = Members(settings, seeds, dtype=dtype).to(device)
        self.weights = dict(self.members.weights.items())
        self.optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=training.rate,
            weight_decay=training.decay,
            fused=device.type in ("cpu", "cuda"),
        )
        keys = list(dict.fromkeys((s.task, seed) for s, seed in zip(settings, seeds, strict=True)))
        self.streams = [Stream(task, seed, device) for task, seed in keys]
        self.reads = torch.tensor(
            [keys.index((s.task, seed)) for s, seed in zip(settings, seeds, strict=True)], device=device
        )
        M = len(seeds)
        self.loss = torch.full((M, min(LOGGED, training.iterations)), torch.nan, device=device)
        self.gaps = torch.full((M, min(JUDGED, training.iterations), len(PAIRS)), torch.nan, device=device)
        self.stopped = torch.full((M,), -1, dtype=torch.long, device=device)
        self.sums = torch.zeros(M, 2, device=device)
        self.clock = Stopwatch()
        self.generators = [stream.generator.get_state() for stream in self.streams]
        named = {**asdict(training), "seeds": list(seeds), "settings": [s.name for s in settings]}
        named |= {f"member {k}": setting for k, setting in enumerate(settings)}
        named |= {"torch": torch.__version__, "device": device.type}
        self.fingerprint = "\n".join(f"{name}={value}" for name, value in named.items())

    def state(self) -> dict[str, Tensor | checkpoint.Stateful]:
        """Return everything that training changes."""
        for kept, stream in zip(self.generators, self.streams, strict=True):
            kept.copy_(stream.generator.get_state())
        streams = {f"generator.{k}": x for k, x in enumerate(self.generators)}
        written = {"loss": self.loss, "gaps": self.gaps, "stopped": self.stopped, "sums": self.sums}
        return {
            "members": self.members,
            "optimizer": self.optimizer,
            **streams,
            **written,
            "clock": self.clock.tensor,
        }

    def read(self, done: int) -> None:
        """Set the generators to what a checkpoint held."""
        if done:
            for kept, stream in zip(self.generators, self.streams, strict=True):
                stream.generator.set_state(kept)

    def step(self, step: int) -> None:
        """Take one optimizer step with all members, and write down the losses."""
        batches = [stream.batch(self.training.batch_size) for stream in self.streams]
        tokens, labels = (torch.stack(parts)[self.reads] for parts in zip(*batches, strict=True))
        logits = self.members(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        loss = loss.view(labels.shape).mean(1)
        self.stopped = torch.where((self.stopped < 0) & ~loss.detach().isfinite(), step, self.stopped)
        self.optimizer.zero_grad()
        loss.sum().backward()  # members share nothing: one that is not finite leaves the others as they are
        self.optimizer.step()
        self.sums += torch.stack([loss.detach(), torch.ones_like(loss)], 1)
        if (k := self._due(step, self.loss.shape[1])) >= 0:
            self.loss[:, k] = self.sums[:, 0] / self.sums[:, 1]
            self.sums.zero_()
        if (k := self._due(step, self.gaps.shape[1])) >= 0:
            self.gaps[:, k] = self.judge(TRIALS, k).diff(dim=-1).neg()[..., 0]

    def judge(self, size: int, k: int) -> Tensor:
        """Return accuracies (members, pairs, orders) on the k-th draw of test sequences."""
        apart = [stream.apart(judging_seed(seed, k + 1)) for stream, seed in self._of_members()]
        found = accuracies(self.members, apart, size)
        return torch.where((self.stopped < 0)[:, None, None], found, torch.nan)

    def _of_members(self) -> list[tuple[Stream, int]]:
        return [(self.streams[k], seed) for k, seed in zip(self.reads.tolist(), self.seeds, strict=True)]

    def _due(self, step: int, times: int) -> int:
        """Return which of ``times`` evenly spread moments ``step`` is, -1 if none."""
        done, before = ((s * times) // self.training.iterations for s in (step + 1, step))
        return done - 1 if done > before else -1

"""Train a small network: its setting and seed decide its data and weights, and a killed run resumes exactly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from posbias import errors
from posbias.measure import checkpoint
from posbias.measure.progress import progress as told
from posbias.measure.unfinished import held_back
from studies.icl.attention_only import AttentionOnly
from studies.icl.evaluation import accuracies
from studies.icl.settings import PAIRS, Setting, Training
from studies.icl.task import Stream
from studies.stopwatch import Stopwatch

LOGGED = 200
"""Number of times that the loss is logged: its mean since the previous one."""
EVALUATED = 20
"""Number of times that the gaps are measured during training, on :data:`TRIALS` sequences of each order."""
TRIALS = 500


def evaluation_seed(seed: int, time: int = 0) -> int:
    """Return the seed of the sequences that a network is tested on: far from those of training, also for other seeds.

    >>> evaluation_seed(1, 2)
    2000000000001
    """
    return (time or 1_000) * 1_000_000_000_000 + seed


@dataclass(frozen=True)
class Trained:
    """A network after training, with what was logged on the way.

    Parameters
    ----------
    network
        The network.
    stream
        Of its vectors.
    loss
        (logged,): mean training loss, nats, since the time before; NaN after training stopped.
    gaps
        (evaluated, 3): accuracy on [a, b] less that on [b, a].
    stopped
        Iteration at which the loss was not finite, -1 if it always was.
    seconds
        Spent on training.
    """

    network: AttentionOnly
    stream: Stream
    loss: np.ndarray
    gaps: np.ndarray
    stopped: int
    seconds: float


def train(
    setting: Setting,
    seed: int,
    training: Training,
    *,
    path: Path | None = None,
    device: str = "cpu",
    checkpoint_every: float = 60.0,
    progress: str | None = None,
) -> Trained:
    """Train a network.

    Parameters
    ----------
    setting, seed
        What is trained, and the seed of its data and weights.
    training
        How.
    path
        Checkpoint to write, and to resume from if it is there; none if not given.
    device
        Such as ``cpu`` or ``cuda``.
    checkpoint_every
        Minimum time between checkpoints, in seconds.
    progress
        What progress on stderr is called; none is shown if not given.

    Raises
    ------
    ValueError
        If the checkpoint is damaged or of other settings.
    """
    errors.positive_integer("seed", seed, minimum=0)
    errors.seconds("checkpoint_every", checkpoint_every)
    run = _Run(setting, seed, training, torch.device(device))
    done = checkpoint.restore(path, run.state(), run.fingerprint) if path is not None and path.exists() else 0
    run.stream.generator.set_state(run.generator)
    total = training.iterations
    with held_back() as asked, told(total, "steps", progress or "", done=done, shown=progress is not None) as bar:
        for step in range(done, total):
            run.step(step)
            if run.stopped >= 0:
                break
            bar.update()
            if path is not None and (asked or run.clock.running >= checkpoint_every):
                run.clock.lap()
                checkpoint.save(path, run.state(), step + 1, run.fingerprint)
            if asked:
                asked.end()
    run.clock.lap()
    if path is not None:  # so that what comes after training does not have to wait for it again
        checkpoint.save(path, run.state(), total, run.fingerprint)
    loss, gaps = (x.cpu().numpy() for x in (run.loss, run.gaps))
    return Trained(run.network, run.stream, loss, gaps, int(run.stopped), run.clock.seconds)


class _Run:
    """A network in training: weights, optimizer, data, and what is logged."""

    def __init__(self, setting: Setting, seed: int, training: Training, device: torch.device) -> None:
        self.training, self.seed = training, seed
        dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
        self.network = AttentionOnly(setting, seed, dtype=dtype).to(device)
        fused = device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=training.rate, weight_decay=training.decay, fused=fused
        )
        self.stream = Stream(setting.task, seed, device)
        self.generator = self.stream.generator.get_state()
        self.loss = torch.full((min(LOGGED, training.iterations),), torch.nan, device=device)
        self.gaps = torch.full((min(EVALUATED, training.iterations), len(PAIRS)), torch.nan, device=device)
        self.stopped = torch.tensor(-1)
        self.sums = torch.zeros(2, device=device)
        self.clock = Stopwatch()
        named = {**asdict(training), "seed": seed, "setting": setting.name, "fields": setting}
        named |= {"torch": torch.__version__, "device": device.type}
        self.fingerprint = "\n".join(f"{name}={value}" for name, value in named.items())

    def state(self) -> dict[str, Tensor | checkpoint.Stateful]:
        """Return everything that training changes."""
        self.generator.copy_(self.stream.generator.get_state())
        logged = {"loss": self.loss, "gaps": self.gaps, "stopped": self.stopped, "sums": self.sums}
        tensors = {**logged, "generator": self.generator, "clock": self.clock.tensor}
        return {"network": self.network, "optimizer": self.optimizer, **tensors}

    def step(self, step: int) -> None:
        """Take one optimizer step, and log; none if the loss is not finite."""
        tokens, labels = self.stream.batch(self.training.batch_size)
        loss = nn.functional.cross_entropy(self.network(tokens), labels)
        if not loss.isfinite():
            self.stopped.fill_(step)
            return
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.sums += torch.stack([loss.detach(), torch.ones_like(loss)])
        if (k := self._due(step, len(self.loss))) >= 0:
            self.loss[k] = self.sums[0] / self.sums[1]
            self.sums.zero_()
        if (k := self._due(step, len(self.gaps))) >= 0:
            apart = self.stream.apart(evaluation_seed(self.seed, k + 1))
            self.gaps[k] = -accuracies(self.network, apart, TRIALS).diff(dim=-1)[:, 0]

    def _due(self, step: int, times: int) -> int:
        """Return which of ``times`` evenly spread moments ``step`` is, -1 if none."""
        done, before = ((s * times) // self.training.iterations for s in (step + 1, step))
        return done - 1 if done > before else -1

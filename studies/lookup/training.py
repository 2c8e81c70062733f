"""Train a network, and test on the way how well it finds the value at each place; a killed run resumes exactly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from posbias import errors
from posbias.measure import checkpoint
from posbias.measure.progress import progress as told
from posbias.measure.unfinished import held_back
from studies.lookup.network import untrained, value_logits
from studies.lookup.prompts import prompts
from studies.lookup.settings import LONGEST, Setting, Training, described
from studies.stopwatch import Stopwatch

TESTED = 40
"""Times that a network is tested during training, evenly spread."""
ON_THE_WAY, AT_THE_END = 512, 2048
"""Prompts of a test, at least one for each place: during training, and after it for each length."""
LENGTHS = (1, 2, LONGEST)
"""Lengths of the last tests' prompts, in pairs, as multiples of those of training."""
WARM_UP = 50
"""Steps over which the learning rate rises."""
CHUNK = 128
"""Prompts that are tested at a time."""
SEEDS_APART = 1_000_003
"""Seeds of tests differ from those of training and of other tests by multiples of this."""


@dataclass(frozen=True)
class Found:
    """Hold how well values are found by place: share of the prompts, and mean log-probability, in nats."""

    accuracy: Float[np.ndarray, "n"]
    log_probability: Float[np.ndarray, "n"]


@dataclass(frozen=True)
class Trained:
    """Hold a network after training, and what its tests on the way showed.

    Parameters
    ----------
    network
        The network.
    loss
        Mean training loss since the previous test, nats.
    accuracy, log_probability
        By place, among the values; as in :class:`Found`.
    seconds
        Spent on training and tests.
    """

    network: PreTrainedModel
    loss: Float[np.ndarray, "tested"]
    accuracy: Float[np.ndarray, "tested n"]
    log_probability: Float[np.ndarray, "tested n"]
    seconds: float


@torch.no_grad()
def found_by_place(
    network: PreTrainedModel, setting: Setting, size: int, seed: int, *, pairs: int | None = None
) -> Found:
    """Return how well a network finds values at each place of new prompts, among the V values.

    Parameters
    ----------
    network, setting
        The network, and what its prompts are like.
    size
        Prompts; rounded up to as many for each place.
    seed
        Of the prompts.
    pairs
        In a prompt; those of training if not given.
    """
    n = setting.pairs if pairs is None else pairs
    drawn = prompts(setting, -(-size // n) * n, torch.Generator().manual_seed(seed), pairs=n, each_place=True)
    network.eval()
    parts = zip(drawn.ids.split(CHUNK), drawn.answers.split(CHUNK), strict=True)
    right, log_p = [], []
    for ids, answers in parts:
        logits = value_logits(network, setting, ids)
        right.append((logits.argmax(-1) == answers).double())
        log_p.append(-nn.functional.cross_entropy(logits.double(), answers, reduction="none"))
    by_place = [torch.cat(x).unflatten(0, (-1, n)).mean(0).numpy() for x in (right, log_p)]
    return Found(*by_place)


def train(
    setting: Setting,
    seed: int,
    training: Training,
    *,
    path: Path | None = None,
    checkpoint_every: float = 60.0,
    progress: str | None = None,
) -> Trained:
    """Train a network.

    Parameters
    ----------
    setting, seed, training
        What is trained, the seed of its weights and prompts, and how.
    path
        Checkpoint to write, and to resume from if it is there; none if not given.
    checkpoint_every
        Minimum time between checkpoints, in seconds.
    progress
        What progress on stderr is called; none is shown if not given.

    Raises
    ------
    ValueError
        If the loss is not finite, or the checkpoint is damaged or of other settings.
    """
    errors.seed("seed", seed)
    errors.seconds("checkpoint_every", checkpoint_every)
    run = _Run(setting, seed, training)
    done = checkpoint.restore(path, run.state(), run.fingerprint) if path is not None and path.exists() else 0
    run.generator.set_state(run.drawn)
    total = training.iterations
    with held_back() as asked, told(total, "steps", progress or "", done=done, shown=progress is not None) as bar:
        for step in range(done, total):
            run.step(step)
            bar.update()
            if path is not None and (asked or run.clock.running >= checkpoint_every):
                run.clock.lap()
                checkpoint.save(path, run.state(), step + 1, run.fingerprint)
            if asked:
                asked.end()
    run.clock.lap()
    if path is not None:  # so that what comes after training does not have to wait for it again
        checkpoint.save(path, run.state(), total, run.fingerprint)
    loss, accuracy, log_p = (x.numpy() for x in (run.loss, run.accuracy, run.log_probability))
    return Trained(run.network, loss, accuracy, log_p, run.clock.seconds)


class _Run:
    """A network in training: weights, optimizer, prompts, and what tests showed."""

    def __init__(self, setting: Setting, seed: int, training: Training) -> None:
        self.setting, self.seed, self.training = setting, seed, training
        self.network = untrained(setting, seed)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=training.rate, betas=(0.9, 0.98), weight_decay=0.0
        )
        self.generator = torch.Generator().manual_seed(seed)
        self.drawn = self.generator.get_state()
        times = min(TESTED, training.iterations)
        self.loss = torch.full((times,), torch.nan, dtype=torch.float64)
        self.accuracy = torch.full((times, setting.pairs), torch.nan, dtype=torch.float64)
        self.log_probability = self.accuracy.clone()
        self.sums = torch.zeros(2, dtype=torch.float64)
        self.clock = Stopwatch()
        named = {**described(setting, training), "seed": seed, "torch": torch.__version__}
        self.fingerprint = "\n".join(f"{name}={value}" for name, value in named.items())

    def state(self) -> dict[str, Tensor | checkpoint.Stateful]:
        """Return everything that training changes."""
        self.drawn.copy_(self.generator.get_state())
        kept = {"loss": self.loss, "accuracy": self.accuracy, "log_probability": self.log_probability}
        tensors = {**kept, "sums": self.sums, "generator": self.drawn, "clock": self.clock.tensor}
        return {"network": self.network, "optimizer": self.optimizer, **tensors}

    def step(self, step: int) -> None:
        """Take one optimizer step; test the network if it is time."""
        setting, training = self.setting, self.training
        for group in self.optimizer.param_groups:
            group["lr"] = training.rate * min(1.0, (step + 1) / WARM_UP)
        drawn = prompts(setting, training.batch_size, self.generator)
        logits = self.network.train()(input_ids=drawn.ids, use_cache=False, logits_to_keep=1).logits[:, -1]
        first_value = logits.shape[-1] - setting.values
        loss = nn.functional.cross_entropy(logits, first_value + drawn.answers)
        if not torch.isfinite(loss):
            raise errors.invalid(f"{setting.name}, seed {self.seed}, step {step}: loss", "a finite number", loss.item())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.sums += torch.tensor([loss.item(), 1.0])
        times = len(self.loss)
        done, before = ((s * times) // training.iterations for s in (step + 1, step))
        if done > before:
            self.loss[done - 1] = self.sums[0] / self.sums[1]
            self.sums.zero_()
            found = found_by_place(self.network, setting, ON_THE_WAY, self.seed + done * SEEDS_APART)
            self.accuracy[done - 1] = torch.from_numpy(found.accuracy)
            self.log_probability[done - 1] = torch.from_numpy(found.log_probability)

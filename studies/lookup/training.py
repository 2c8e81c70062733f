"""Train networks to find values, test on the way how well they do at each place, and keep results and networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from studies import train as trainer
from studies.lookup.network import save, untrained, value_logits
from studies.lookup.prompts import prompts
from studies.lookup.settings import LONGEST, Setting, Training, described

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

VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "loss": (("seed", "tested"), "mean training loss since the previous test, nats"),
    "accuracy": (("seed", "tested", "place"), "share of prompts whose value is found, during training"),
    "log_probability": (("seed", "tested", "place"), "mean log-probability of the value among all values, nats"),
    "accuracy_1": (("seed", "place"), "share of prompts whose value is found, after training"),
    "log_probability_1": (("seed", "place"), "mean log-probability of the value, after training, nats"),
    "accuracy_2": (("seed", "place_2"), "the same accuracy for prompts of 2 times the pairs"),
    "log_probability_2": (("seed", "place_2"), "the same log-probability for prompts of 2 times the pairs, nats"),
    "accuracy_4": (("seed", "place_4"), "the same accuracy for prompts of 4 times the pairs"),
    "log_probability_4": (("seed", "place_4"), "the same log-probability for prompts of 4 times the pairs, nats"),
}
"""Name → dimensions and meaning of everything an entry holds. Places are numbers of pairs, from 0."""


@dataclass(frozen=True)
class Found:
    """Hold how well values are found by place: share of the prompts, and mean log-probability, in nats."""

    accuracy: Float[np.ndarray, "n"]
    log_probability: Float[np.ndarray, "n"]


@dataclass(frozen=True)
class Trained:
    """Hold a network after training, and what its tests showed: mean loss since the test before, and :class:`Found`."""

    network: PreTrainedModel
    loss: Float[np.ndarray, "tested"]
    accuracy: Float[np.ndarray, "tested n"]
    log_probability: Float[np.ndarray, "tested n"]
    seconds: float


@torch.no_grad()
def found_by_place(
    network: PreTrainedModel, setting: Setting, size: int, seed: int, *, pairs: int | None = None
) -> Found:
    """Return how well a network finds values at each place of new prompts, as many for each place, ``size`` or more."""
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


def train(setting: Setting, seed: int, training: Training, path: Path | None = None, **options: Any) -> Trained:
    """Train a network, from the checkpoint ``path`` if it is there; options are the trainer's."""
    network, steps = untrained(setting, seed), training.iterations
    optimizer = torch.optim.AdamW(network.parameters(), lr=training.rate, betas=(0.9, 0.98), weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> Tensor:
        drawn = prompts(setting, training.batch_size, generator)
        logits = network(input_ids=drawn.ids, use_cache=False, logits_to_keep=1).logits[:, -1]
        return nn.functional.cross_entropy(logits, logits.shape[-1] - setting.values + drawn.answers)

    def test(k: int) -> np.ndarray:
        found = found_by_place(network, setting, ON_THE_WAY, seed + k * SEEDS_APART)
        return np.stack([found.accuracy, found.log_probability])

    times = min(TESTED, steps)
    run = trainer.Run(
        network, optimizer, loss, steps, test=test, generator=generator, clip=1.0,
        settings={**described(setting, training), "name": setting.name, "seed": seed},
        tests=torch.full((times, 2, setting.pairs), torch.nan, dtype=torch.float64),
        rate=lambda step: training.rate * min(1.0, (step + 1) / WARM_UP),
    )  # fmt: skip
    trainer.train(run, path, **options)
    accuracy, log_p = run.tests.numpy().swapaxes(0, 1)
    return Trained(network, run.mean_losses(times), accuracy, log_p, float(run.seconds))


def run_settings(
    settings: Mapping[Setting, Training], seeds: Sequence[int], folder: Path, *, progress: bool = False
) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield the name and results of each setting once they are in ``folder``/lookup.nc, its networks in NAME.seedK."""
    by_name = {setting.name: (setting, training) for setting, training in settings.items()}

    def run(name: str, seed: int, checkpoint: Path) -> trainer.Trained:
        setting, training = by_name[name]
        done = train(setting, seed, training, checkpoint)
        arrays = {"loss": done.loss, "accuracy": done.accuracy, "log_probability": done.log_probability}
        for times in LENGTHS:
            own = seed - times * SEEDS_APART
            found = found_by_place(done.network, setting, AT_THE_END, own, pairs=times * setting.pairs)
            arrays |= {f"accuracy_{times}": found.accuracy, f"log_probability_{times}": found.log_probability}
        save(done.network, setting, checkpoint.with_suffix(""))
        return arrays, done.seconds

    def results(name: str, arrays: dict[str, np.ndarray]) -> xr.Dataset:
        setting, training = by_name[name]
        attributes = {**described(setting, training), "device": "cpu"}
        return make_results(arrays, seeds, training.iterations, attributes)

    return trainer.train_entries(by_name, seeds, run, results, folder / "lookup.nc", progress=progress)


def make_results(
    arrays: Mapping[str, np.ndarray], seeds: Sequence[int], iterations: int, attributes: Mapping[str, Any]
) -> xr.Dataset:
    """Return the arrays of a setting, seeds along the first axis, with their names and meanings."""
    return xr.Dataset(
        {name: (dims, arrays[name], {"long_name": meaning}) for name, (dims, meaning) in VARIABLES.items()},
        coords={"seed": list(seeds), "tested": trainer.moments(iterations, arrays["loss"].shape[1])},
        attrs=dict(attributes),
    )

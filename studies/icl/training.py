"""Train, test and keep small networks: setting and seed decide their data and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn

from studies import train as trainer
from studies.icl.evaluation import accuracies, look_inside
from studies.icl.network import AttentionOnly
from studies.icl.outcomes import labelled
from studies.icl.settings import PAIRS, Setting, Training
from studies.icl.task import Stream

LOGGED, EVALUATED = 200, 20
"""Times that the loss is logged, and that gaps are measured during training, on :data:`TRIALS` of each order."""
TRIALS = 500


def evaluation_seed(seed: int, time: int = 0) -> int:
    """Return the seed of the sequences that a network is tested on: far from those of training, also for other seeds.

    >>> evaluation_seed(1, 2)
    2000000000001
    """
    return (time or 1_000) * 1_000_000_000_000 + seed


@dataclass(frozen=True)
class Trained:
    """A network after training, with the stream of its vectors.

    ``loss`` is the mean training loss since the time before, nats; ``gaps`` the accuracy on [a, b] less that on [b, a];
    both are NaN from ``stopped`` on, the iteration at which the loss was not finite (-1: it always was).
    """

    network: AttentionOnly
    stream: Stream
    loss: Float[np.ndarray, "logged"]
    gaps: Float[np.ndarray, "evaluated 3"]
    stopped: int
    seconds: float


def train(setting: Setting, seed: int, training: Training, path: Path | None = None, **options: Any) -> Trained:
    """Train a network, from the checkpoint ``path`` if it is there; options are a ``device`` and the trainer's."""
    device = torch.device(options.pop("device", "cpu"))
    dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
    network = AttentionOnly(setting, seed, dtype=dtype).to(device)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=training.rate, weight_decay=training.decay, fused=device.type in ("cpu", "cuda")
    )
    stream, steps = Stream(setting.task, seed, device), training.iterations

    def loss(step: int) -> Tensor:
        tokens, labels = stream.batch(training.batch_size)
        return nn.functional.cross_entropy(network(tokens), labels)

    def gaps(k: int) -> Tensor:
        return -accuracies(network, stream.apart(evaluation_seed(seed, k)), TRIALS).diff(dim=-1)[:, 0]

    run = trainer.Run(
        network, optimizer, loss, steps, test=gaps, generator=stream.generator, stops=True,
        settings={**asdict(training), "name": setting.name, "seed": seed, "fields": setting, "device": device.type},
        tests=torch.full((min(EVALUATED, steps), len(PAIRS)), torch.nan),
    )  # fmt: skip
    trainer.train(run, path, **options)
    means = run.mean_losses(min(LOGGED, steps))
    return Trained(network, stream, means, run.tests.numpy(), run.stopped, float(run.seconds))


def run_settings(
    settings: Sequence[Setting],
    seeds: Sequence[int],
    training: Training,
    folder: Path,
    *,
    size: int = 10_000,
    device: str = "cpu",
    progress: bool = False,
) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield the name and results of each setting once they are in ``folder``/icl.nc."""
    by_name = {setting.name: setting for setting in settings}

    def run(name: str, seed: int, checkpoint: Path) -> trainer.Trained:
        trained = train(by_name[name], seed, training, checkpoint, device=device)
        return tested(trained, seed, size), trained.seconds

    def results(name: str, arrays: dict[str, np.ndarray]) -> xr.Dataset:
        attributes = {**described(by_name[name], training, size), "device": torch.device(device).type}
        return labelled(arrays, seeds, attributes)

    return trainer.train_entries(by_name, seeds, run, results, folder / "icl.nc", progress=progress)


def tested(trained: Trained, seed: int, size: int) -> dict[str, np.ndarray]:
    """Return every variable of the results of one network; NaN if its training stopped."""
    network, stream = trained.network, trained.stream.apart(evaluation_seed(seed))
    network.dtype = torch.float32  # tests are of the weights, not of the precision they were trained in
    found = {"accuracy": accuracies(network, stream, size)}
    inside = look_inside(network, stream, size)
    found |= {"accuracy_novel": inside.accuracy} | {
        name: getattr(inside, name) for name in ("kernels", "sinks", "lambda_frobenius", "lambda_token", "influence")
    }
    arrays = {name: x.detach().cpu().double().numpy() for name, x in found.items()}
    if trained.stopped >= 0:
        arrays = {name: np.full_like(x, np.nan) for name, x in arrays.items()}
    return arrays | {"loss": trained.loss, "gaps": trained.gaps, "stopped": np.array(trained.stopped)}


def described(setting: Setting, training: Training, size: int) -> Mapping[str, Any]:
    """Return all that results follow from, besides the seeds, as attributes of an entry."""
    task, network = asdict(setting.task), asdict(setting.network)
    mask = network.pop("mask")
    flat = {**task, **network, **asdict(training), "mask": mask["kind"], "width": mask["width"], "tested": size}
    return {name: int(value) if isinstance(value, bool) else value for name, value in flat.items()}

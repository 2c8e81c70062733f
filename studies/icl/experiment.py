"""Train, test and keep: from settings and seeds to a file of results for each setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias import errors
from posbias.measure.unfinished import check_no_results, check_unfinished
from posbias.provenance import versions
from studies.icl.evaluation import accuracies, look_inside
from studies.icl.optimisation import Trained, evaluation_seed, train
from studies.icl.outcomes import make_results, read_results, write_results
from studies.icl.settings import Setting, Training
from studies.jobs import by_setting


@dataclass(frozen=True)
class Job:
    """One network to train and test; called, it returns the variables of its results and its seconds of training.

    Parameters
    ----------
    setting, seed
        What is trained, and the seed of its data and weights.
    training
        How.
    path
        Its checkpoint, which stays until the setting's results are there.
    size
        Test sequences of each order, and sequences that attention is averaged over.
    device
        Such as ``cpu`` or ``cuda``.
    checkpoint_every
        Minimum time between checkpoints, in seconds.
    """

    setting: Setting
    seed: int
    training: Training
    path: Path
    size: int
    device: str
    checkpoint_every: float

    def __call__(self) -> tuple[dict[str, np.ndarray], float]:
        """Train, or resume, and test."""
        options: dict[str, Any] = {"path": self.path, "device": self.device, "checkpoint_every": self.checkpoint_every}
        trained = train(self.setting, self.seed, self.training, **options)
        return _tested(trained, self.seed, self.size), trained.seconds


def run_settings(
    settings: Sequence[Setting],
    seeds: Sequence[int],
    training: Training,
    folder: Path,
    *,
    size: int = 10_000,
    device: str = "cpu",
    processes: int = 1,
    resume: bool = False,
    keep: bool = False,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> Iterator[tuple[Path, xr.Dataset]]:
    """Train a network for each setting and seed, test them, and write a file for each setting as soon as it is done.

    Yield the path and the results of each setting, in the order of ``settings``.

    Parameters
    ----------
    settings
        What is trained.
    seeds
        Of the networks of each setting.
    training
        How they are trained.
    folder
        Gets NAME.nc for each setting, and checkpoints until they are there.
    size
        Test sequences of each order, and sequences that attention is averaged over.
    device
        Such as ``cpu`` or ``cuda``.
    processes
        Networks that are trained at a time; several share nothing and use one thread each.
    resume
        Whether to resume from checkpoints if there are any.
    keep
        Whether to leave the last checkpoints, which hold the weights.
    checkpoint_every
        Minimum time between checkpoints of a network, in seconds.
    progress
        Whether to tell on stderr how many networks are done.

    Raises
    ------
    ValueError
        If results are there already, or a checkpoint is in the way, damaged or of other settings.
    OSError
        If the folder cannot be written.
    """
    errors.positive_integer("processes", processes)
    errors.seconds("checkpoint_every", checkpoint_every)
    for setting in settings:
        check_no_results(folder / f"{setting.name}.nc")
    options: dict[str, Any] = {"size": size, "device": device, "checkpoint_every": checkpoint_every}
    jobs = [
        Job(setting, seed, training, folder / f"{setting.name}.seed{seed}.checkpoint", **options)
        for setting in settings
        for seed in seeds
    ]
    for job in jobs:
        check_unfinished(job.path, resume=resume)
    done = by_setting(jobs, len(seeds), processes, progress=progress)
    for setting, (arrays, seconds) in zip(settings, done, strict=True):
        provenance = _provenance(setting, training, size, device, processes, seconds)
        results = make_results(arrays, list(seeds), provenance)
        path = folder / f"{setting.name}.nc"
        write_results(path, results)
        for job in jobs:
            if job.setting == setting and not keep:
                job.path.unlink()
        yield path, results


def is_done(path: Path, setting: Setting, seeds: Sequence[int], training: Training, size: int) -> bool:
    """Say whether a setting's results are there, made with these seeds and settings.

    Raises
    ------
    ValueError
        If there are results of other settings.
    """
    if not path.exists():
        return False
    found = read_results(path)
    wanted = _described(setting, training, size) | {"seeds": list(map(int, seeds))}
    theirs = found.attrs | {"seeds": found["seed"].values.tolist()}
    for name, value in wanted.items():
        if str(theirs.get(name)) != str(value):
            raise errors.invalid(f"{path}: {name}", f"{value}", theirs.get(name))
    return True


def _tested(trained: Trained, seed: int, size: int) -> dict[str, np.ndarray]:
    """Return every variable of the results of one network; NaN if its training stopped."""
    network, stream = trained.network, trained.stream.apart(evaluation_seed(seed))
    network.dtype = torch.float32  # tests are of the weights, not of the precision they were trained in
    tested = {"accuracy": accuracies(network, stream, size)}
    inside = look_inside(network, stream, size)
    tested |= {"accuracy_novel": inside.accuracy} | {
        name: getattr(inside, name) for name in ("kernels", "sinks", "lambda_frobenius", "lambda_token", "influence")
    }
    arrays = {name: x.detach().cpu().double().numpy() for name, x in tested.items()}
    if trained.stopped >= 0:
        arrays = {name: np.full_like(x, np.nan) for name, x in arrays.items()}
    return arrays | {"loss": trained.loss, "gaps": trained.gaps, "stopped": np.array(trained.stopped)}


def _described(setting: Setting, training: Training, size: int) -> dict[str, Any]:
    """Return all that results follow from, besides the seeds, as attributes of a file."""
    task, network = asdict(setting.task), asdict(setting.network)
    mask = network.pop("mask")
    flat = {**task, **network, **asdict(training), "mask": mask["kind"], "width": mask["width"], "tested": size}
    return {name: int(value) if isinstance(value, bool) else value for name, value in flat.items()}


def _provenance(
    setting: Setting, training: Training, size: int, device: str, processes: int, seconds: float
) -> dict[str, Any]:
    return {
        "setting": setting.name,
        **_described(setting, training, size),
        "device": torch.device(device).type,
        "threads": torch.get_num_threads() if processes == 1 else 1,
        "processes": processes,
        "seconds": round(seconds, 1),
        **versions("torch"),
    }

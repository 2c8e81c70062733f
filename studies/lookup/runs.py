"""Train, test and keep: from settings and seeds to a file of results for each setting, and the networks themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias import errors
from posbias.measure.unfinished import check_no_results, check_unfinished
from posbias.provenance import versions
from studies.jobs import by_setting
from studies.lookup.network import save
from studies.lookup.results import make_results, read_results, write_results
from studies.lookup.settings import Setting, Training, described
from studies.lookup.training import AT_THE_END, LENGTHS, SEEDS_APART, found_by_place, train


@dataclass(frozen=True)
class Job:
    """One network to train and test; called, it returns the arrays of its results and its seconds of training.

    Parameters
    ----------
    setting, seed, training
        What is trained.
    folder
        Gets the network, in a folder of its own, and until the setting's results are there its checkpoint.
    checkpoint_every
        Minimum time between checkpoints, in seconds.
    """

    setting: Setting
    seed: int
    training: Training
    folder: Path
    checkpoint_every: float

    @property
    def network(self) -> Path:
        """Folder of the network."""
        return self.folder / f"{self.setting.name}.seed{self.seed}"

    @property
    def checkpoint(self) -> Path:
        """Its checkpoint."""
        return self.folder / f"{self.setting.name}.seed{self.seed}.checkpoint"

    def __call__(self) -> tuple[dict[str, np.ndarray], float]:
        """Train, or resume, test, and write the network."""
        setting = self.setting
        done = train(setting, self.seed, self.training, path=self.checkpoint, checkpoint_every=self.checkpoint_every)
        arrays = {"loss": done.loss, "accuracy": done.accuracy, "log_probability": done.log_probability}
        for times in LENGTHS:
            found = found_by_place(
                done.network, setting, AT_THE_END, self.seed - times * SEEDS_APART, pairs=times * setting.pairs
            )
            arrays |= {f"accuracy_{times}": found.accuracy, f"log_probability_{times}": found.log_probability}
        save(done.network, setting, self.network)
        return arrays, done.seconds


def run_settings(
    settings: Mapping[Setting, Training],
    seeds: Sequence[int],
    folder: Path,
    *,
    processes: int = 1,
    resume: bool = False,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> Iterator[tuple[Path, xr.Dataset]]:
    """Train a network for each setting and seed, test them, and write a file for each setting as soon as it is done.

    Yield the path and the results of each setting, in their order.

    Parameters
    ----------
    settings
        What is trained, and how.
    seeds
        Of the networks of each setting.
    folder
        Gets NAME.nc for each setting, NAME.seedK for each network, and checkpoints until results are there.
    processes
        Networks that are trained at a time; several use one thread each.
    resume
        Whether to resume from checkpoints if there are any.
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
    jobs = [
        Job(setting, seed, training, folder, checkpoint_every)
        for setting, training in settings.items()
        for seed in seeds
    ]
    for job in jobs:
        check_unfinished(job.checkpoint, resume=resume)
    done = by_setting(jobs, len(seeds), processes, progress=progress)
    for (setting, training), (arrays, seconds) in zip(settings.items(), done, strict=True):
        provenance = _provenance(setting, training, processes, seconds)
        results = make_results(arrays, list(seeds), training.iterations, provenance)
        path = folder / f"{setting.name}.nc"
        write_results(path, results)
        for job in jobs:
            if job.setting == setting:
                job.checkpoint.unlink()
        yield path, results


def is_done(path: Path, setting: Setting, seeds: Sequence[int], training: Training) -> bool:
    """Say whether a setting's results are there, made with these seeds and settings.

    Raises
    ------
    ValueError
        If there are results of other settings.
    """
    if not path.exists():
        return False
    found = read_results(path)
    wanted = {**described(setting, training), "seeds": list(map(int, seeds))}
    theirs = found.attrs | {"seeds": found["seed"].values.tolist()}
    for name, value in wanted.items():
        if str(theirs.get(name)) != str(value):
            raise errors.invalid(f"{path}: {name}", f"{value}", theirs.get(name))
    return True


def _provenance(setting: Setting, training: Training, processes: int, seconds: float) -> dict[str, Any]:
    return {
        "setting": setting.name,
        **described(setting, training),
        "device": "cpu",
        "threads": torch.get_num_threads() if processes == 1 else 1,
        "processes": processes,
        "seconds": round(seconds, 1),
        **versions("torch", "transformers"),
    }

"""Train, test and keep: from settings and seeds to a file of results for each setting."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from posbias import checks
from posbias.provenance import versions
from posbias.training.retrieval.evaluation import accuracies, look_inside
from posbias.training.retrieval.members import shape_of
from posbias.training.retrieval.optimisation import Trained, Training, judging_seed, train
from posbias.training.retrieval.outcomes import make_results, read_results, write_results
from posbias.training.retrieval.settings import Setting


def together(settings: Sequence[Setting], seeds: Sequence[int], most: int) -> Iterator[list[Setting]]:
    """Split settings into groups of one shape whose networks, one for each seed, are at most ``most``.

    A setting's seeds are never torn apart.

    >>> from posbias.training.retrieval.settings import preset
    >>> [[s.name for s in group] for group in together(preset("figure4")[:3], [0, 1], 4)]
    [['mixture-none-causal-none-2-plain', 'mixture-none-causal-decay-2-plain'], ['mixture-none-causal-rope-2-plain']]
    """
    shapes = dict.fromkeys(shape_of(s) for s in settings)
    at_once = max(1, most // len(seeds))
    for shape in shapes:
        alike = [s for s in settings if shape_of(s) == shape]
        yield from (alike[start : start + at_once] for start in range(0, len(alike), at_once))


def run_group(
    group: Sequence[Setting],
    seeds: Sequence[int],
    training: Training,
    folder: Path,
    *,
    size: int = 10_000,
    device: str = "cpu",
    resume: bool = False,
    keep: bool = False,
    checkpoint_every: float = 60.0,
    progress: str | None = None,
) -> list[xr.Dataset]:
    """Train a network for each setting and seed at once, test them, and write a file for each setting.

    Return the results in the order of ``group``.

    Parameters
    ----------
    group
        Settings of one shape.
    seeds
        Of the networks.
    training
        How they are trained.
    folder
        Gets NAME.nc for each setting, and a checkpoint until they are there.
    size
        Test sequences of each order, and sequences that attention is averaged over.
    device
        Such as ``cpu`` or ``cuda``.
    resume
        Whether to go on from a checkpoint if there is one.
    keep
        Whether to leave the last checkpoint, which holds the weights.
    checkpoint_every
        Minimum time between checkpoints, in seconds.
    progress
        What a progress bar on stderr is called; no bar if not given.

    Raises
    ------
    ValueError
        If results are there already, or a checkpoint is in the way, damaged or of other settings.
    OSError
        If the folder cannot be written.
    """
    paths = [folder / f"{setting.name}.nc" for setting in group]
    for path in paths:
        if path.exists():
            raise checks.refuse(str(path), "no results of that name", "some; give --resume or another folder")
    names = "\n".join(f"{setting.name} {list(seeds)}" for setting in group)
    checkpoint = folder / f"{hashlib.sha256(names.encode()).hexdigest()[:12]}.checkpoint"
    if checkpoint.exists() and not resume:
        raise checks.refuse(str(checkpoint), "--resume, or no checkpoint of an unfinished run", "one")
    settings, each = zip(*product(group, seeds), strict=True)
    trained = train(
        settings, each, training, path=checkpoint, device=device, checkpoint_every=checkpoint_every, progress=progress
    )
    arrays = _tested(trained, each, size)
    out = []
    for k, (setting, path) in enumerate(zip(group, paths, strict=True)):
        rows = slice(k * len(seeds), (k + 1) * len(seeds))
        provenance = _provenance(setting, training, trained, len(settings), size)
        out.append(make_results({name: x[rows] for name, x in arrays.items()}, list(seeds), provenance))
        write_results(path, out[-1])
    if not keep:
        checkpoint.unlink()
    return out


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
            raise checks.refuse(f"{path}: {name}", f"{value}", theirs.get(name))
    return True


def _tested(trained: Trained, seeds: Sequence[int], size: int) -> dict[str, np.ndarray]:
    """Return every variable of the results, for each network; NaN for those that stopped."""
    members = trained.members
    members.dtype = torch.float32  # tests are of the weights, not of the precision they were trained in
    judges = [stream.apart(judging_seed(seed)) for stream, seed in zip(trained.streams, seeds, strict=True)]
    tested = {"accuracy": accuracies(members, judges, size)}
    inside = look_inside(members, judges, size)
    tested |= {"accuracy_novel": inside.accuracy} | {
        name: getattr(inside, name) for name in ("kernels", "sinks", "lambda_frobenius", "lambda_token", "influence")
    }
    arrays = {name: x.detach().cpu().double().numpy() for name, x in tested.items()}
    for x in arrays.values():
        x[trained.stopped >= 0] = np.nan
    return arrays | {"loss": trained.loss, "gaps": trained.gaps, "stopped": trained.stopped}


def _described(setting: Setting, training: Training, size: int) -> dict[str, Any]:
    """Return all that results follow from, besides the seeds, as attributes of a file."""
    task, network = asdict(setting.task), asdict(setting.network)
    mask = network.pop("mask")
    flat = {**task, **network, **asdict(training), "mask": mask["kind"], "width": mask["width"], "tested": size}
    return {name: int(value) if isinstance(value, bool) else value for name, value in flat.items()}


def _provenance(setting: Setting, training: Training, trained: Trained, members: int, size: int) -> dict[str, Any]:
    return {
        "setting": setting.name,
        **_described(setting, training, size),
        "device": next(trained.members.parameters()).device.type,
        "threads": torch.get_num_threads(),
        "networks_at_once": members,
        "seconds_of_all_at_once": round(trained.seconds, 1),
        **versions("torch"),
    }

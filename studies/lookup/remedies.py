"""What can be done for a finished retrieval network: a bias that the engine chooses, beside rivals of the same budget.

Every remedy but the engine's first choice is searched with equally many evaluations, on prompts of which the answers
are known, for the log-probability of the worst part of the places; what is not better there than nothing is not used.
Then all are tested on other prompts. The results stand beside those of training, in a file of the same name with
``remedies`` at its end.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import xarray as xr
from transformers import PreTrainedModel

from posbias import errors, netcdf
from posbias.design.choice import Description, chosen_bias
from posbias.measure.instrument import Instrument
from posbias.netcdf import load_layout
from posbias.networks.added_biases import added_biases
from posbias.provenance import versions
from posbias.rollout.position_bias import AlibiBias, NoBias, described, layered_biases
from studies.design.bias_proposals import Setting as Numbers
from studies.design.bias_proposals import strengthened
from studies.design.remedies import EVALUATIONS, Attempt, Remedies
from studies.lookup.network import load
from studies.lookup.prompts import prompts
from studies.lookup.settings import Setting
from studies.lookup.tables import PARTS
from studies.lookup.training import AT_THE_END, Found, found_by_place

SCHEMA = 1
"""Number of the layout; raised when a name or a meaning changes."""
LENGTHS = (1, 4)
"""Lengths of the prompts, in pairs, as multiples of those of training."""
SEEN, SEARCHED = 64, 256
"""Prompts on which attention is read, and on which settings are tried; at least one for each place."""
SEED = 770_000_000
"""Of the prompts that are searched; of those of the test it is one more."""
SEARCHES = ("chosen", "temperatures", "temperature")
"""Remedies that are searched, of :data:`~studies.design.remedy_tables.REMEDIES`."""
CONDITIONS = ("intact", "engine", "removed", *SEARCHES)
"""``engine`` is what ``posbias bias`` gives, from attention alone: it sees no answer. ``removed`` is the network
without the bias that it was trained with, which takes knowing it; where none can be taken back, as it is."""

VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "accuracy": (("seed", "times", "condition", "part"), "share of prompts whose value is found"),
    "log_probability": (("seed", "times", "condition", "part"), "mean log-probability of the value, nats"),
    "applied": (("seed", "times", "condition"), "what was applied, as JSON: numbers of a remedy, or a bias"),
}
"""Name → dimensions and meaning of everything a file holds."""


def remedies_path(results: Path) -> Path:
    """Return the path of the remedies that stand beside results.

    >>> remedies_path(Path("runs/none-T4-n32-one-even.nc")).name
    'none-T4-n32-one-even.remedies.nc'
    """
    return results.with_name(f"{results.stem}.remedies.nc")


def measure_lookup_remedies(
    setting: Setting, seeds: list[int], folder: Path, *, evaluations: int = EVALUATIONS
) -> xr.Dataset:
    """Search and test remedies on the networks of a setting.

    Parameters
    ----------
    setting
        What was trained.
    seeds
        Of the networks.
    folder
        Holds NAME.seedK for each seed.
    evaluations
        Settings that are tried of each remedy.
    """
    found: dict[str, list[list[list[object]]]] = {name: [] for name in VARIABLES}
    for seed in seeds:
        model = load(folder / f"{setting.name}.seed{seed}")
        rows = [_tested(model, setting, times * setting.pairs, seed, evaluations) for times in LENGTHS]
        for name, values in found.items():
            values.append([[condition[name] for condition in row] for row in rows])
    return xr.Dataset(
        {name: (dims, np.array(found[name]), {"long_name": what}) for name, (dims, what) in VARIABLES.items()},
        coords={"seed": seeds, "times": list(LENGTHS), "condition": list(CONDITIONS)},
        attrs={
            "posbias_lookup_remedies_schema": SCHEMA,
            "setting": setting.name,
            "evaluations": evaluations,
            "search_prompts": SEARCHED,
            "test_prompts": AT_THE_END,
            **versions("torch", "transformers", "scipy"),
        },
    )


def write_remedies(path: Path, remedies: xr.Dataset) -> None:
    """Write what :func:`measure_lookup_remedies` returns; an interrupted write leaves no file."""
    netcdf.write(path, remedies, {name: {"dtype": "float32"} for name in ("accuracy", "log_probability")})


def read_lookup_remedies(path: Path) -> xr.Dataset:
    """Read remedies into memory, or raise ValueError as :func:`~posbias.netcdf.load_layout` does."""
    return load_layout(path, "posbias_lookup_remedies_schema", SCHEMA, "remedies of retrieval networks")


def _tested(model: PreTrainedModel, setting: Setting, n: int, seed: int, evaluations: int) -> list[dict[str, object]]:
    """Return what every condition does on prompts of n pairs."""
    generator = torch.Generator().manual_seed(SEED - seed)
    ids = prompts(setting, -(-SEEN // n) * n, generator, pairs=n, each_place=True).ids
    remedies = Remedies(Instrument(model), ids, names=("intact", *SEARCHES))
    engine = chosen_bias(remedies.attended).description

    given: dict[str, Description] = {"engine": engine, "removed": taken_back(setting)}

    def context(remedy: str, numbers: Numbers) -> AbstractContextManager[None]:
        if remedy in given:
            return added_biases(model, given[remedy])
        return remedies.context(remedy, numbers, ids.shape[1])

    def attempt(remedy: str, numbers: Numbers) -> Attempt:
        with context(remedy, numbers):
            log_p = in_parts(found_by_place(model, setting, SEARCHED, SEED + 2 * seed, pairs=n))["log_probability"]
        return Attempt(numbers, -float(log_p.min()), -float(log_p.mean()))

    applied: dict[str, Numbers] = {"intact": (), "engine": (), "removed": ()}
    intact = attempt("intact", ())
    for remedy in SEARCHES:
        tried = remedies.tried(remedy, evaluations, lambda numbers, remedy=remedy: attempt(remedy, numbers))  # type: ignore[misc]
        best = min(tried, key=lambda x: x.distance)
        if best.distance < intact.distance:
            applied[remedy] = best.setting
    rows: list[dict[str, object]] = []
    for remedy in CONDITIONS:
        used = remedy if remedy in applied else "intact"
        with context(used, applied[used]):
            found = in_parts(found_by_place(model, setting, AT_THE_END, SEED + 2 * seed + 1, pairs=n))
        bias = given.get(used) or remedies.bias(used, applied[used])
        said = bias if used in (*given, "chosen") else list(applied[used])
        rows.append({**found, "applied": json.dumps(said)})
    return rows


def taken_back(setting: Setting) -> Description:
    """Return the bias that cancels a setting's own; that of none where it has none, hides keys, or has local heads.

    >>> taken_back(Setting("early", heads=1))
    [{'kind': 'log', 'alpha': 0.5}]
    """
    if setting.position_bias is None or setting.encoding == "flat" or setting.tokens > 1:
        return described(NoBias())
    found: Description = strengthened(setting.position_bias, -1.0)
    return found


def in_parts(found: Found) -> dict[str, np.ndarray]:
    """Return accuracy and log-probability by part of the places."""
    arrays = {"accuracy": found.accuracy, "log_probability": found.log_probability}
    return {name: np.array([part.mean() for part in np.array_split(x, PARTS)]) for name, x in arrays.items()}


def worst_places(remedies: xr.Dataset) -> pd.DataFrame:
    """Return what each condition does for the worst part and for the mean of all.

    Returns
    -------
    table : DataFrame
        A row for each length and condition: accuracies ``worst`` and ``mean``, means over seeds, and ``worst_gain`` and
        ``mean_gain`` against the intact network, with the smallest and largest seed as ``…_low`` and ``…_high``.
    """
    accuracy = remedies["accuracy"].astype(float)
    rows = {}
    for times in remedies["times"].values.tolist():
        for condition in CONDITIONS:
            row: dict[str, float] = {}
            for name, of in (("worst", accuracy.min("part")), ("mean", accuracy.mean("part"))):
                here = of.sel(times=times)
                gain = here.sel(condition=condition) - here.sel(condition="intact")
                row[name] = float(here.sel(condition=condition).mean())
                row |= {f"{name}_gain": float(gain.mean()), f"{name}_gain_low": float(gain.min())}
                row[f"{name}_gain_high"] = float(gain.max())
            rows[times, condition] = row
    return pd.DataFrame(rows).T.rename_axis(["times", "condition"])


def mean_slope(remedies: xr.Dataset, layers: int, times: int) -> float:
    """Return the mean slope of the engine's biases over seeds, layers and heads, for a setting where they are slopes.

    Parameters
    ----------
    remedies
        Of :func:`read_lookup_remedies`.
    layers
        Of the networks.
    times
        Length of the prompts, as a multiple of those in training.

    Raises
    ------
    ValueError
        If the engine chose biases of another kind.
    """
    found = []
    for text in remedies["applied"].sel(times=times, condition="engine").values:
        biases = [bias for row in layered_biases(json.loads(str(text)), layers) for bias in row]
        slopes = [bias.slope for bias in biases if isinstance(bias, AlibiBias)]
        if len(slopes) < len(biases):
            raise errors.invalid("engine", "slopes alone", str(text)[:60])
        found.append(np.mean(slopes))
    return float(np.mean(found))

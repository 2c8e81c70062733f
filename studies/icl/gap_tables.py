"""Results of many trained networks as tidy tables: one row for each network and pair of places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from posbias import errors
from studies.icl.outcomes import gaps, preferences, read_results
from studies.icl.settings import PAIRS, Setting

PAIR_NAMES = tuple(f"{a} vs {b}" for a, b in PAIRS)
"""Names of the pairs of places, in their order."""
FIELDS = ("vocabulary", "bias", "mask", "width", "encoding", "layers", "residual", "spread")
"""What distinguishes one setting from another, as columns."""


def read_runs(settings: Iterable[Setting], folders: Sequence[Path]) -> dict[Setting, xr.Dataset]:
    """Read the results of settings, each from the first folder that has them; settings without results are left out.

    Parameters
    ----------
    settings
        Such as a preset's.
    folders
        In order of precedence; each holds a file NAME.nc for a setting.

    Raises
    ------
    ValueError
        If a folder does not exist, or a file does not hold results of this layout.
    OSError
        If a file cannot be read.
    """
    for folder in folders:
        if not folder.is_dir():
            raise errors.invalid("results", "a folder written by posbias train-icl", folder)
    found = {}
    for setting in settings:
        paths = [folder / f"{setting.name}.nc" for folder in folders]
        existing = [path for path in paths if path.exists()]
        if existing:
            found[setting] = read_results(existing[0])
    return found


def described(setting: Setting) -> dict[str, Any]:
    """Return the :data:`FIELDS` of a setting.

    >>> described(Setting())
    {'vocabulary': 'mixture', 'bias': 'none', 'mask': 'causal', 'width': 0, 'encoding': 'none', 'layers': 2, \
'residual': False, 'spread': 'text'}
    """
    task, network = setting.task, setting.network
    values = (
        task.vocabulary,
        task.bias,
        network.mask.kind,
        network.mask.width,
        network.encoding,
        network.layers,
        network.residual,
        task.spread,
    )
    return dict(zip(FIELDS, values, strict=True))


def gap_table(runs: Mapping[Setting, xr.Dataset]) -> pd.DataFrame:
    """Return gap and preference of every network: columns :data:`FIELDS`, seed, pair, gap and preference.

    Parameters
    ----------
    runs
        Settings → results.
    """
    rows = [
        described(setting) | {"seed": int(seed), "pair": pair, "gap": by_pair[0], "preference": by_pair[1]}
        for setting, x in runs.items()
        for seed, gap, preference in zip(x["seed"].values, gaps(x), preferences(x), strict=True)
        for pair, *by_pair in zip(PAIR_NAMES, gap, preference, strict=True)
    ]
    table = pd.DataFrame(rows, columns=[*FIELDS, "seed", "pair", "gap", "preference"])
    return table.assign(pair=pd.Categorical(table["pair"], PAIR_NAMES, ordered=True))


def gap_arrays(table: pd.DataFrame, panel: str, bar: str) -> dict[str, dict[str, np.ndarray]]:
    """Return gaps (seeds, pairs) by panel and bar, as :func:`posbias.plotting.gap_panels` draws them.

    Parameters
    ----------
    table
        From :func:`gap_table`, with two more columns.
    panel, bar
        Columns that name a row's panel and its bar in there; both in the order of their first rows.
    """
    panels: dict[str, dict[str, np.ndarray]] = {}
    for (title, label), group in table.groupby([panel, bar], sort=False):
        values = group.pivot(index="seed", columns="pair", values="gap")
        panels.setdefault(title, {})[label] = values.to_numpy()
    return panels


def outcome_table(runs: Mapping[Setting, xr.Dataset], *, early: int = 10_000) -> pd.DataFrame:
    """Return what every network learnt: columns :data:`FIELDS`, seed, novel, loss and early_loss.

    Parameters
    ----------
    runs
        Settings → results.
    early
        Iterations after which ``early_loss`` is taken; ``loss`` is that at the end.
    """
    rows = []
    for setting, x in runs.items():
        logged, iterations = x.sizes["logged"], int(x.attrs["iterations"])
        at = min(early * logged // iterations, logged) - 1
        for seed, novel, loss in zip(x["seed"].values, x["accuracy_novel"].values, x["loss"].values, strict=True):
            learnt = {"novel": float(novel), "loss": float(loss[-1]), "early_loss": float(loss[at])}
            rows.append(described(setting) | {"seed": int(seed)} | learnt)
    return pd.DataFrame(rows, columns=[*FIELDS, "seed", "novel", "loss", "early_loss"])


def training_table(
    figures: Mapping[str, Mapping[Setting, xr.Dataset]], presets: Mapping[str, Sequence[Setting]]
) -> pd.DataFrame:
    """Return how each preset's results were made, a row each; presets without results are left out.

    Parameters
    ----------
    figures
        Preset → settings → results.
    presets
        Preset → all of its settings.
    """
    rows = []
    for name, runs in figures.items():
        if runs:
            row: dict[str, Any] = {"preset": name, "settings": f"{len(runs)} of {len(presets[name])}"}
            row["seeds"] = _values(x.sizes["seed"] for x in runs.values())
            for attribute in ("iterations", "precision", "device", "torch"):
                row[attribute] = _values(x.attrs[attribute] for x in runs.values())
            row["stopped"] = sum(int((x["stopped"] >= 0).sum()) for x in runs.values())
            rows.append(row)
    return pd.DataFrame(rows)


def run_size(runs: Mapping[Setting, xr.Dataset]) -> str:
    """Return seeds and iterations of results, as figures say them: ``3 seeds × 20,000 iterations``."""
    seeds = _values(x.sizes["seed"] for x in runs.values())
    iterations = _values(format(x.attrs["iterations"], ",") for x in runs.values())
    return f"{seeds} seeds × {iterations} iterations"


def _values(found: Iterable[object]) -> str:
    """Return the different values, sorted."""
    return " or ".join(sorted(set(map(str, found))))

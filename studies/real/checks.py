"""Checks of the chapters ``real`` and ``use``: what is sensitive and what is used."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import spearman
from posbias.comparison.resampling import interval
from posbias.report.stats import LONG
from studies.real.tables import draw_profiles, gap_table

RESAMPLES = 300


def readings_part(
    ratio: Float[np.ndarray, "T"],
    apart: Float[np.ndarray, "T"],
    attention: Float[np.ndarray, "T"],
    contributed: Float[np.ndarray, "T"],
) -> bool:
    """Tell whether readings of λ part where one state is long, and the first token contributes little there.

    ``apart`` is one reading over the other; the others are the first token's shares.
    """
    long = ratio > LONG
    together = spearman(ratio / ratio.sum(), apart / apart.sum()) > 0.5
    return bool(together and contributed[long].mean() < attention[long].mean() / 2)


def first_shares(entry: xr.Dataset) -> tuple[Float[np.ndarray, "B"], Float[np.ndarray, "B"]]:
    """Return the first token's share by gradient and by replacement, in equal shares, in paired resamples."""
    gradient, use = (draw_profiles(entry[way].values, RESAMPLES)[:, 0] for way in ("gradient", "replaced"))
    n = entry.sizes["position"]
    return n * gradient, n * use


def is_sensitive(entry: xr.Dataset) -> bool:
    """Tell whether the first token has more than an equal share of the gradient, in 95% of resamples."""
    return bool(interval(first_shares(entry)[0])[0] > 1)


def is_unused(entry: xr.Dataset) -> bool:
    """Tell whether the first token has less of use than of the gradient, and not more than an equal share."""
    gradient, use = first_shares(entry)
    return bool(interval(gradient - use)[0] > 0 and interval(use)[0] <= 1)


def overstates_start(entry: xr.Dataset) -> bool:
    """Tell whether the gradient gives the start, its first token aside, more than its use, and the end less."""
    gaps = gap_table({"": entry}, RESAMPLES).loc[""]
    return bool(gaps.loc["rest", "low"] > 1 and gaps.loc["end", "high"] < 1)


def ways_agree(entry: xr.Dataset, resamples: int = RESAMPLES) -> bool:
    """Tell whether deletion and hidden keys rank places more like replacement than the gradient does, in 95%."""
    ways = ("replaced", "gradient", "deleted", "hidden")
    drawn = [draw_profiles(entry[way].values, resamples) for way in ways]
    ranks = np.array([[spearman(p, q) for q in others] for p, *others in zip(*drawn, strict=True)])
    gains = ranks[:, 1:] - ranks[:, :1]
    return all(bool(interval(gain)[0] > 0) for gain in gains.T)


def break_ways(entry: xr.Dataset, runs: int = 10) -> Mapping[str, list[xr.Dataset]]:
    """Return entries in which a way of taking a token away is not what it says, by what is wrong with them."""
    rng = np.random.default_rng(0)
    return {
        "gradients in place of deletion": [changed(entry, "deleted", entry["gradient"].values)],
        "places of hidden keys shuffled": [
            changed(entry, "hidden", rng.permuted(entry["hidden"].values, axis=1)) for _ in range(runs)
        ],
    }


def changed(entry: xr.Dataset, way: str, values: Float[np.ndarray, "N n"]) -> xr.Dataset:
    """Return an entry with other numbers by one way, for a check that should notice."""
    return entry.assign({way: (("prompt", "position"), values)})


def break_entries(entry: xr.Dataset, runs: int = 20) -> Mapping[str, list[xr.Dataset]]:
    """Return entries that checks should reject, by what is wrong with them."""
    rng, raised = np.random.default_rng(0), entry["replaced"].values.copy()
    raised[:, 0] *= 8
    return {
        "places of each prompt shuffled": [
            changed(entry, "gradient", rng.permuted(entry["gradient"].values, axis=1)) for _ in range(runs)
        ],
        "gradients in place of use": [changed(entry, "replaced", entry["gradient"].values)],
        "use of the first token eight times as large": [changed(entry, "replaced", raised)],
    }

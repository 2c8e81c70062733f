"""Tables of ``results/real.nc``: the same prompts by gradient and by use, with the floor that their number sets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation
from posbias.comparison.fits import power_fit
from posbias.comparison.resampling import interval, resample_weights

WAYS = ("gradient", "likeliest", "replaced", "deleted", "hidden", "integrated")
"""What an entry may say of each token: sensitivity, and use in five ways."""
BY = {"replaced": "replacement", "deleted": "deletion", "hidden": "hidden key", "integrated": "integrated gradient"}
BY |= {"likeliest": "replacement, likeliest token"}
NUMBERS = {"W1": "W1", "total_variation": "total variation", "spearman": "rank correlation"}
ENDS = {"first": "first token (× average)", "interval": "95% interval", "lowest": "lowest tenth (× average)"}
ENDS |= {"last": "last token (× average)"}
SHARES = {ENDS["first"]: ".2f", ENDS["lowest"]: ".2f", ENDS["last"]: ".1f"}
"""Formats of a table of shares."""


def profile_of(values: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "n"]:
    """Return the profile of prompts: the mean size at each place over the prompts that have it, made to sum to 1.

    >>> profile_of(np.array([[1.0, -3.0], [1.0, np.nan]])).tolist()
    [0.25, 0.75]
    """
    mean = _means(np.abs(values))
    return np.asarray(mean / mean.sum())


def _means(x: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "n"]:
    """Return the mean at each place; one that no prompt has gets the mean of those between the first and the last."""
    times = np.isfinite(x).sum(0)
    mean = np.nansum(x, axis=0, dtype=np.float64) / np.maximum(times, 1)
    mean[times == 0] = mean[1:-1][times[1:-1] > 0].mean() if (times == 0).any() else 0.0
    return np.asarray(mean)


def draw_profiles(values: Float[np.ndarray, "N n"], resamples: int = 2000) -> Float[np.ndarray, "B n"]:
    """Return the profile in resamples of the prompts; those of the same prompts by another way are drawn alike.

    A place that none of the prompts drawn has keeps its mean over all prompts.
    """
    x, w = np.abs(values.astype(np.float64)), resample_weights(len(values), resamples)
    times, mean = w @ np.isfinite(x), _means(x)
    drawn = np.divide(w @ np.nan_to_num(x), times, out=np.tile(mean, (resamples, 1)), where=times > 0)
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))


def distance_table(entry: xr.Dataset, to: str = "replaced") -> pd.DataFrame:
    """Return how far other ways, fits and baselines are from the profile of one way; three numbers each.

    Index ``prediction``: ways of the entry; ``power law``, fitted to the profile; ``even``; ``last``; and ``half``, the
    distance of one half of the prompts from the other, a floor for what so many prompts can tell (of half as many
    it is larger than of all). Columns ``W1``, ``total_variation`` and ``spearman``.
    """
    values = {way: entry[way].values for way in WAYS if way in entry}
    p = profile_of(values[to])
    others = {way: profile_of(x) for way, x in values.items() if way != to}
    others |= {"power law": power_fit(p), "even": np.full(p.size, 1 / p.size), "last": np.eye(p.size)[-1]}
    rows = {name: three_numbers(p, q) for name, q in others.items()}
    half = np.arange(len(values[to])) // int(entry.attrs.get("each", 1)) % 2 == 0  # places move with the prompt
    rows["half"] = three_numbers(profile_of(values[to][half]), profile_of(values[to][~half]))
    return pd.DataFrame.from_dict(rows, orient="index", columns=["W1", "total_variation", "spearman"]).rename_axis(
        index="prediction"
    )


def share_table(entries: Mapping[str, xr.Dataset], resamples: int = 2000) -> pd.DataFrame:
    """Return what the ends have by each way, in equal shares: index ``entry`` and ``way``.

    Columns ``prompts``, ``first`` with its 95% interval over prompts (``low``, ``high``), ``lowest``, the least of the
    inner tenths, and ``last``, the last token.
    """
    rows = {}
    for name, entry in entries.items():
        for way in (way for way in WAYS if way in entry):
            x = entry[way].values
            p = profile_of(x)
            low, high = interval(draw_profiles(x, resamples)[:, 0]) if len(x) > 1 else (np.nan, np.nan)
            inner = [tenth.mean() for tenth in np.array_split(p, min(10, p.size))[1:-1]]
            rows[name, way] = [len(x), *(p.size * np.array([p[0], low, high, min(inner), p[-1]]))]
    names = pd.MultiIndex.from_tuples(list(rows), names=["entry", "way"])
    return pd.DataFrame(list(rows.values()), names, columns=["prompts", "first", "low", "high", "lowest", "last"])


def part_of(name: str, n: int) -> slice:
    """Return a part of n tokens: the ``first`` one, the ``rest`` of its eighth, the ``next`` three, the last."""
    eighth = n // 8
    return {
        "first": slice(1),
        "rest": slice(1, eighth),
        "next": slice(eighth, 4 * eighth),
        "end": slice(n - eighth, n),
    }[name]


def gap_table(entries: Mapping[str, xr.Dataset], resamples: int = 2000) -> pd.DataFrame:
    """Return gradient and use of parts of the prompt in equal shares, and how many times the one the other is.

    Index the names of entries, and parts (:func:`part_of`); columns ``prompts``, ``gradient``, ``replaced``, ``times``
    with its 95% interval over prompts (``low``, ``high``), paired.
    """
    rows = {}
    for name, entry in entries.items():
        both = [entry[way].values for way in ("gradient", "replaced")]
        whole, drawn = [profile_of(x) for x in both], [draw_profiles(x, resamples) for x in both]
        for part in ("first", "rest", "next", "end"):
            where = part_of(part, whole[0].size)
            gradient, use = (p.size * p[where].mean() for p in whole)
            more, less = (x[:, where].sum(1) for x in drawn)
            rows[name, part] = [len(both[0]), gradient, use, gradient / use, *interval(more / less)]
    names = pd.MultiIndex.from_tuples(list(rows), names=["entry", "part"])
    columns = ["prompts", "gradient", "replaced", "times", "low", "high"]
    return pd.DataFrame(list(rows.values()), names, columns=columns)


def ends_of(found: pd.DataFrame) -> pd.DataFrame:
    """Return a table of shares with one column for the interval and the names that a page prints."""
    interval = [f"{low:.2f}\u2013{high:.2f}" for low, high in found[["low", "high"]].itertuples(index=False)]
    return found.assign(interval=interval)[["prompts", *ENDS]].rename(columns=ENDS, index=BY)


def in_brackets(row: pd.Series) -> str:
    """Write a distance with its rank correlation in brackets, where there is one."""
    rank = row["spearman"]
    return f"{row['W1']:.3f}" + ("" if np.isnan(rank) else f" ({rank:+.2f})")


def within_prompts(entry: xr.Dataset, one: str = "gradient", other: str = "replaced") -> Float[np.ndarray, "N"]:
    """Return each prompt's rank correlation of two ways, over the places that both have."""
    pairs = zip(np.abs(entry[one].values), np.abs(entry[other].values), strict=True)
    known = ((p, q, np.isfinite(p) & np.isfinite(q)) for p, q in pairs)
    return np.array([spearman(p[both] / p[both].sum(), q[both] / q[both].sum()) for p, q, both in known])


def three_numbers(p: Float[np.ndarray, "n"], q: Float[np.ndarray, "n"]) -> list[float]:
    """Return the numbers of :data:`NUMBERS` of two profiles."""
    return [normalised_wasserstein(p, q), total_variation(p, q), spearman(p, q)]

"""What all settings of retrieval networks say together: ranks of predictors, sizes, and which ends differ for certain.

Settings of one encoding have kernels of one shape and are no independent cases: encodings are what is resampled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import t as student

from posbias.measure.studies.retrieval_tables import PREDICTORS, TASK, Run, predicted
from posbias.statistics.resampling import interval, resample_weights

ORDERED = 1.05
"""A profile gives an order of places if its largest part has so many times the weight of its smallest."""
RESAMPLES = 2000


def gives_order(run: Run) -> bool:
    """Return whether the hops that the task needs are not spread evenly over the places."""
    profile = predicted(run, TASK)
    return bool(profile.max() > ORDERED * profile.min())


def rank_means(order: pd.DataFrame, resamples: int = RESAMPLES) -> pd.DataFrame:
    """Return the mean rank correlation of each predictor over settings.

    Parameters
    ----------
    order
        Of :func:`~posbias.measure.studies.retrieval_tables.order_table`.
    resamples
        Of the encodings.

    Returns
    -------
    table : DataFrame
        A row for each predictor: ``mean`` with ``low`` and ``high``, ``right`` (share of settings with a correlation
        above 0), and ``behind`` with ``behind_low`` and ``behind_high``, by how much the mean is below that of the hops
        of the task, over the same resamples.
    """
    weights = weights_of(order, resamples)
    rows = {}
    for name in PREDICTORS:
        rank = order[name].to_numpy(float)
        row = {"mean": rank.mean(), "right": (rank > 0).mean()}
        row |= dict(zip(("low", "high"), map(float, interval(weights @ rank)), strict=True))
        behind = order[TASK].to_numpy(float) - rank
        row["behind"] = behind.mean()
        row |= dict(zip(("behind_low", "behind_high"), map(float, interval(weights @ behind)), strict=True))
        rows[name] = row
    return pd.DataFrame(rows).T


def size_fits(sizes: pd.DataFrame, encodings: Sequence[str], resamples: int = RESAMPLES) -> pd.DataFrame:
    """Return how the measured tilt grows with the predicted one, over settings.

    Parameters
    ----------
    sizes
        Of :func:`~posbias.measure.studies.retrieval_tables.size_table`.
    encodings
        Of its rows.
    resamples
        Of the encodings.

    Returns
    -------
    table : DataFrame
        A row for each predictor: ``share``, the measured tilt over the predicted one by least squares, with ``low`` and
        ``high``, and ``explained``, the share of the measured tilts' squares that it accounts for, 0 for "none" and
        below for what is worse. Predictors without weight on a quarter of the places have no tilt, and no row.
    """
    y = sizes["tilt", "measured"].to_numpy(float)
    weights = resample_weights(np.array(encodings), resamples)
    rows = {}
    for name in PREDICTORS:
        x = sizes["tilt", name].to_numpy(float)
        if not np.isfinite(x).all():
            continue
        share = x @ y / (x @ x)
        squares = np.maximum(weights @ (x * x), 1e-12)
        low, high = interval(weights @ (x * y) / squares)
        explained = 1 - ((y - share * x) ** 2).sum() / (y**2).sum()
        rows[name] = {"share": share, "low": float(low), "high": float(high), "explained": explained}
    return pd.DataFrame(rows).T


def weights_of(table: pd.DataFrame, resamples: int = RESAMPLES) -> Float[np.ndarray, "resample row"]:
    """Return the weights of rows of a table in resamples of their encodings; each resample sums to 1."""
    weights = resample_weights(table["encoding"].to_numpy(), resamples)
    return weights / weights.sum(1, keepdims=True)


def certain(
    values: Float[np.ndarray, "settings"], spread: Float[np.ndarray, "settings"], lines: Sequence[object], seeds: int
) -> Float[np.ndarray, "settings"]:
    """Return half the widths of intervals that hold for all settings at once, at 95 %.

    Three seeds say little of their own spread: it is pooled over the settings of a line, which differ in their
    positions alone. The level is divided by the number of settings (Bonferroni).

    Parameters
    ----------
    values, spread
        Mean and standard deviation over seeds of each setting.
    lines
        Which line each setting is of.
    seeds
        Of each setting.
    """
    found = np.empty(len(values))
    names = np.array([str(line) for line in lines])
    for line in set(names):
        rows = names == line
        freedom = rows.sum() * (seeds - 1)
        pooled = np.sqrt((spread[rows] ** 2).mean())
        found[rows] = student.ppf(1 - 0.025 / len(values), freedom) * pooled / np.sqrt(seeds)
    return found

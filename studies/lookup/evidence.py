"""What all settings of retrieval networks say together: ranks of predictors, sizes, and which ends differ for certain.

Settings of one encoding have kernels of one shape and are no independent cases: encodings are what is resampled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import t as student

from posbias.comparison.resampling import interval, resample_weights
from studies.lookup.tables import (
    LINE,
    PREDICTORS,
    TASK,
    Run,
    finished,
    learning_times,
    predicted,
)

ORDERED = 1.05
"""A profile gives an order of places if its largest part has so many times the weight of its smallest."""
HIDDEN = 0.02
"""Share of the mean below which a place is hidden."""
SHARED = ("steep", "log", "early", "flat")
"""Positions that are the same in all heads, with pairs of one token."""
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
        Of :func:`~studies.lookup.tables.order_table`.
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


def nat_table(runs: Sequence[Run], predictor: str = TASK) -> pd.DataFrame:
    """Return how many steps sooner a place is learned for each nat that the logarithm of a profile is higher there.

    If attention finds a value once its content logit outweighs what the prior takes from its place, and content logits
    grow at some rate while a network learns, then learning times are linear in the logarithm of the prior, and a nat
    costs the same number of steps whatever the prior's shape is.

    Parameters
    ----------
    runs
        Settings; networks that learned nothing are left out.
    predictor
        One of :data:`~studies.lookup.tables.PREDICTORS`.

    Returns
    -------
    table : DataFrame
        A row for each setting: :data:`~studies.lookup.tables.LINE`; ``steps`` a nat, by least
        squares over parts of the places, mean over networks, ``low`` and ``high``, the smallest and largest;
        ``explained``, the mean R²; ``time``, the mean learning time. Hidden places, with less than :data:`HIDDEN` of
        the mean, are left out.
    """
    rows = {}
    for run in finished(runs):
        profile = predicted(run, predictor)
        seen = profile > HIDDEN * profile.mean()
        x, times = np.log(profile[seen]), learning_times(run)[:, seen]
        steps = [-float(np.polyfit(x, t, 1)[0]) for t in times]
        row = {name: run.results.attrs[name] for name in LINE}
        row |= {"steps": np.mean(steps), "low": min(steps), "high": max(steps)}
        row["explained"] = np.mean([np.corrcoef(x, t)[0, 1] ** 2 for t in times])
        rows[run.name] = row | {"time": times.mean()}
    return pd.DataFrame(rows).T.rename_axis("setting")


def nat_spread(table: pd.DataFrame, encodings: Sequence[str] = SHARED) -> pd.Series:
    """Return, for each line, the largest over the smallest steps a nat; ∞ where one has the other sign.

    Parameters
    ----------
    table
        Of :func:`nat_table`.
    encodings
        Which settings are compared: those whose heads share one bias. Where heads differ, the mean kernel is not what
        the head has that finds the value.
    """
    chosen = table[table["encoding"].isin(encodings)]
    groups = chosen.astype({"steps": float}).groupby(["tokens", "pairs", "layers"])["steps"]
    return (groups.max() / groups.min()).where(groups.min() > 0, np.inf)


def weights_of(table: pd.DataFrame, resamples: int = RESAMPLES) -> Float[np.ndarray, "resample row"]:
    """Return the weights of rows of a table in resamples of their encodings; each resample sums to 1."""
    _, encoding = np.unique(table["encoding"].to_numpy(), return_inverse=True)
    weights = resample_weights(encoding, resamples)
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

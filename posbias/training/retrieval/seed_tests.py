"""Which gaps have a sign when the seeds are the unit, and how many of a family when all are counted at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.statistics.multiplicity import holm

SAMPLING = 0.007
"""Standard error of a gap in accuracy on 10,000 sequences of each order, at most: the least spread of seeds."""


def seed_p_values(values: Float[np.ndarray, "groups seeds"], *, least: float = SAMPLING) -> Float[np.ndarray, "groups"]:
    """Return two-sided p values of "the mean over seeds is 0", by Student's t with seeds - 1 degrees of freedom.

    Parameters
    ----------
    values
        One for each seed, at least two.
    least
        Least standard deviation over seeds, > 0: few seeds can agree by chance to more than a test can tell.

    >>> seed_p_values(np.array([[0.2, 0.21, 0.19], [0.3, -0.3, 0.0]])).round(4).tolist()
    [0.0008, 1.0]
    """
    from scipy.stats import t

    seeds = values.shape[1]
    spread = np.maximum(values.std(axis=1, ddof=1), least)
    return np.asarray(2 * t.sf(np.abs(values.mean(axis=1)) / spread * np.sqrt(seeds), seeds - 1))


def seed_tests(gap_rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return for each group of networks and pair of places the mean gap over seeds, its p value and Holm's.

    Parameters
    ----------
    gap_rows
        From :func:`posbias.training.retrieval.gap_tables.gap_table`: the family that a sentence counts over.
    by
        Columns that name a group.

    Returns
    -------
    table : DataFrame
        Index ``by`` and pair; columns ``mean``, ``seeds``, ``p`` and ``adjusted``; groups whose seeds are not complete
        have a p value of 1.
    """
    wide = gap_rows.pivot_table(index=[*by, "pair"], columns="seed", values="gap", observed=True)
    complete = wide.notna().all(axis=1).to_numpy()
    p = np.ones(len(wide))
    p[complete] = seed_p_values(wide[complete].to_numpy())
    found = {"mean": wide.mean(axis=1), "seeds": wide.notna().sum(axis=1), "p": p, "adjusted": holm(p)}
    return pd.DataFrame(found, index=wide.index)

"""Which gaps have a sign when the seeds are the unit, and how many of a family when all are counted at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.comparison.multiplicity import holm

SAMPLING = 0.007
"""Standard error of a gap in accuracy on 10,000 sequences of each order, at most: the least spread of seeds."""
DIFFERENCE = SAMPLING * 2**0.5
"""The same of a difference of two gaps."""


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


def reversed_claims(
    needs: Mapping[str, Sequence[Float[np.ndarray, "terms seeds"]]], *, least: float, level: float = 0.05
) -> dict[str, bool]:
    """Return for each claim whether the seeds contradict it, at a level that holds for all claims together.

    A claim is contradicted if one of the things that it excludes stands: all terms of a group are negative in every
    seed, beyond ``least`` on the mean, and the largest p value of its terms, adjusted by Holm's rule over the groups of
    all claims, is at most ``level``.

    Parameters
    ----------
    needs
        Claim → groups of terms by seed, each of which the claim asks to have one term that is not negative.
    least
        Size of a mean below which it has no sign.
    level
        At most this is the probability that any claim is called contradicted by chance.

    >>> up, down = np.array([[0.2, 0.21, 0.19]]), np.array([[-0.2, -0.21, -0.19]])
    >>> split = np.array([[-0.2, -0.21, 0.01]])
    >>> reversed_claims({"up": [up], "down": [up, down], "split": [split]}, least=0.01)
    {'up': False, 'down': True, 'split': False}
    """
    owners = [name for name, groups in needs.items() for _ in groups]
    if not owners:
        return dict.fromkeys(needs, False)
    adjusted = holm(np.array([_reversal(x, least) for groups in needs.values() for x in groups]))
    against = {name for name, p in zip(owners, adjusted, strict=True) if p <= level}
    return {name: name in against for name in needs}


def _reversal(terms: Float[np.ndarray, "terms seeds"], least: float) -> float:
    """Return the p value of terms that are all negative in every seed, 1 if one is not."""
    x = np.asarray(terms, dtype=float)
    if x.shape[1] < 2 or not (x < 0).all() or not (x.mean(axis=1) < -least).all():
        return 1.0
    return float(seed_p_values(x, least=DIFFERENCE).max())


def seed_tests(gap_rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return for each group of networks and pair of places the mean gap over seeds, its p value and Holm's.

    Parameters
    ----------
    gap_rows
        From :func:`studies.icl.gap_tables.gap_table`: the family that a sentence counts over.
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

"""Uncertainty over prompts: profiles of resampled prompts, and intervals."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import checks


def resampled_profiles(
    influence: Float[np.ndarray, "N n"], resamples: int = 2000, *, seed: int = 0
) -> Float[np.ndarray, "B n"]:
    """Return B influence profiles p ∝ Σ_k w_k g_k, each of N prompts drawn with replacement from the N.

    Parameters
    ----------
    influence
        g: each prompt's influence at each position, ≥ 0, not normalised.
    resamples
        B.
    seed
        Of the draws; equal seeds and N draw the same prompts, which pairs the resamples of several statistics.

    Raises
    ------
    ValueError
        If a number is negative or not finite, or a prompt has no influence at all.

    Source: the nonparametric bootstrap; prompts are the units, for the positions of one prompt are not independent.

    >>> resampled_profiles(np.array([[1.0, 3.0]]), 2).tolist()
    [[0.25, 0.75], [0.25, 0.75]]
    """
    g = checks.finite_array("influence", influence, ndim=(2,))
    checks.positive_integer("resamples", resamples)
    if (g < 0).any() or not g.sum(1).all():
        raise checks.refuse("influence", "numbers of at least 0 and some above in each prompt", "others")
    N = len(g)
    weights = np.random.default_rng(seed).multinomial(N, np.full(N, 1 / N), size=resamples)
    p = weights.astype(np.float64) @ g
    return p / p.sum(1, keepdims=True)


def interval(values: Float[np.ndarray, "B ..."], level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentile interval of resampled values along their first axis.

    Parameters
    ----------
    values
        One for each resample.
    level
        Share of the resamples inside, in (0, 1).

    Raises
    ------
    ValueError
        For a level outside (0, 1).

    >>> low, high = interval(np.arange(101.0), 0.5)
    >>> float(low), float(high)
    (25.0, 75.0)
    """
    if not 0 < level < 1:
        raise checks.refuse("level", "a share between 0 and 1", level)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(low), np.asarray(high)

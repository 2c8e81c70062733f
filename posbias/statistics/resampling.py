"""Resampling: units drawn with replacement, and the intervals they give.

The unit is what was drawn independently: prompts if each is from a document of its own, documents where several
prompts are windows of one, seeds where a sentence is about an architecture, architectures where it is about them all.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Num

from posbias import checks


def resample_weights(
    units: int | Num[np.ndarray, "N"], resamples: int = 2000, *, seed: int = 0
) -> Float[np.ndarray, "B N"]:
    """Return how often each observation is drawn in each of B resamples of its units.

    Parameters
    ----------
    units
        Number N of observations that are units of their own, or the unit that each of the N belongs to (its document,
        its architecture): whole units are drawn then, with all their observations.
    resamples
        B.
    seed
        Of the draws; equal seeds and units draw the same, which pairs the resamples of several statistics.

    Raises
    ------
    ValueError
        If there is no observation.

    Source: the nonparametric bootstrap, with clusters (Davison and Hinkley 1997, section 3.8).

    >>> resample_weights(np.array([4, 4, 7]), 3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 2.0]]
    """
    labels = np.arange(checks.positive_integer("units", units)) if isinstance(units, int) else np.asarray(units)
    checks.positive_integer("resamples", resamples)
    if labels.ndim != 1 or labels.size == 0:
        raise checks.refuse(
            "units", "a number, or a label for each of one observation or more", f"shape {labels.shape}"
        )
    names, unit = np.unique(labels, return_inverse=True)
    draws = np.random.default_rng(seed).multinomial(names.size, np.full(names.size, 1 / names.size), size=resamples)
    return draws.astype(np.float64)[:, unit]


def resampled_profiles(
    influence: Float[np.ndarray, "N n"],
    resamples: int = 2000,
    *,
    units: Num[np.ndarray, "N"] | None = None,
    seed: int = 0,
) -> Float[np.ndarray, "B n"]:
    """Return B influence profiles p ∝ Σ_k w_k g_k, w from :func:`resample_weights`.

    Parameters
    ----------
    influence
        g: each prompt's influence at each position, ≥ 0, not normalised.
    resamples, seed
        As in :func:`resample_weights`.
    units
        The document of each prompt; None where each prompt is a unit of its own.

    Raises
    ------
    ValueError
        If a number is negative or not finite, or a prompt has no influence at all.

    >>> resampled_profiles(np.array([[1.0, 3.0]]), 2).tolist()
    [[0.25, 0.75], [0.25, 0.75]]
    """
    g = checks.finite_array("influence", influence, ndim=(2,))
    if (g < 0).any() or not g.sum(1).all():
        raise checks.refuse("influence", "numbers of at least 0 and some above in each prompt", "others")
    if units is not None and len(units) != len(g):
        raise checks.refuse("units", f"one for each of {len(g)} prompts", len(units))
    p = resample_weights(len(g) if units is None else units, resamples, seed=seed) @ g
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

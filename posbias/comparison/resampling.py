"""Resampling: units drawn with replacement, and the intervals they give.

The unit is what was drawn independently: prompts if each is from a document of its own, documents where several
prompts are windows of one, seeds where a sentence is about an architecture, architectures where it is about them all.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Num

from posbias import errors
from posbias.errors import Numbers


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

    Source: the nonparametric bootstrap, with clusters (Davison and Hinkley 1997, section 3.8).

    >>> resample_weights(np.array([4, 4, 7]), 3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 2.0]]
    """
    labels = np.arange(units) if isinstance(units, int) else np.asarray(units)
    names, unit = np.unique(labels, return_inverse=True)
    return _draws(names.size, resamples, seed)[:, unit]


@lru_cache(maxsize=8)
def _draws(units: int, resamples: int, seed: int) -> Float[np.ndarray, "B units"]:
    """Return how often each unit is drawn in each resample, the same array each time."""
    draws = np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), size=resamples)
    return draws.astype(np.float64)


def resampled_profiles(
    influence: Float[np.ndarray, "N n"],
    resamples: int = 2000,
    *,
    units: Num[np.ndarray, "K"] | None = None,
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

    >>> resampled_profiles(np.array([[1.0, 3.0]]), 2).tolist()
    [[0.25, 0.75], [0.25, 0.75]]
    """
    g = errors.finite_array("influence", influence, ndim=(2,))
    if (g < 0).any() or not g.sum(1).all():  # of a file: usable() asks before the front door does
        raise errors.invalid("influence", "numbers of at least 0 and some above in each prompt", "others")
    p = resample_weights(len(g) if units is None else units, resamples, seed=seed) @ g
    return p / p.sum(1, keepdims=True)


def interval(values: Float[np.ndarray, "B ..."], level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentile interval of values, one for each resample: ``level``, in (0, 1), is the share inside.

    >>> low, high = interval(np.arange(101.0), 0.5)
    >>> float(low), float(high)
    (25.0, 75.0)
    """
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(low), np.asarray(high)


def hull_interval(
    estimate: float, values: Float[np.ndarray, "B"], level: float = 0.95, *, least: float = -np.inf
) -> tuple[float, float]:
    """Return the hull of the percentile and the basic interval, for what noise shifts to one side, such as a distance.

    The distance of a sample to a prediction is larger than the law's by about what noise alone makes, and that of a
    resample is larger by as much again. Percentiles of resamples therefore lie above a small distance, by more than
    they are wide; the basic interval, 2·estimate less the percentiles, takes the shift back. ``estimate`` is the
    statistic in the sample, ``values`` it in each of B resamples, ``level`` as in :func:`interval`, and ``least`` the
    lowest value there is: 0 for a distance.

    Source: Davison and Hinkley 1997, sections 5.2 and 5.3; the hull is this project's, for its measured coverage.

    >>> hull_interval(0.25, np.array([0.25, 0.5, 0.75, 1.0, 1.25]), 0.5, least=0.0)
    (0.0, 1.0)
    """
    low, high = map(float, interval(values, level))
    return max(least, min(low, 2 * estimate - high)), max(high, 2 * estimate - low)


def t_interval(values: Numbers) -> tuple[float, float]:
    """Return Student's 95% interval for the mean of two or more units, such as seeds: percentiles are too narrow.

    >>> low, high = t_interval([1.0, 2.0, 3.0])
    >>> round(low, 2), round(high, 2)
    (-0.48, 4.48)
    """
    from scipy.stats import t

    x = np.asarray(values, dtype=np.float64)
    half = t.ppf(0.975, x.size - 1) * x.std(ddof=1) / np.sqrt(x.size)
    return float(x.mean() - half), float(x.mean() + half)

"""Prediction against measurement: distances with bootstrap intervals, and paired gains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias import checks
from posbias.comparison.distances import normalised_wasserstein, spearman, wasserstein_to
from posbias.rollout.profiles import mean_position
from posbias.statistics.resampling import interval, resampled_profiles


@dataclass(frozen=True)
class Score:
    """Say how far a predicted profile is from a measured one.

    Parameters
    ----------
    wasserstein
        Normalised W₁ of prediction and measured mean profile.
    low, high
        Its 95 % interval over resampled prompts.
    first_aside
        The same with the first token left out of both profiles, which are then normalised again.
    spearman
        Rank correlation; NaN for a constant prediction.
    difference
        Mean position of the prediction less that of the measured profile, in [-1, 1].
    """

    wasserstein: float
    low: float
    high: float
    first_aside: float
    spearman: float
    difference: float


def score(
    influence: Float[np.ndarray, "N n"], prediction: Float[np.ndarray, "m"], *, resamples: int = 2000, seed: int = 0
) -> Score:
    """Return the score of a prediction.

    Parameters
    ----------
    influence
        Each prompt's influence at each position, as measurements keep it.
    prediction
        A probability vector.
    resamples, seed
        Of the bootstrap over prompts.

    Raises
    ------
    ValueError
        If the lengths differ, the prediction is no distribution, or the influence is not as it should be.

    >>> score(np.array([[1.0, 1.0, 2.0]]), np.array([0.25, 0.25, 0.5])).wasserstein
    0.0
    """
    q = _prediction("prediction", prediction, influence.shape[1])
    p = _mean_profile(influence)
    low, high = interval(wasserstein_to(resampled_profiles(influence, resamples, seed=seed), q))
    aside = [x[1:] / x[1:].sum() if x[1:].any() else np.full(x.size - 1, 1 / (x.size - 1)) for x in (p, q)]
    return Score(
        wasserstein=normalised_wasserstein(p, q),
        low=float(low),
        high=float(high),
        first_aside=normalised_wasserstein(*aside),
        spearman=spearman(p, q),
        difference=mean_position(q) - mean_position(p),
    )


def paired_gain(
    influence: Float[np.ndarray, "N n"],
    before: Float[np.ndarray, "m"],
    after: Float[np.ndarray, "k"],
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return W₁(before) - W₁(after) and its 95 % interval, both distances taken on the same resampled prompts.

    Parameters
    ----------
    influence, resamples, seed
        As in :func:`score`.
    before, after
        Two predictions; positive gains speak for the second.

    Raises
    ------
    ValueError
        As :func:`score` does, for either prediction.

    >>> paired_gain(np.array([[0.0, 1.0]]), np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    (1.0, 1.0, 1.0)
    """
    before, after = (_prediction(name, q, influence.shape[1]) for name, q in (("before", before), ("after", after)))
    resampled = resampled_profiles(influence, resamples, seed=seed)
    low, high = interval(wasserstein_to(resampled, before) - wasserstein_to(resampled, after))
    p = _mean_profile(influence)
    gain = wasserstein_to(p[None], before)[0] - wasserstein_to(p[None], after)[0]
    return float(gain), float(low), float(high)


def _prediction(field: str, values: np.ndarray, n: int) -> np.ndarray:
    """Return a distribution on the n positions that were measured, or raise ValueError."""
    q = checks.distribution(field, values)
    if q.size != n:
        raise checks.refuse(field, f"{n} positions, as measured", q.size)
    return q


def _mean_profile(influence: np.ndarray) -> np.ndarray:
    """Return the profile of all prompts, in 64 bits whatever they were kept in."""
    total = influence.sum(0, dtype=np.float64)
    return total / total.sum()

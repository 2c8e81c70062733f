"""Prediction against measurement: distances with bootstrap intervals, and paired gains."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein, spearman, wasserstein_to
from posbias.comparison.multiplicity import sign_p_value
from posbias.comparison.resampling import hull_interval, resampled_profiles
from posbias.rollout.profiles import mean_position


@dataclass(frozen=True)
class Score:
    """Say how far a predicted profile is from a measured one."""

    wasserstein: float  # Normalised W₁ of prediction and measured mean profile
    # Its 95% interval over resampled units (:func:`~posbias.comparison.resampling.hull_interval`)
    low: float
    high: float
    first_aside: float  # The same with the first token left out of both profiles, which are then normalised again
    spearman: float  # Rank correlation; NaN for a constant prediction
    difference: float  # Mean position of the prediction less that of the measured profile, in [-1, 1]


class Gain(NamedTuple):
    """How much nearer one prediction is than another."""

    gain: float  # W₁ of the first less W₁ of the second; positive gains speak for the second
    low: float  # Its 95% interval over resampled units (:func:`~posbias.comparison.resampling.hull_interval`)
    high: float
    p_value: float  # Two-sided, of no gain: the level at which the interval begins to contain 0


def score(
    influence: Float[np.ndarray, "N n"],
    prediction: Float[np.ndarray, "m"],
    resampled: Float[np.ndarray, "B n"] | None = None,
) -> Score:
    """Return the score of a prediction.

    Parameters
    ----------
    influence
        Each prompt's influence at each position, as measurements keep it.
    prediction
        A probability vector.
    resampled
        The measured profile in each of B resamples, for the interval: of prompts, unless given
        (:func:`~posbias.comparison.resampling.resampled_profiles`).

    >>> score(np.array([[1.0, 1.0, 2.0]]), np.array([0.25, 0.25, 0.5])).wasserstein
    0.0
    """
    q = _prediction("prediction", prediction, influence.shape[1])
    p = _mean_profile(influence)
    if resampled is None:
        resampled = resampled_profiles(influence)
    low, high = hull_interval(wasserstein_to(p[None], q)[0], wasserstein_to(resampled, q), least=0.0)
    aside = [x[1:] / x[1:].sum() if x[1:].any() else np.full(x.size - 1, 1 / (x.size - 1)) for x in (p, q)]
    return Score(
        wasserstein=normalised_wasserstein(p, q),
        low=low,
        high=high,
        first_aside=normalised_wasserstein(*aside),
        spearman=spearman(p, q),
        difference=mean_position(q) - mean_position(p),
    )


def paired_gain(
    influence: Float[np.ndarray, "N n"],
    before: Float[np.ndarray, "m"],
    after: Float[np.ndarray, "k"],
    resampled: Float[np.ndarray, "B n"] | None = None,
) -> Gain:
    """Return W₁(before) - W₁(after) with its interval, both distances taken on the same resampled prompts.

    Parameters
    ----------
    influence, resampled
        As in :func:`score`.
    before, after
        Two predictions; positive gains speak for the second.

    >>> paired_gain(np.array([[0.0, 1.0]]), np.array([1.0, 0.0]), np.array([0.0, 1.0]))[:3]
    (1.0, 1.0, 1.0)
    """
    before, after = (_prediction(name, q, influence.shape[1]) for name, q in (("before", before), ("after", after)))
    if resampled is None:
        resampled = resampled_profiles(influence)
    gains = wasserstein_to(resampled, before) - wasserstein_to(resampled, after)
    p = _mean_profile(influence)
    gain = float(wasserstein_to(p[None], before)[0] - wasserstein_to(p[None], after)[0])
    p_value = max(sign_p_value(gains), sign_p_value(2 * gain - gains))
    return Gain(gain, *hull_interval(gain, gains), p_value)


def _prediction(field: str, values: np.ndarray, n: int) -> np.ndarray:
    """Return a prediction if it is a distribution on the n positions that were measured."""
    q = errors.distribution(field, values)
    if q.size != n:
        raise errors.invalid(field, f"{n} positions, as measured", q.size)
    return q


def _mean_profile(influence: np.ndarray) -> np.ndarray:
    """Return the profile of all prompts, in 64 bits whatever they were kept in."""
    total = influence.sum(0, dtype=np.float64)
    return total / total.sum()

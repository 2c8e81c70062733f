"""Scores by place, each context asked at all places: means with intervals, paired differences, and the verdict."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import binomtest

from posbias.comparison.resampling import interval, resample_weights

RESAMPLES = 2000
SMALL = 0.1
"""Share of answers up to which a loss in the middle is called none."""
LEAST_RIGHT = 0.05
"""Share of answers that must be right: a model that finds nothing has lost no place."""
FEWEST, LEVEL = 6, 0.05
"""Contexts below which nothing is called lost, and the p value above which nothing is."""
POWER = 1.96 + 0.84
"""Standard errors of a difference that is seen in four of five samples, by a test at the 5 % level."""


@dataclass(frozen=True)
class Difference:
    """Hold a paired difference over contexts, its 95% interval, and the least that would show."""

    mean: float
    low: float
    high: float
    visible: float


def paired_difference(values: Float[np.ndarray, "C"], *, seed: int = 0) -> Difference:
    """Return what the contexts' differences say, with contexts resampled.

    Where all contexts agree, resamples do too: the interval then has 3 / C on either side, since what happens in more
    than that share of contexts would have been seen (with 95 %).

    >>> found = paired_difference(np.ones(30))
    >>> found.mean, round(found.low, 2)
    (1.0, 0.9)
    """
    C, mean = len(values), float(values.mean())
    if C < 2:
        return Difference(mean, np.nan, np.nan, np.nan)
    low, high = (float(x) for x in interval(resample_weights(C, RESAMPLES, seed=seed) @ values / C))
    spread = float(values.std(ddof=1))
    if spread < 1e-12:
        low, high = mean - 3 / C, mean + 3 / C
    return Difference(mean, low, high, max(POWER * spread / C**0.5, 3 / C))


@dataclass(frozen=True)
class Verdict:
    """Say whether the middle is lost: ``yes``, ``no`` or ``open``; how the weaker end differs from it; three means.

    ``p`` is the larger of the two ends' p values.
    """

    lost: str
    weaker: Difference
    p: float
    first: float
    middle: float
    last: float


def judge(correct: Float[np.ndarray, "C P"]) -> Verdict | None:
    """Return whether answers in the middle are lost, None where there is no middle, or hardly an answer is right.

    The middle is every place but the first and the last. It is lost if *both* ends are found more often: both paired
    differences over contexts have 95% intervals above 0, and p values of at most 5% (:func:`exchange_p_value`, which
    few contexts do not mislead as they do intervals). It is not lost if one of the two is at most 0.1, with its whole
    interval.

    >>> rows = np.array([[1, 0, 0, 1], [1, 0, 1, 1]] * 10, float)
    >>> judge(rows).lost, judge(rows).weaker.mean, judge(rows[:, ::2]), judge(rows * 0)
    ('yes', 0.75, None, None)
    """
    if correct.shape[1] < 3 or correct.mean() < LEAST_RIGHT:
        return None
    middle = correct[:, 1:-1].mean(1)
    ends = [paired_difference(correct[:, k] - middle) for k in (0, -1)]
    p = max(exchange_p_value(np.c_[correct[:, k], correct[:, 1:-1]]) for k in (0, -1))
    low, high = min(x.low for x in ends), min(x.high for x in ends)
    lost = "yes" if low > 0 and p <= LEVEL and len(correct) >= FEWEST else "no" if high <= SMALL else "open"
    means = (float(x.mean()) for x in (correct[:, 0], middle, correct[:, -1]))
    return Verdict(lost, min(ends, key=lambda x: x.mean), p, *means)


def mean_with_interval(values: Float[np.ndarray, "C P"], is_share: bool) -> Float[np.ndarray, "3 P"]:
    """Return mean, low and high of each place, 95% intervals: of shares Clopper and Pearson's, else of resamples.

    >>> mean_with_interval(np.ones((4, 1)), True).round(2).ravel().tolist()
    [1.0, 0.4, 1.0]
    """
    C, mean = len(values), values.mean(0)
    if is_share:
        ends = [binomtest(round(x), C).proportion_ci(0.95) for x in values.sum(0)]
        return np.stack([mean, np.array([x.low for x in ends]), np.array([x.high for x in ends])])
    low, high = interval(resample_weights(C, RESAMPLES) @ values / C) if C > 1 else (mean * np.nan,) * 2
    return np.stack([mean, low, high])


def exchange_p_value(values: Float[np.ndarray, "C P"], *, seed: int = 0) -> float:
    """Return the p value of a first place that is as the others: in each context another one is drawn in its stead.

    Ten contexts in which it is right are no surprise if the others are right in nine cases of ten.

    >>> exchange_p_value(np.tile([1.0, 0.0, 0.0], (10, 1))) < 0.001, exchange_p_value(np.ones((10, 4)))
    (True, 1.0)
    """
    centred, contexts = values - values.mean(1, keepdims=True), np.arange(len(values))
    drawn = np.random.default_rng(seed).integers(values.shape[1], size=(RESAMPLES, len(values)))
    exceeded = np.abs(centred[contexts, drawn].mean(1)) >= abs(centred[:, 0].mean()) - 1e-12
    return float((1 + exceeded.sum()) / (RESAMPLES + 1))


def difference_p_value(values: Float[np.ndarray, "C P"], *, seed: int = 0) -> float:
    """Return the p value of no difference between places: each context's scores are put into random order.

    The statistic is the variance of the places' means. With P permutations no p value is below 1 / (P + 1).

    >>> difference_p_value(np.tile([0.0, 1.0, 0.0], (20, 1))) < 0.001
    True
    """
    rng = np.random.default_rng(seed)
    shuffled = np.stack([rng.permuted(values, axis=1).mean(0).var() for _ in range(RESAMPLES)])
    return float((1 + (shuffled >= values.mean(0).var() - 1e-12).sum()) / (RESAMPLES + 1))


def flip_p_value(values: Float[np.ndarray, "C"], *, seed: int = 0) -> float:
    """Return the p value of no difference: signs of the contexts' differences are drawn at random.

    >>> flip_p_value(np.ones(20)) < 0.001, flip_p_value(np.zeros(20))
    (True, 1.0)
    """
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(RESAMPLES, len(values)))
    exceeded = np.abs(signs @ values) >= abs(values.sum()) - 1e-12
    return float((1 + exceeded.sum()) / (RESAMPLES + 1))

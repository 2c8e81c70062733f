"""Many comparisons at once: which of a family stand when their number is taken into account."""

import numpy as np
from jaxtyping import Float, Int


def holm(p_values: Float[np.ndarray, "tests"]) -> Float[np.ndarray, "tests"]:
    """Return p values adjusted so that a level holds for the whole family: max over k ≤ rank of (m - k + 1) p_(k).

    A comparison stands at level α if its adjusted value is at most α; the probability of one false claim or more in the
    family is then at most α, however the tests depend on each other.

    Source: Holm 1979; for the share of false claims instead, scipy.stats.false_discovery_control
    (Benjamini and Hochberg 1995).

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    stepped = np.maximum.accumulate((p.size - np.arange(p.size)) * p[order])
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted


def sign_p_value(values: Float[np.ndarray, "B"]) -> float:
    """Return the two-sided p value of "this statistic is 0", from its bootstrap resamples.

    It is twice the share of resamples on the rarer side of 0, each side counted with one resample more than it has,
    so that it is never 0: the level at which the percentile interval begins to contain 0.

    Source: Davison and Hinkley 1997, section 5.4 (inverting the percentile interval).

    >>> sign_p_value(np.array([1.0, 2.0, 3.0, 4.0, -1.0, 2.0, 5.0, 1.0, 2.0]))
    0.4
    """
    beyond = min((values <= 0).sum(), (values >= 0).sum())
    return float(min(1.0, 2 * (1 + beyond) / (1 + values.size)))


def decide(
    effects: Float[np.ndarray, "tests"], p_values: Float[np.ndarray, "tests"], level: float = 0.05
) -> Int[np.ndarray, "tests"]:
    """Return the sign of each effect that stands in its family by Holm's rule, and 0 where it is open.

    ``level`` is the probability of one false sign or more in the family.

    >>> decide(np.array([0.2, -0.3, 0.1]), np.array([0.01, 0.002, 0.04])).tolist()
    [1, -1, 1]
    >>> decide(np.array([0.2, -0.3, 0.1]), np.array([0.01, 0.03, 0.04])).tolist()
    [1, 0, 0]
    """
    return np.where(holm(p_values) <= level, np.sign(effects), 0).astype(int)

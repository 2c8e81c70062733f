"""Coverage: how often an interval contains the number that it is an interval for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from posbias import errors

Interval = tuple[float, float]


@dataclass(frozen=True)
class Coverage:
    """How often intervals contained the truth."""

    contained: int
    repeats: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """Share of the samples whose interval contained the truth."""
        return self.contained / self.repeats


def coverage(
    interval_of: Callable[[np.random.Generator], Interval], truth: float, repeats: int, *, seed: int = 0
) -> Coverage:
    """Draw samples again and again, and count how often their interval contains the truth.

    >>> coverage(lambda rng: (0.0, float(rng.uniform(0, 2))), 1.0, 100).share
    0.47
    """
    from scipy.stats import binomtest

    repeats = errors.positive_integer("repeats", repeats)
    contained = 0
    for rng in np.random.default_rng(seed).spawn(repeats):
        low, high = interval_of(rng)
        if not low <= high:
            raise errors.invalid("interval", "low ≤ high", f"{low} to {high}")
        contained += bool(low <= truth <= high)
    ends = binomtest(contained, repeats).proportion_ci(0.95)
    return Coverage(contained, repeats, float(ends.low), float(ends.high))

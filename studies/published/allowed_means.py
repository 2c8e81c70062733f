"""Ranges of means that distances allow: what a Wasserstein distance to a known profile says about the other one.

On a line W₁(p, q) ≥ |mean(q) - mean(p)|, so a distance from a known p confines the mean of q. A range is a pair
(low, high) of mean positions; it is empty if low > high.
"""

from __future__ import annotations

import numpy as np

from posbias import errors

Range = tuple[float, float]
WHOLE: Range = (0.0, 1.0)
"""Every mean position that there is."""


def allowed_means(mean: float, distance: float) -> Range:
    """Return the means in [0, 1] that a profile at most ``distance`` away from one with ``mean`` may have.

    >>> allowed_means(0.75, 0.5)
    (0.25, 1.0)
    """
    return overlap((mean - distance, mean + distance), WHOLE)


def overlap(*ranges: Range) -> Range:
    """Return what all ranges have in common: the largest low and the smallest high.

    >>> overlap((0.0, 0.5), (0.25, 1.0))
    (0.25, 0.5)
    """
    if not ranges:
        raise errors.invalid("ranges", "at least one", "none")
    return max(low for low, _ in ranges), min(high for _, high in ranges)


def gaps_to(mean: float, means: Range) -> Range:
    """Return the smallest and the largest |mean - x| over x in a range.

    >>> gaps_to(0.5, (0.25, 0.625))
    (0.0, 0.25)
    """
    ends = [mean - x for x in means]
    smallest = 0.0 if min(ends) <= 0 <= max(ends) else min(map(abs, ends))
    return smallest, max(map(abs, ends))


def shown(means: Range) -> str:
    """Return a range as text.

    >>> shown((0.25, 0.5)), shown((0.5, 0.25))
    ('0.250 to 0.500', 'none (gap 0.250)')
    """
    low, high = means
    return f"{low:.3f} to {high:.3f}" if low <= high else f"none (gap {low - high:.3f})"


def vote(old: float, new: float, means: Range) -> str:
    """Say which way a corrected mean moves: towards every allowed mean, away from every one, or open.

    Parameters
    ----------
    old, new
        Mean position before and after the correction.
    means
        The measured means that are allowed.

    Returns
    -------
    str
        ``unchanged``, ``towards``, ``away`` or ``open``.

    Raises
    ------
    ValueError
        If the range is empty.

    Notes
    -----
    |new - x| - |old - x| is linear in x between old and new and constant outside, so that its extremes over the
    range are at the range's ends or at old and new.

    >>> vote(0.2, 0.4, (0.6, 0.7)), vote(0.5, 0.8, (0.6, 0.7))
    ('towards', 'open')
    """
    low, high = means
    if low > high:
        raise errors.invalid("means", "a range that is not empty", shown(means))
    if abs(new - old) < 1e-12:
        return "unchanged"
    at = np.clip([low, high, old, new], low, high)
    change = np.abs(new - at) - np.abs(old - at)
    if change.max() < 0:
        return "towards"
    return "away" if change.min() > 0 else "open"

"""From which documents wrong answers are, beside what four descriptions would give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from posbias.lookup.reading import distances
from studies.reading import tables
from studies.reading.evidence import Evidence, later_share, near_share
from studies.reading.questions import share_interval

Counts = Float[np.ndarray, "P P"]


def asked_inside(counts: Counts) -> Counts:
    """Return the answers that ask for a place whose neighbours are no ends."""
    place = np.arange(len(counts))
    return counts * ((place >= 2) & (place < len(counts) - 2))[:, None]


def inner_near_share(counts: Counts) -> float:
    """Return the share of a neighbour among wrong answers of :func:`asked_inside`."""
    return near_share(asked_inside(counts))


def two_near_share(counts: Counts) -> float:
    """Return the share within two places among wrong answers of :func:`asked_inside`."""
    inside = asked_inside(counts)
    near = inside[distances(len(counts)) <= 2].sum()
    return float((near - inside.trace()) / (inside.sum() - inside.trace()))


def last_share(counts: Counts) -> float:
    """Return the share of the last document among wrong answers.

    >>> last_share(np.array([[5.0, 1, 1], [1, 5, 1], [0, 0, 5]]))
    0.5
    """
    return float(counts[:-1, -1].sum() / (counts.sum() - counts.trace()))


SHARES: dict[str, Callable[[Counts], float]] = {
    "near": near_share, "inner": inner_near_share, "two": two_near_share, "later": later_share, "last": last_share,
}  # fmt: skip
"""What the page counts among wrong answers, by name."""


def alike(counts: Counts) -> Counts:
    """Return how many wrong answers would be from each document if all but the right one were read alike."""
    wrong = counts * (distances(len(counts)) > 0)
    return np.asarray(np.where(distances(len(counts)) > 0, wrong.sum(1, keepdims=True) / (len(counts) - 1), 0.0))


def source_numbers(seen: Evidence) -> dict[str, str | float]:
    """Return each share of wrong answers with its interval over sets, and what four descriptions would give."""
    sets, total = seen.sets["eight"], seen.totals["eight"].astype(float)
    others = {"places": tables.by_pulls(total), "alike": alike(total)}
    others |= {along: tables.by_pulls(total, along) for along in ("distance", "trend")}
    found: dict[str, str | float] = {}
    for name, share in SHARES.items():
        low, high = share_interval(sets, share)
        found[f"wrong_{name}_seen"] = f"{share(total):.0%} ({low:.0%} to {high:.0%})"
        found |= {f"wrong_{name}_{other}": share(expected) for other, expected in others.items()}
    return found

"""What a study says of a claim: a verdict, what was measured, and what the check notices if something is broken.

A chapter records a list of them with :func:`bookkit.records.record_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """Hold whether a claim passed, what was measured, and for each thing broken in which runs it still passed.

    ``said`` is the claim in plain words. ``how`` has the other words of a record: its kind, and whether it is in part
    or undecided. ``brief`` is what the list of a page says in place of a long ``figure``.
    """

    row: str
    part: str
    said: str
    passed: bool
    figure: str
    fails_if: str
    broken: Mapping[str, Sequence[bool]]
    reason: str
    how: Mapping[str, Any]
    brief: str = ""

    @property
    def about(self) -> dict[str, Any]:
        """What a record says beside verdict and power."""
        return {"part": self.part, "fails_if": self.fails_if, "reason": self.reason, **self.how}


def ranged(found: tuple[float, float, float], digits: int = 2) -> str:
    """Return a number with its interval.

    >>> ranged((0.5, 0.25, 1.0))
    '0.50 (0.25 to 1.00)'
    """
    return "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(*found, d=digits)

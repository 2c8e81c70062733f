"""Power: how often a check notices what it should reject."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from posbias import errors

ENOUGH = 0.5
"""Power below which a check that passed says no more than "not refuted"; "vacuous" if it noticed nothing at all."""


@dataclass(frozen=True)
class PowerCheck:
    """A check, run on what it should reject: in ``noticed`` of ``trials`` runs it failed, as it should."""

    against: str
    noticed: int
    trials: int

    @property
    def power(self) -> float:
        """The share of runs in which the check noticed."""
        return self.noticed / self.trials

    def __str__(self) -> str:
        return f"{self.noticed}/{self.trials} {self.against}"


def power_check(against: str, passes: Iterable[Any]) -> PowerCheck:
    """Count how often a check notices what it should.

    ``passes`` says for each run on something broken whether the check passed; it noticed where it did not. A run is the
    whole check with all its cases, as it stands beside a verdict.

    Source: statistical power, with "the check fails" for "the null hypothesis is rejected".

    >>> power_check("rows that sum to 1.1", [sum(row) == 1 for row in ([0.5, 0.6], [0.55, 0.55])])
    PowerCheck(against='rows that sum to 1.1', noticed=2, trials=2)
    """
    runs: list[Any] = [x.item() if hasattr(x, "item") else x for x in passes]
    if not against.strip():
        raise errors.invalid("against", "what the check should reject", "an empty text")
    if not runs or not all(isinstance(x, bool) for x in runs):
        raise errors.invalid("passes", "True or False for each run", runs)
    return PowerCheck(against, runs.count(False), len(runs))


def least_power(checks: Sequence[PowerCheck]) -> float:
    """Return the power against the alternative that is noticed least often; ValueError if there are none.

    >>> least_power([PowerCheck("a", 3, 4), PowerCheck("b", 1, 4)])
    0.25
    """
    if not checks:
        raise errors.invalid("power", "at least one alternative that the check should reject", "none")
    return min(x.power for x in checks)

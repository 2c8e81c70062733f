"""Power: how often a check notices what it should reject."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from posbias import errors

ENOUGH = 0.5
"""Power below which a check that passed says no more than "not refuted"."""


@dataclass(frozen=True)
class Challenge:
    """A check, run on what it should reject.

    Parameters
    ----------
    against
        What was broken and by how much: a hypothesis dropped, a wrong exponent, a null.
    noticed, trials
        In how many of how many runs the check failed, as it should.
    """

    against: str
    noticed: int
    trials: int

    def __post_init__(self) -> None:
        if not self.against.strip():
            raise errors.invalid("against", "what the check should reject", "an empty text")
        errors.positive_integer("trials", self.trials)
        if not 0 <= self.noticed <= self.trials:
            raise errors.invalid("noticed", f"from 0 to {self.trials} runs", self.noticed)

    @property
    def power(self) -> float:
        """The share of runs in which the check noticed."""
        return self.noticed / self.trials

    def __str__(self) -> str:
        return f"{self.noticed}/{self.trials} {self.against}"


def challenge(against: str, passes: Iterable[Any]) -> Challenge:
    """Count how often a check notices what it should.

    Parameters
    ----------
    against
        What was broken and by how much.
    passes
        For each run on something broken, whether the check passed; it noticed where it did not. A run is the whole
        check with all its cases, as it stands beside a verdict.

    Raises
    ------
    ValueError
        If there is no run, or a run ended in something else than True or False.

    Source: statistical power, with "the check fails" for "the null hypothesis is rejected".

    >>> challenge("rows that sum to 1.1", [sum(row) == 1 for row in ([0.5, 0.6], [0.55, 0.55])])
    Challenge(against='rows that sum to 1.1', noticed=2, trials=2)
    """
    runs: list[Any] = [x.item() if hasattr(x, "item") else x for x in passes]
    if not all(isinstance(x, bool) for x in runs):
        raise errors.invalid("passes", "True or False for each run", runs)
    return Challenge(against, runs.count(False), len(runs))


def least_power(challenges: Sequence[Challenge]) -> float:
    """Return the power against the alternative that is noticed least often.

    Raises
    ------
    ValueError
        If there are none.

    >>> least_power([Challenge("a", 3, 4), Challenge("b", 1, 4)])
    0.25
    """
    if not challenges:
        raise errors.invalid("challenges", "at least one alternative that the check should reject", "none")
    return min(x.power for x in challenges)

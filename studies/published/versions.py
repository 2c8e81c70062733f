"""The two versions of the residual-aware paper, and what of it each of our copies is from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from posbias import errors

VERSIONS = {"v1": "2026-02-18", "v2": "2026-05-27"}
"""Versions of arXiv:2602.16837 with the day they were submitted."""


@dataclass(frozen=True)
class Mark:
    """Say what one of our copies has where the versions differ.

    Parameters
    ----------
    copy
        Which copy.
    what
        In what the versions differ.
    found
        What the copy has.
    v1, v2
        What the versions have.
    """

    copy: str
    what: str
    found: str
    v1: str
    v2: str

    @property
    def version(self) -> str:
        """The version whose text the copy has, or ``neither``."""
        return {self.v1: "v1", self.v2: "v2"}.get(self.found, "neither")


RESIDUAL, STRUCTURAL = "A Residual-Aware Theory …", "A Structural Theory …"
PROVES, INDUCES = "“prove that causal Transformers induce a U-shaped position bias”", "“broad, often U-shaped”"
RANKS, DISTANCES = "rank correlations and distances", "distances"

MARKS = tuple(
    Mark(copy, what, found, *versions)
    for copy, entries in {
        "text of the paper": (STRUCTURAL, INDUCES, DISTANCES),
        "README beside the files": (RESIDUAL, PROVES, RANKS),
    }.items()
    for what, found, versions in zip(
        ("title", "abstract on the U", "tables hold"),
        entries,
        ((RESIDUAL, STRUCTURAL), (PROVES, INDUCES), (RANKS, DISTANCES)),
        strict=True,
    )
)
"""What the text of the paper and the README of its repository at a514e09 have, from which our numbers are.

The versions' titles and abstracts are those of their entries on arXiv; what the tables hold is what the README says
of them in its state for each version.
"""

FIGURES_MADE = "2026-01-28"
"""Day on which the latest of the four figure files was made, by the date inside it."""


def versions_of(marks: Iterable[Mark]) -> dict[str, str]:
    """Return the version of each copy, ``undecided`` where its marks disagree or fit neither.

    >>> versions_of(MARKS)
    {'text of the paper': 'v2', 'README beside the files': 'v1'}
    """
    found: dict[str, set[str]] = {}
    for mark in marks:
        found.setdefault(mark.copy, set()).add(mark.version)
    if not found:
        raise errors.invalid("marks", "at least one", "none")
    known = {copy: versions & VERSIONS.keys() for copy, versions in found.items()}
    return {
        copy: versions.pop() if len(found[copy]) == 1 and versions else "undecided" for copy, versions in known.items()
    }


def one_misread(marks: Iterable[Mark]) -> Iterator[tuple[Mark, ...]]:
    """Yield the marks with one of them as the other version has it, in turn.

    >>> {versions_of(marks)["text of the paper"] for marks in one_misread(MARKS[:3])}
    {'undecided'}
    """
    marks = tuple(marks)
    for k, mark in enumerate(marks):
        other = mark.v2 if mark.found == mark.v1 else mark.v1
        yield (*marks[:k], replace(mark, found=other), *marks[k + 1 :])

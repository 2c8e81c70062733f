"""What the published configurations assume, and which version of the paper each of our copies is from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from pandas import DataFrame

from posbias.published import numbers
from posbias.rollout.logits import alibi_slopes, geometric_slopes

MOST_ODDS = 1e6
"""Cap of e^d, without which one head would be the mean."""


def slope_frame() -> DataFrame:
    """Return whether the slopes in each model's file are the geometric ones, and whether they are ALiBi's rule.

    One row for each model: label, heads, geometric (the file has 2^{-8h/H}) and rule (the file has what ALiBi's
    rule gives for H heads).

    >>> slope_frame().query("not rule")["label"].tolist()
    ['BLOOM-176B']
    """
    rows = []
    for name, described in numbers.MODELS.items():
        attention = numbers.config(name).attention_config
        H, in_file = attention.num_heads, np.array(attention.alibi_slopes)
        row = {"model": name, "label": described.label, "heads": H}
        row |= {"geometric": bool(np.allclose(in_file, geometric_slopes(H), rtol=1e-12))}
        rows.append(row | {"rule": bool(np.allclose(in_file, alibi_slopes(H), rtol=1e-12))})
    return pd.DataFrame(rows)


def content_frame() -> DataFrame:
    """Return the size of the diagonal content logits in each model's file.

    One row for each model: label, head_dim, mean (over layers and heads), magnitude (mean absolute value), scaled
    (magnitude over √head_dim, as the architectures have it) and odds (mean weight e^d of a token on itself against
    a key without content, capped at a million).
    """
    rows = []
    for name, described in numbers.MODELS.items():
        d = np.array(numbers.config(name).content_config.diagonal_scores)
        magnitude = float(np.abs(d).mean())
        odds = float(np.exp(np.minimum(d, np.log(MOST_ODDS))).mean())
        row = {"model": name, "label": described.label, "head_dim": described.head_dim, "mean": float(d.mean())}
        row |= {"magnitude": magnitude, "scaled": magnitude / described.head_dim**0.5, "odds": odds}
        rows.append(row)
    return pd.DataFrame(rows)


VERSIONS = {"v1": "2026-02-18", "v2": "2026-05-27"}
"""Versions of arXiv:2602.16837 with the day they were submitted."""


@dataclass(frozen=True)
class Mark:
    """Say what one of our copies has where the versions differ."""

    copy: str
    what: str  # In what the versions differ
    found: str  # What the copy has
    v1: str  # What the versions have
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

"""The claims ledger: every claim that the book covers, and what its chapters found."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

Verdict = Literal["proved", "reproduced", "consistent", "not refuted", "contradicted in part", "contradicted"]

VERDICTS: tuple[Verdict | Literal["open"], ...] = (*get_args(Verdict), "open")
"""What a row can be, from what says most for the claim to what says most against it, and a row without a check."""


@dataclass(frozen=True)
class Row:
    """A row of the ledger: a claim, the check that would fail if it were wrong, and the chapters that make it.

    ``source`` is RA, WU, LN, AP or RT for a paper, BI (untrained networks), DS (designed priors), X for what is new.
    """

    row: str
    source: str
    claim: str
    check: str
    chapters: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """The verdict of one chapter on one row of the claims ledger, or on a part of it.

    ``figure`` is what was measured, ``reason`` why the check did not pass, ``challenges`` each alternative with the
    runs in which it was noticed, and ``power`` the least share of them.
    """

    row: str
    verdict: Verdict
    figure: str
    reason: str
    fails_if: str
    power: float
    challenges: tuple[str, ...]
    part: str = ""
    post_hoc: bool = False
    chapter: str = ""

    def text(self) -> str:
        """Return the record in one line."""
        name = f"{self.row}, {self.part}" if self.part else self.row
        return f"{name} {self.verdict}: {self.measured()}. Fails if {self.fails_if}. Power: {self.powers()}."

    def markdown(self) -> str:
        """Return the record as Markdown for a chapter's page."""
        name = f"**{self.row}**" + (f", {self.part}" if self.part else "")
        lines = (f"{name}: **{self.verdict}**. {self.measured()}.", f"*Fails if* {self.fails_if}.")
        return " ".join((*lines, f"*Power:* {self.powers()}."))

    def measured(self) -> str:
        """Return what was measured, with the reason if the check did not pass."""
        mark = "; threshold set after the run" if self.post_hoc else ""
        return self.figure + (f" ({self.reason})" if self.reason else "") + mark

    def powers(self) -> str:
        """Return the alternatives with the runs in which each was noticed."""
        return "; ".join(self.challenges)


@dataclass(frozen=True)
class Status:
    """A row of the ledger, or a part of one, with the records that chapters made on it."""

    row: Row
    records: tuple[Record, ...]
    part: str = ""

    @property
    def verdict(self) -> str:
        """The record that speaks most against the claim decides; without a record it is open."""
        found = [record.verdict for record in self.records]
        return max(found, key=VERDICTS.index, default="open")

    @property
    def power(self) -> float:
        """The least power of its records; NaN without one."""
        return min((record.power for record in self.records), default=math.nan)

    @property
    def least_challenge(self) -> str:
        """In how many of how many runs its check noticed the alternative that it notices least often, as 19/20."""
        least = min(self.records, key=lambda record: record.power, default=None)
        if least is None:
            return ""
        counts = [challenge.split(" ", 1)[0] for challenge in least.challenges]
        return min(counts, key=Fraction)


@cache
def read_ledger() -> tuple[Row, ...]:
    """Return the rows of ``ledger.csv`` in their order."""
    text = files("bookkit").joinpath("ledger.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(Row(r["row"], r["source"], r["claim"], r["check"], tuple(r["chapter"].split())) for r in rows)


def check_row(row: str) -> None:
    """Raise ValueError, with the ledger's rows, unless it has one called ``row``."""
    known = [entry.row for entry in read_ledger()]
    if row not in known:
        raise ValueError(f"row: expected one of {', '.join(known)}, received {row!r}")


def status_table(records: Iterable[Record]) -> list[Status]:
    """Join the ledger with ``records``: every row, or every part of one, with all that chapters recorded on it."""
    found = list(records)
    for record in found:
        check_row(record.row)
    table = []
    for row in read_ledger():
        own = [record for record in found if record.row == row.row]
        parts = dict.fromkeys(record.part for record in own) or [""]
        table += [Status(row, tuple(x for x in own if x.part == part), part) for part in parts]
    return table


def by_power(table: Iterable[Status]) -> list[Status]:
    """Sort: the check that could least have failed first, open rows before all."""
    return sorted(table, key=lambda status: -1.0 if math.isnan(status.power) else status.power)


def count_verdicts(table: Iterable[Status]) -> dict[str, int]:
    """Count the rows of each verdict, in the order of :data:`VERDICTS`."""
    counts = Counter(status.verdict for status in table)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def status_markdown(table: Sequence[Status], titles: Mapping[str, str]) -> str:
    """Return verdicts with their power as a Markdown table; chapters in ``titles``, by stem, are linked."""
    lines = ["| row | verdict | power | measured | chapter |", "|:--|:--|--:|:--|:--|"]
    for status in table:
        name = f"`{status.row.row}`" + (f" {status.part}" if status.part else "")
        found = [_found(record, several=len(status.records) > 1) for record in status.records]
        stems = list(dict.fromkeys(record.chapter for record in status.records)) or status.row.chapters
        links = ", ".join(_link(stem, titles) for stem in stems)
        cells = [name, f"**{status.verdict}**", status.least_challenge, "<br>".join(found), links]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def claims_markdown(table: Iterable[Status], titles: Mapping[str, str]) -> str:
    """Return the claims with their checks as a Markdown table, each row of the ledger once."""
    lines = ["| row | claim | check | chapters |", "|:--|:--|:--|:--|"]
    for row in dict.fromkeys(status.row for status in table):
        links = ", ".join(_link(stem, titles) for stem in row.chapters)
        cells = (f"`{row.row}`", _literal(row.claim), _literal(row.check), links)
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _link(stem: str, titles: Mapping[str, str]) -> str:
    return f"[{titles[stem]}]({stem}.ipynb)" if stem in titles else f"`{stem}`"


def _found(record: Record, *, several: bool) -> str:
    where = f"`{record.chapter}` {record.verdict}: " if several else ""
    return f"{where}{record.measured()}. *Fails if* {record.fails_if}. *Noticed:* {record.powers()}."


def _literal(text: str) -> str:
    """Escape what Markdown would read as markup: a claim is plain text."""
    return re.sub(r"([\\`*_\[\]{}<>$~^])", r"\\\1", text)


def _cell(text: str) -> str:
    """Keep a text inside its cell of the table."""
    return " ".join(text.split()).replace("|", "\\|")

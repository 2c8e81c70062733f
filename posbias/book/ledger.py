"""The claims ledger: every claim that the book covers, and what its chapters found."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

VERDICTS = ("holds", "reproduced", "deviates", "open")
"""What a row can be, from a check that passed to one that no chapter has made yet."""


@dataclass(frozen=True)
class Row:
    """A row of the ledger: a claim, the check that would fail if it were wrong, and where it is made.

    Parameters
    ----------
    row
        Its id, such as ``RA-P4.2``.
    source
        The paper it is from: RA, WU, LN, AP, or X for what goes beyond them.
    claim, check
        In words.
    chapters
        Stems of the chapters that check it.
    """

    row: str
    source: str
    claim: str
    check: str
    chapters: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """The verdict of one chapter on one row of the claims ledger.

    Parameters
    ----------
    row
        Id of the row, such as ``RA-P4.2``.
    verdict
        ``holds``, ``reproduced`` (a published number met to its printed digits) or ``deviates``.
    figure
        What was measured, in a few words with its number.
    reason
        Why it deviates; empty otherwise.
    chapter
        Stem of the chapter that says so.
    """

    row: str
    verdict: Literal["holds", "reproduced", "deviates"]
    figure: str
    reason: str
    chapter: str


@dataclass(frozen=True)
class Status:
    """A row of the ledger with the records that chapters made on it."""

    row: Row
    records: tuple[Record, ...]

    @property
    def verdict(self) -> str:
        """The row's verdict: one record that deviates decides, and a row without a record is open."""
        verdicts = {record.verdict for record in self.records}
        return next((verdict for verdict in ("deviates", "reproduced", "holds") if verdict in verdicts), "open")


@cache
def read_ledger() -> tuple[Row, ...]:
    """Return the rows of ``ledger.csv`` in their order."""
    text = files("posbias.book").joinpath("ledger.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(Row(r["row"], r["source"], r["claim"], r["check"], tuple(r["chapter"].split())) for r in rows)


def check_row(row: str) -> None:
    """Raise ValueError, listing the ledger's rows, unless it has one called ``row``."""
    known = [entry.row for entry in read_ledger()]
    if row not in known:
        raise ValueError(f"row: expected one of {', '.join(known)}, received {row!r}")


def status_table(records: Iterable[Record]) -> list[Status]:
    """Join the ledger with ``records``: every row once, with all that chapters recorded on it.

    Raises
    ------
    ValueError
        If a record names a row that the ledger does not have.
    """
    by_row: dict[str, list[Record]] = {}
    for record in records:
        check_row(record.row)
        by_row.setdefault(record.row, []).append(record)
    return [Status(row, tuple(by_row.get(row.row, ()))) for row in read_ledger()]


def count_verdicts(table: Iterable[Status]) -> dict[str, int]:
    """Count the rows of each verdict, in the order of :data:`VERDICTS`."""
    counts = Counter(status.verdict for status in table)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def status_markdown(table: Sequence[Status], titles: Mapping[str, str]) -> str:
    """Return the status table as Markdown, chapters in ``titles`` (stem to title) linked.

    Parameters
    ----------
    table
        What :func:`status_table` returns, or some rows of it.
    titles
        Title of each chapter that the book has; others are named by their stem.
    """
    lines = ["| row | claim | verdict | measured | chapter |", "|:--|:--|:--|:--|:--|"]
    for status in table:
        found = [_found(record, several=len(status.records) > 1) for record in status.records]
        links = [f"[{titles[stem]}]({stem}.ipynb)" if stem in titles else f"`{stem}`" for stem in status.row.chapters]
        claim = f"{_literal(status.row.claim)}. *Check:* {_literal(status.row.check)}"
        cells = [f"`{status.row.row}`", claim, f"**{status.verdict}**", "<br>".join(found), ", ".join(links)]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _found(record: Record, *, several: bool) -> str:
    where = f"`{record.chapter}` {record.verdict}: " if several else ""
    return f"{where}{record.figure}" + (f" ({record.reason})" if record.reason else "")


def _literal(text: str) -> str:
    """Escape what Markdown would read as markup: a claim is plain text."""
    return re.sub(r"([\\`*_\[\]{}<>$~^])", r"\\\1", text)


def _cell(text: str) -> str:
    """Keep a text inside its cell of the table."""
    return " ".join(text.split()).replace("|", "\\|")

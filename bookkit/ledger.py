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

Verdict = Literal[
    "proved", "reproduced", "consistent", "not refuted", "vacuous", "contradicted in part", "contradicted"
]

VERDICTS: tuple[Verdict | Literal["open"], ...] = (*get_args(Verdict), "open")
"""What a row can be, from what says most for the claim to what says most against it, and a row without a check."""

STANDINGS = ("stands", "in part", "fails", "not refuted", "vacuous", "open")
"""What the table at the head of the status page counts."""

PLAIN = {
    **dict.fromkeys(("proved", "reproduced", "consistent"), "stands"),
    "contradicted in part": "in part",
    "contradicted": "fails",
}
"""The plain words for a verdict; the others are called there what they are."""

ORIGINS = {
    "RA": "RA, Herasimchyk et al.",
    "WU": "WU, Wu et al.",
    "LN": "LN, Kim et al.",
    "AP": "AP, Ruscio et al.",
    "others": "other papers",
    "ours": "ours",
}
"""Where a claim is from, and what the status page calls that."""


@dataclass(frozen=True)
class Row:
    """A row of the ledger: a claim, the check that would fail if it were wrong, and the chapters that make it.

    ``source`` is what its name begins with: RA, WU, LN or AP for a paper, else a subject. ``headline`` is the claim in
    one plain sentence if it is among the most important ones of its origin, empty otherwise.
    """

    row: str
    source: str
    claim: str
    check: str
    chapters: tuple[str, ...]
    headline: str = ""

    @property
    def origin(self) -> str:
        """Whose claim it is, one of :data:`ORIGINS`."""
        if self.claim.startswith("(ours)"):
            return "ours"
        return self.source if self.source in ORIGINS else "others"


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
        """Return the record as Markdown for a chapter's notebook; its page has :func:`line_markdown`."""
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
    def standing(self) -> str:
        """The verdict in plain words, one of :data:`STANDINGS`."""
        return PLAIN.get(self.verdict, self.verdict)

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
    return tuple(
        Row(r["row"], r["source"], r["claim"], r["check"], tuple(r["chapter"].split()), r["headline"] or "")
        for r in rows
    )


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


def anchor(row: str, part: str) -> str:
    """Return the name of a line's place on the status page.

    >>> anchor("RA-P4.3", "printed proof: incomplete")
    'ra-p4-3-printed-proof-incomplete'
    """
    return re.sub(r"[^a-z0-9]+", "-", f"{row} {part}".lower()).strip("-")


def headlines_markdown(table: Sequence[Status], titles: Mapping[str, str]) -> str:
    """Return the ledger's headlines by origin, each with all verdicts on its row, as Markdown lists."""
    lines = []
    for origin, name in ORIGINS.items():
        lines += ["", f"**{name}**", ""]
        for row in [row for row in read_ledger() if row.headline and row.origin == origin]:
            verdicts = _verdicts([status for status in table if status.row == row])
            lines.append(f"- {_literal(row.headline)} {verdicts}. ({_links(row.chapters, titles)})")
    return "\n".join(lines).strip()


def _verdicts(own: Sequence[Status]) -> str:
    """Return the verdicts on a row, what says most for it first, with the parts of the row that each is on."""
    texts = []
    for verdict in VERDICTS:
        found = [status for status in own if status.verdict == verdict]
        names = [_jump(status.row.row, status.part, _literal(status.part)) for status in found if status.part]
        if found:
            word = f"**{verdict}**" if names else f"**{_jump(found[0].row.row, '', verdict)}**"
            texts.append(word + (f" ({'; '.join(names)})" if names else ""))
    return ", ".join(texts)


def status_markdown(table: Sequence[Status], titles: Mapping[str, str]) -> str:
    """Return the lines as a Markdown table, with how each was tested; chapters in ``titles``, by stem, are linked."""
    lines = ["| source | claim | verdict | what was found |", "|:--|:--|:--|:--|"]
    for status in table:
        row = status.row
        name = f"`{row.row}`" + (f", {_literal(status.part)}" if status.part else "")
        stems = list(dict.fromkeys(record.chapter for record in status.records)) or row.chapters
        claim = f'<a id="{anchor(row.row, status.part)}"></a>{name}<br>{_literal(row.claim)}<br>{_links(stems, titles)}'
        verdict = f"**{status.verdict}**<br>{status.least_challenge}"
        found = "<br>".join(record.measured() for record in status.records)
        cells = [
            row.origin,
            claim,
            verdict,
            f"{found}<details><summary>How it was tested</summary>{_how(status)}</details>",
        ]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _how(status: Status) -> str:
    """Return what was done to test a line, what would have made it fail, and what the check noticed."""
    said = [f"*Fails if* {record.fails_if}. *Noticed:* {record.powers()}." for record in status.records]
    return "<br>".join([f"{_literal(status.row.check)}.", *said])


def line_markdown(row: str, part: str, verdict: str) -> str:
    """Return a record in one line for a chapter's page: claim, verdict, and a link to how it was tested."""
    claim = next(entry.claim for entry in read_ledger() if entry.row == row).removeprefix("(ours) ")
    named = _literal(claim[0].upper() + claim[1:])
    what = f"{named}; {_literal(part)}" if part else named
    return f"*Claim.* {what} – **{verdict}** – {_jump(row, part, 'how it was tested', page='status.html')}"


def _jump(row: str, part: str, text: str, page: str = "") -> str:
    """Return a link to a line's place on the status page: plain HTML, for no parser knows places inside a table."""
    return f'<a href="{page}#{anchor(row, part)}">{text}</a>'


def _links(stems: Iterable[str], titles: Mapping[str, str]) -> str:
    """Return the chapters' titles as links; a chapter without a title is named."""
    return ", ".join(f"[{titles[stem]}]({stem}.ipynb)" if stem in titles else f"`{stem}`" for stem in stems)


def _literal(text: str) -> str:
    """Escape what Markdown would read as markup: a claim is plain text, but for formulas between dollars."""
    pieces = re.split(r"(\$[^$]+\$)", text)
    pieces[::2] = [re.sub(r"([\\`*_\[\]{}<>$~^])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces)


def _cell(text: str) -> str:
    """Keep a text inside its cell of the table."""
    return " ".join(text.split()).replace("|", "\\|")

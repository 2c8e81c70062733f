"""The claims ledger: every claim that the book covers, and what its chapters found."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any, Literal, get_args

Verdict = Literal[
    "proved", "reproduced", "consistent", "not refuted", "vacuous", "undecided", "contradicted in part", "contradicted"
]

VERDICTS: tuple[Verdict | Literal["open"], ...] = (*get_args(Verdict), "open")
"""What a row can be, from what says most for the claim to what says most against it, and a row without a check."""

PLAIN = {
    **dict.fromkeys(("proved", "reproduced", "consistent"), "holds"),
    **dict.fromkeys(("not refuted", "vacuous", "undecided"), "open"),
    "contradicted in part": "holds in part",
    "contradicted": "fails",
    "open": "not checked",
}
"""What a verdict counts as."""

ORIGINS = {
    "RA": "Herasimchyk et al.",
    "WU": "Wu et al.",
    "LN": "Kim et al.",
    "AP": "Ruscio et al.",
    "others": "other papers",
    "ours": "this book",
}
"""Where a claim is from, and what the status page calls that."""

PREFIX = re.compile(r"\((ours|others)\) ")
"""What a claim begins with if it is from elsewhere than the paper that its row is named after."""


@dataclass(frozen=True)
class Row:
    """A row of the ledger: a claim, the check that would fail if it were wrong, and the chapters that make it.

    ``source`` is what its name begins with: RA, WU, LN or AP for a paper, else a subject. ``ours`` has those parts that
    no paper claims: constants, extensions and explanations of this book.
    """

    row: str
    source: str
    claim: str
    check: str
    chapters: tuple[str, ...]
    ours: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """Whose claim it is, one of :data:`ORIGINS`."""
        if said := PREFIX.match(self.claim):
            return said[1]
        return self.source if self.source in ORIGINS else "others"

    @property
    def sentence(self) -> str:
        """The claim as a page prints it: without a prefix, with a capital letter, without a full stop."""
        claim = PREFIX.sub("", self.claim, count=1)
        return claim[0].upper() + claim[1:]


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
        """What the verdict counts as, one of :data:`PLAIN`."""
        return PLAIN[self.verdict]

    @property
    def origin(self) -> str:
        """Whose claim the line is: that of its row, or ours for a part that no paper claims."""
        return "ours" if self.part in self.row.ours else self.row.origin

    @property
    def post_hoc(self) -> bool:
        """Whether a threshold of one of its checks was set after the run."""
        return any(record.post_hoc for record in self.records)

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
        Row(
            *(r["row"], r["source"], r["claim"], r["check"], tuple(r["chapter"].split())),
            ours=tuple(filter(None, (r["ours"] or "").split("; "))),
        )
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
        for part in dict.fromkeys(record.part for record in own) or [""]:
            table.append(Status(row, tuple(x for x in own if x.part == part), part))
    return table


def by_source(table: Iterable[Status]) -> list[Status]:
    """Sort by whose claim a row is, in the order of :data:`ORIGINS`; the parts of a row stay together."""
    origins = list(ORIGINS)
    return sorted(table, key=lambda status: origins.index(status.row.origin))


def anchor(row: str, part: str) -> str:
    """Return the name of a line's place on the status page.

    >>> anchor("RA-P4.3", "printed proof: incomplete")
    'ra-p4-3-printed-proof-incomplete'
    """
    return re.sub(r"[^a-z0-9]+", "-", f"{row} {part}".lower()).strip("-")


def overall(verdicts: Collection[str]) -> str:
    """Return one word for a claim with several parts: that of the part that fares worst, if not all do, *in part*.

    >>> overall(["proved", "consistent"]), overall(["consistent", "undecided"]), overall(["contradicted"])
    ('consistent', 'undecided in part', 'contradicted')
    """
    worst = max(verdicts, key=VERDICTS.index)
    whole = PLAIN[worst] in ("holds", "holds in part") or {*verdicts} == {worst}
    return worst if whole else f"{worst} in part"


def headlines_markdown(table: Sequence[Status], titles: Mapping[str, str], glued: Mapping[str, Any]) -> str:
    """Return the claims of ``headlines.csv``: verdict, claim, what was seen (with glued numbers), margin and where.

    A head is about the parts that it names, or about its whole row; a dagger marks a threshold set after the run. The
    margin of a claim that things do not differ is an interval or a tolerance.
    """
    lines = []
    for head in csv.DictReader(files("bookkit").joinpath("headlines.csv").read_text(encoding="utf-8").splitlines()):
        own = [x for x in table if x.row.row == head["row"] and x.origin == x.row.origin]
        own = [x for x in own if x.part in head["parts"].split("; ")] or own
        worst = max(own, key=lambda x: VERDICTS.index(x.verdict))
        mark = "†" if any(x.post_hoc for x in own) else ""
        word = overall([x.verdict for x in own]).capitalize()
        verdict = _jump(head["row"], worst.part, word)
        stems = dict.fromkeys(record.chapter for x in own for record in x.records) or own[0].row.chapters
        said = f"{_literal(head['headline'])}<br>*Seen:* {_literal(head['seen'].format_map(glued))}"
        margin = f"<br>*Margin:* {_literal(head['margin'].format_map(glued))}" if head["margin"] else ""
        lines.append(f"1. **{verdict}**{mark}. *Claim:* {said}{margin} ({_links(stems, titles)})")
    return "\n".join(lines)


def shared_ending(parts: Sequence[str]) -> str:
    """Return what all of several parts end with after a comma, so that it is printed once.

    >>> shared_ending(["depth, 10% of the steps, 3 seeds", "ends, 10% of the steps, 3 seeds"])
    ', 10% of the steps, 3 seeds'
    >>> shared_ending(["one setting"])
    ''
    """
    pieces = [part.split(", ")[1:] for part in parts]
    ending: list[str] = []
    while len(parts) > 1 and len({tuple(x[-len(ending) - 1 :]) for x in pieces}) == 1 and len(pieces[0]) > len(ending):
        ending = pieces[0][-len(ending) - 1 :]
    return "".join(f", {piece}" for piece in ending)


def status_markdown(table: Sequence[Status], titles: Mapping[str, str]) -> str:
    """Return the lines as a Markdown table, with how each was tested; chapters in ``titles``, by stem, are linked.

    A claim with several parts has a row of its own above them, with the test that they share and without a verdict.
    """
    lines = ["| source | claim | verdict | reason and test |", "|:--|:--|:--|:--|"]
    for row, group in groupby(table, key=lambda status: status.row):
        own = list(group)
        shared = shared_ending([status.part for status in own])
        stems = dict.fromkeys(record.chapter for status in own for record in status.records) or row.chapters
        claim = f"{_stop(_literal(row.sentence + shared))}<br>`{row.row}`: {_links(stems, titles)}"
        test = f"*Test:* {_stop(_literal(row.check))}"
        if len(own) > 1:
            lines.append(_line(ORIGINS[row.origin], claim, "", test))
            test = ""
        for status in own:
            place = f'<a id="{anchor(row.row, status.part)}"></a>'
            part = _literal(status.part.removesuffix(shared))
            if len(own) > 1:
                named = f"– {part}"
            else:
                named = f"{claim}<br>– {part}" if part else claim
            verdict = f"**{status.verdict}**"
            if status.records:
                verdict += f"<br>noticed {status.least_challenge}"
            if status.post_hoc:
                verdict += "<br>threshold set after the run"
            lines.append(_line(ORIGINS[status.origin], place + named, verdict, _reason(status) + _how(status, test)))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _reason(status: Status) -> str:
    """Return why a check did not pass."""
    found = [record.reason for record in status.records if record.reason]
    return "<br>".join(_stop(x[0].upper() + x[1:] if x[0].isascii() else x) for x in found)


def _how(status: Status, test: str) -> str:
    """Return how a line was tested, what was found, what would have made it fail, and what the check noticed."""
    if not status.records:
        return test
    said = [
        f"*Found:* {_stop(x.figure)} *Fails if* {_stop(x.fails_if)} *Noticed:* {_stop(x.powers())}"
        for x in status.records
    ]
    inside = "<br>".join([test, *said] if test else said)
    return f"<details><summary>What was found, and how</summary>{inside}</details>"


def _stop(text: str) -> str:
    """End a sentence with a full stop."""
    return text if text.endswith((".", "?")) else f"{text}."


def line_markdown(row: str, part: str, verdict: str) -> str:
    """Return a record in one line for a chapter's page: claim, verdict, and a link to how it was tested."""
    claim = _literal(next(entry.sentence for entry in read_ledger() if entry.row == row))
    on = f" ({_literal(part)})" if part else ""
    how = _jump(row, part, "how it was tested")
    return f"*Claim.* {_stop(claim)} *Verdict{on}:* **{verdict}** – {how}"


def _jump(row: str, part: str, text: str) -> str:
    """Return a link to a line's place in the list: plain HTML, for no parser knows places inside a table."""
    return f'<a href="verdicts.html#{anchor(row, part)}">{text}</a>'


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

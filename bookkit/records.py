"""What a chapter leaves behind: numbers that its prose quotes, and a verdict for each claim it checked."""

from __future__ import annotations

import ast
import json
import math
import numbers
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from bookkit.chapters import list_stems
from bookkit.ledger import Record, Verdict, anchor, check_row
from bookkit.power import ENOUGH, PowerCheck, least_power, power_check
from posbias import errors
from studies.checks import Check

KEY = "posbias_record"
"""Where an output's metadata carries a record: Sphinx warns about outputs of a type it does not know."""
FIELDS = ("row", "verdict", "figure", "reason", "fails_if", "power", "challenges", "part", "set_after")
"""What a record is called there: notebooks keep these names; ``set_after`` is ``post_hoc`` in the code."""
KINDS = ("consistent", "proved", "reproduced")
"""What a check that passed may be called."""
MADE: dict[tuple[str, str], Record] = {}
"""Verdicts that were recorded in this process, by row and part."""
DIGITS = 6
"""Significant digits of a glued number: enough for prose, few enough to agree between machines."""


def rounded(value: Any) -> Any:
    """Return a number as a plain Python one with 6 significant digits, anything else as it is.

    A number that is not finite is a ValueError: prose must not quote it.

    >>> rounded(2 / 3), rounded(12345678.0), rounded(7)
    (0.666667, 12345700.0, 7)
    """
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:  # a numpy scalar
        value = item()
    if not isinstance(value, numbers.Real) or isinstance(value, bool | int):
        return value
    if not math.isfinite(value):
        raise ValueError(f"value: expected a finite number, received {value}")
    return float(f"{float(value):.{DIGITS}g}")


def glue(**values: Any) -> None:
    """Keep ``values`` under their names for the prose: ``{glue:text}`name:.2f```; numbers are :func:`rounded`."""
    import myst_nb

    for name, value in values.items():
        myst_nb.glue(name, rounded(value), display=False)


def record(
    row: str,
    passed: Any,
    figure: str,
    *,
    fails_if: str,
    power: Sequence[PowerCheck],
    kind: str = "consistent",
    part: str = "",
    reason: str | None = None,
    in_part: Any = False,
    undecided: Any = False,
    post_hoc: bool = False,
) -> None:
    """Enter a verdict on a row of the claims ledger, and show it in the notebook: its page has one line of it.

    ``figure`` is what was measured, in a few words with its rounded number; ``fails_if`` continues "fails if";
    ``power`` is the same check, run on what it should reject (:func:`bookkit.power.power_check`); ``reason`` says why a
    check did not pass, and is required then; ``in_part`` that this contradicts the claim in part only. ``part`` is the
    part of the row, where parts fare differently: they stand on lines of their own. ``post_hoc`` marks a threshold that
    was set after its run.

    ``kind`` is what a check that passed may be called: ``consistent``, ``proved`` (by a proof in the text, whose steps
    were checked) or ``reproduced`` (a published number met to its printed digits). A check that passed with power below
    1/2 is ``not refuted`` instead of consistent, and ``vacuous`` instead of either or of reproduced if it noticed none
    of its alternatives in any run; a proof carries a statement whatever its check notices. ``undecided`` says that a
    check that passed did not find the claim either, because the measurement was too noisy.
    """
    from IPython.display import display

    check_row(row)
    passed, in_part, noisy = _truth("passed", passed), _truth("in_part", in_part), _truth("undecided", undecided)
    if kind not in KINDS:
        raise errors.invalid("kind", ", ".join(KINDS), kind)
    for field, text in (("figure", figure), ("fails_if", fails_if)):
        if not text.strip():
            raise errors.invalid(f"{row}: {field}", "a text", "an empty one")
    if not passed and not (reason and reason.strip()):
        raise errors.invalid(f"{row}: reason", "why the check did not pass", f"none; measured: {figure}")
    least = least_power(power)
    verdict: Verdict = "undecided" if passed and noisy else _verdict(passed, kind, in_part, power)
    reason = "" if passed or reason is None else reason
    entry = Record(row, verdict, figure, reason, fails_if, least, tuple(map(str, power)), part, post_hoc)
    kept = dict(zip(FIELDS, vars(entry).values(), strict=False))
    MADE[row, part] = entry
    display(
        {"text/plain": entry.text(), "text/markdown": entry.markdown()},
        raw=True,
        metadata={KEY: {**kept, "challenges": list(entry.challenges)}},
    )


def show_verdicts(lines: Sequence[tuple[str, str, str, str]], *, fold: str | None = None) -> None:
    """Show every verdict that was recorded in this process in one table, for a page that does not show each record.

    A line is row, part, the claim and what was found, in Markdown; ``fold`` is the title of a box around the table.
    A record without a line, or a line without a record, is a ValueError: nothing that was judged may be missing.

    >>> MADE.clear()
    >>> show_verdicts([("WU-H", "statement", "The peak moves.", "It does.")])
    Traceback (most recent call last):
        ...
    ValueError: lines: expected one for each record, received WU-H, statement
    """
    from IPython.display import display

    listed = [(row, part) for row, part, *_ in lines]
    if odd := set(listed) ^ set(MADE):
        raise ValueError(f"lines: expected one for each record, received {', '.join(min(odd)).strip(', ')}")
    text, rows = [], ["| claim | here | verdict |", "|:--|:--|:--|"]
    for row, part, claim, found in lines:
        verdict, name = MADE[row, part].verdict, ", ".join(filter(None, (row, part)))
        link = f'<a href="verdicts.html#{anchor(row, part)}">test</a>'
        text.append(f"{name} {verdict}: {claim} {found}")
        rows.append(f"| {claim} | {found} | **{verdict}** – {link} |")
    shown = [f":::{{dropdown}} {fold}", *rows, ":::"] if fold else rows
    display({"text/plain": "\n".join(text), "text/markdown": "\n".join(shown)}, raw=True)


def record_checks(checks: Iterable[Check]) -> list[tuple[str, str, str, str]]:
    """Enter the verdicts of a study's checks, and return their lines for :func:`show_verdicts`."""
    lines = []
    for check in checks:
        power = [power_check(what, runs) for what, runs in check.broken.items()]
        record(check.row, check.passed, check.figure, power=power, **check.about)
        lines.append((check.row, check.part, check.said, check.brief or check.figure))
    return lines


def _truth(field: str, value: Any) -> bool:
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, bool):
        raise errors.invalid(field, "True or False", repr(value))
    return value


def _verdict(passed: bool, kind: str, in_part: bool, power: Sequence[PowerCheck]) -> Verdict:
    """Return the word for a check: what passed says no more than its power allows, unless a proof carries it."""
    if not passed:
        return "contradicted in part" if in_part else "contradicted"
    if kind != "proved" and not any(check.noticed for check in power):
        return "vacuous"
    return "not refuted" if kind == "consistent" and least_power(power) < ENOUGH else cast(Verdict, kind)


def read_records(root: Path) -> list[Record]:
    """Read the records in the outputs of the notebooks of a book, in the order of its chapters."""
    found = []
    for stem, output in _outputs(root):
        if kept := output.get("metadata", {}).get(KEY):
            values = {**kept, "challenges": tuple(kept["challenges"])}
            found.append(replace(Record(*[values[field] for field in FIELDS]), chapter=stem))
    return found


def read_glued(root: Path) -> dict[str, Any]:
    """Read what the notebooks of a book glued, by name."""
    found = {}
    for _, output in _outputs(root):
        if name := output.get("metadata", {}).get("scrapbook", {}).get("name"):
            found[name] = ast.literal_eval("".join(output["data"]["application/papermill.record/text/plain"]))
    return found


def _outputs(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the outputs of the notebooks of a book with their chapters, in order."""
    for stem in list_stems(root):
        path = root / "notebooks" / f"{stem}.ipynb"
        if not path.is_file():
            continue
        try:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        except (KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"{path.name}: expected a notebook, received {error}") from None
        for cell in cells:
            yield from ((stem, output) for output in cell.get("outputs", []))


if "ipykernel" in sys.modules:  # a chapter that runs: its figures are kept as text too
    from bookkit.figuretext import describe_when_shown

    describe_when_shown()

"""Whether two outputs of a cell agree: words and integers exactly, other numbers within a tolerance.

Processors differ in the last digits of a sum, so outputs are compared as numbers. What a number may differ by
belongs to the quantity: a cell whose numbers are known less well (from 32-bit arithmetic, from training) says so
in its metadata, ``tolerance: {rtol: 0.01}``. A figure is compared by its description
(:func:`bookkit.figuretext.describe`), and its picture counts as equal where that is.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from bookkit.records import KEY

if TYPE_CHECKING:
    from nbformat import NotebookNode

NUMBER = re.compile(r"(?<![\w.])([-+−]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?!\w|\.\d)")
"""A number that is no part of a word or of a version; its sign may be typeset."""
UNCOMPARED = "nbval-ignore-output"
"""The tag, nbval's own, of cells whose outputs belong to the machine."""
NOISE = Decimal("1e-12")
"""What a number may be where it is zero elsewhere."""
DRAWN = 2e-3
"""What a figure may differ by: the limits of an axis relatively, points in parts of the axes' size."""


@dataclass(frozen=True)
class Tolerance:
    """Hold what two printed numbers may differ by and still be the same."""

    rtol: float = 2e-5  # Of the larger of the two: what a rounding of glued numbers, of six digits, can shift by
    atol: float = 0.0
    places: int = 0
    """Units of its last printed place by which a number may differ where that is more; 1 where a cell states a
    tolerance, since a value near the middle between two printed ones can become either."""

    def holds(self, expected: str, received: str) -> bool:
        """Say whether two numbers, as printed, agree: two integers exactly, others within the tolerance.

        >>> Tolerance().holds("0.123456", "0.123457"), Tolerance().holds("0.123", "0.124")
        (True, False)
        >>> Tolerance(rtol=1e-3, places=1).holds("0.123", "0.124"), Tolerance(rtol=0.9).holds("2", "3")
        (True, False)
        """
        a, b = (Decimal(number.replace("−", "-")) for number in (expected, received))
        if a == b:
            return True
        if re.fullmatch(r"[-+−]?\d+", expected) and re.fullmatch(r"[-+−]?\d+", received):
            return False
        noise = Decimal(0) if a and b else NOISE  # a difference that vanishes here need not vanish elsewhere
        place = self.places * min(_place(a), _place(b))
        return abs(a - b) <= max(Decimal(self.atol), Decimal(self.rtol) * max(abs(a), abs(b)), place, noise)


EXACT_DIGITS = Tolerance()
"""The tolerance of a cell that states none: numbers from 64-bit arithmetic."""


def _place(number: Decimal) -> Decimal:
    """Return one unit of the last printed place: 0.01 for ``1.25``, 1e-9 for ``2.5e-08``."""
    return Decimal(1).scaleb(int(number.as_tuple().exponent))


def disagreement(expected: str, received: str, tolerance: Tolerance = EXACT_DIGITS) -> str:
    """Return where two texts differ, or "" if they agree; blanks between words may differ in number.

    >>> disagreement("W1 0.1234567 in 7 layers", "W1  0.1234568 in 7 layers")
    ''
    >>> disagreement("W1 0.1234567 in 7 layers", "W1 0.1235801 in 7 layers")
    'expected W1 0.1234567, received W1 0.1235801'
    """
    parts = [NUMBER.split(text) for text in (expected, received)]
    for i, (a, b) in enumerate(zip_longest(*parts, fillvalue="")):
        words = i % 2 == 0
        if _words(a) == _words(b) if words else a and b and tolerance.holds(a, b):
            continue
        before = "" if words else parts[0][i - 1][-40:]
        return f"expected {_short(f'{before} {a}')}, received {_short(f'{before} {b}')}"
    return ""


def _words(text: str) -> list[list[str]]:
    """Return the words of each line: how many blanks are between them depends on the widths of numbers."""
    return [line.split() for line in text.split("\n")]


def _short(text: str) -> str:
    line = " ".join(text.split()) or "nothing"
    return line if len(line) <= 100 else f"{line[:97]}..."


def cell_tolerance(cell: NotebookNode) -> Tolerance:
    """Return the tolerance that a cell's metadata state, or :data:`EXACT_DIGITS`; ValueError for one that is none."""
    stated = cell.metadata.get("tolerance")
    if stated is None:
        return EXACT_DIGITS
    fields = stated if isinstance(stated, Mapping) else {}
    known = fields and set(fields) <= {"rtol", "atol"}
    if not known or not all(isinstance(v, int | float) and 0 <= v < 1 for v in fields.values()):
        raise ValueError(f"{cell.get('id')}: tolerance: expected rtol and atol, from 0 to 1, received {stated!r}")
    return replace(EXACT_DIGITS, **{name: float(v) for name, v in fields.items()}, places=1)


def outputs_disagreement(expected: Sequence[Mapping], received: Sequence[Mapping], tolerance: Tolerance) -> str:
    """Return where two lists of a cell's outputs differ, or "" if they agree; figures have :data:`DRAWN` or more."""
    ours, theirs = list(_texts(expected)), list(_texts(received))
    if [kind for kind, _ in ours] != [kind for kind, _ in theirs]:
        expected_kinds = ", ".join(kind for kind, _ in ours) or "none"
        received_kinds = ", ".join(kind for kind, _ in theirs) or "none"
        return f"expected outputs {expected_kinds}, received {received_kinds}"
    for (kind, a), (_, b) in zip(ours, theirs, strict=True):
        drawn = kind.startswith("figure")
        found = _drawn_disagreement(a, b, tolerance) if drawn else disagreement(a, b, tolerance)
        if found:
            return f"{kind}: {found}"
    return ""


def _texts(outputs: Sequence[Mapping]) -> Iterator[tuple[str, str]]:
    """Yield kind and text of all that an output says; neighbouring pieces of one stream are one text."""
    for kind, group in groupby(outputs, key=lambda output: output.get("name") or ""):
        if kind:
            yield kind, "".join("".join(output["text"]) for output in group)
        else:
            for output in group:
                yield from _shown(output)


def _shown(output: Mapping) -> Iterator[tuple[str, str]]:
    if output["output_type"] == "error":
        yield "error", f"{output['ename']}: {output['evalue']}"
        return
    data, metadata = output["data"], output.get("metadata", {})
    name = metadata.get("scrapbook", {}).get("name")
    pictures = sorted(mime for mime in data if mime.startswith("image/"))
    described = str(data.get("text/plain", "")).startswith("figure ")
    for mime, content in sorted(data.items()):
        text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
        if mime == "text/plain" and pictures:
            yield f"figure, {', '.join(pictures)}", text
        elif mime not in pictures or not described:
            yield f"glued {name}" if name else mime, text
    if KEY in metadata:
        yield "record", "; ".join(f"{key}: {value}" for key, value in sorted(metadata[KEY].items()))


def _drawn_disagreement(expected: str, received: str, tolerance: Tolerance) -> str:
    """Compare descriptions of figures: names as any text; limits relatively, points in parts of their axes."""
    limits = replace(tolerance, rtol=max(DRAWN, tolerance.rtol), places=1)
    points = replace(tolerance, atol=max(DRAWN, tolerance.rtol, tolerance.atol), places=1)
    for a, b in zip_longest(expected.splitlines(), received.splitlines(), fillvalue=""):
        ours, theirs = (line.rpartition(": ") if line.startswith("  ") else (line, "", "") for line in (a, b))
        drawn = limits if re.match(r"  [xy]-axis ", a) else points
        found = disagreement(ours[0], theirs[0], tolerance) or disagreement(ours[2], theirs[2], drawn)
        if found:
            return f"{_short(ours[0])}: {found}"
    return ""


def cell_disagreements(expected: NotebookNode, received: NotebookNode) -> list[str]:
    """Return a line for each cell whose outputs differ between two runs of one notebook, or one for other code."""
    ours, theirs = _code_cells(expected), _code_cells(received)
    if [cell.source for cell in ours] != [cell.source for cell in theirs]:
        return ["other code than when it was committed: run the chapter first"]
    found = []
    for a, b in zip(ours, theirs, strict=True):
        what = outputs_disagreement(a.outputs, b.outputs, cell_tolerance(b)) if _compared(b) else ""
        if what:
            found.append(f"{b.id}: {what}")
    return found


def keep_agreeing(fresh: NotebookNode, committed: NotebookNode) -> NotebookNode:
    """Return ``fresh`` with the committed outputs of every cell whose code and outputs are still those.

    Outputs that belong to the machine are kept as long as all others are, so that running a notebook where it
    was not made changes nothing in it.
    """
    before: dict[str, list[NotebookNode]] = defaultdict(list)
    for cell in _code_cells(committed):
        before[cell.source].append(cell)
    cells = _code_cells(fresh)
    pairs = [(cell, before[cell.source].pop(0)) for cell in cells if before.get(cell.source)]
    agreeing = [
        (cell, old)
        for cell, old in pairs
        if _compared(cell) and not outputs_disagreement(old.outputs, cell.outputs, cell_tolerance(cell))
    ]
    same = [cell.source for cell in cells] == [cell.source for cell in _code_cells(committed)]
    if same and len(agreeing) == sum(map(_compared, cells)):
        agreeing = pairs
    for cell, old in agreeing:
        cell.outputs = [_numbered(output, cell.execution_count) for output in old.outputs]
    return fresh


def _code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _compared(cell: NotebookNode) -> bool:
    return UNCOMPARED not in cell.metadata.get("tags", [])


def _numbered(output: NotebookNode, count: int | None) -> NotebookNode:
    """Return an output as of the cell's number, which a value carries too."""
    if output.output_type == "execute_result":
        output.execution_count = count
    return output

"""What a chapter leaves behind: numbers that its prose quotes, and a verdict for each claim it checked."""

from __future__ import annotations

import json
import math
import numbers
from pathlib import Path
from typing import Any

from posbias.book.ledger import Record, check_row

KEY = "posbias_record"
"""Where an output's metadata carries a record: Sphinx warns about outputs of a type it does not know."""

DIGITS = 6
"""Significant digits of a glued number: enough for prose, few enough to agree between machines."""


def rounded(value: Any) -> Any:
    """Return a number as a plain Python one with 6 significant digits; anything else as it is.

    >>> rounded(2 / 3), rounded(12345678.0), rounded(7)
    (0.666667, 12345700.0, 7)

    Raises
    ------
    ValueError
        If the number is not finite: prose must not quote it.
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
    """Keep ``values`` under their names for the prose: ``{glue:text}`name:.2f```.

    Numbers are rounded as :func:`rounded` does; texts, figures and whatever else Jupyter displays are kept as
    they are.

    Raises
    ------
    ValueError
        If a number is not finite.
    """
    import myst_nb

    for name, value in values.items():
        myst_nb.glue(name, rounded(value), display=False)


def record(
    row: str,
    passed: Any,
    figure: str,
    *,
    kind: str = "holds",
    reason: str | None = None,
) -> None:
    """Enter a verdict on a row of the claims ledger, and show it on the page.

    Parameters
    ----------
    row
        Id of the row in the ledger.
    passed
        Whether the check passed (a Python or numpy bool).
    figure
        What was measured, in a few words with its rounded number.
    kind
        The verdict of a check that passed: ``holds``, or ``reproduced`` where a published number is met.
    reason
        Why a check that did not pass deviates; required then, without effect otherwise.

    Raises
    ------
    ValueError
        If the ledger has no such row, an argument is not what it must be, or a reason is missing.
    """
    from IPython.display import display

    check_row(row)
    passed = passed.item() if hasattr(passed, "item") else passed
    if not isinstance(passed, bool):
        raise ValueError(f"passed: expected True or False, received {passed!r}")
    if kind not in ("holds", "reproduced"):
        raise ValueError(f"kind: expected holds or reproduced, received {kind!r}")
    if not figure.strip():
        raise ValueError(f"{row}: figure: expected what was measured, received an empty text")
    if not passed and not (reason and reason.strip()):
        raise ValueError(f"{row}: reason: expected why it deviates, received none; measured: {figure}")
    verdict = kind if passed else "deviates"
    why = "" if passed or not reason else f" ({reason})"
    content = {"row": row, "verdict": verdict, "figure": figure, "reason": "" if passed else reason}
    bundle = {
        "text/plain": f"{row} {verdict}: {figure}{why}",
        "text/markdown": f"**{row}** {verdict}: {figure}{why}",
    }
    display(bundle, raw=True, metadata={KEY: content})


def read_records(notebooks: Path | str) -> list[Record]:
    """Read the records in the outputs of every notebook of a folder, by file name, then as they stand.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ValueError
        If a file in it is no notebook.
    """
    folder = Path(notebooks)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder of notebooks")
    return [found for path in sorted(folder.glob("*.ipynb")) for found in _read_file(path)]


def _read_file(path: Path) -> list[Record]:
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path.name}: expected a notebook, received {error}") from None
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    contents = [output["metadata"][KEY] for output in outputs if KEY in output.get("metadata", {})]
    return [Record(**content, chapter=path.stem) for content in contents]

"""Tables that a chapter shows: Markdown on the page, aligned text in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

Format = str | Callable[[object], str]
"""How the cells of a column are written: a format specification such as ``.3f``, or a function."""


def show_table(frame: DataFrame, formats: Mapping[str, Format] | None = None, *, fold: str | None = None) -> None:
    """Show a data frame as the output of a cell; a named index is the first column or columns, a missing value a dash.

    Columns without a format are shown as they are, floats as ``.3g``; ``fold`` is a title to fold the table under.
    """
    from IPython.display import display

    cells = frame_cells(frame, formats or {})
    markdown = table_markdown(cells)
    if fold is not None:
        markdown = f":::{{dropdown}} {fold}\n{markdown}\n:::"
    display({"text/plain": table_text(cells), "text/markdown": markdown}, raw=True)


def frame_cells(frame: DataFrame, formats: Mapping[str, Format]) -> list[list[str]]:
    """Return header and rows of a data frame as text; ValueError for a format of a column that is not there.

    >>> import pandas as pd
    >>> frame_cells(pd.DataFrame({"model": ["bloom", "mpt"], "W1": [0.12345, None]}), {"W1": ".3f"})
    [['model', 'W1'], ['bloom', '0.123'], ['mpt', '—']]
    """
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    unknown = [name for name in formats if name not in frame.columns]
    if unknown:
        known = ", ".join(map(str, frame.columns))
        raise ValueError(f"formats: expected columns out of {known}, received {unknown[0]}")
    columns = []
    for name in frame.columns:
        columns.append([_cell(x, formats.get(name)) for x in frame[name].tolist()])
    return [list(map(str, frame.columns)), *map(list, zip(*columns, strict=True))]


def _cell(value: object, how: Format | None) -> str:
    """Return one cell as text."""
    if value is None or value != value:
        return "—"
    if callable(how):
        return how(value)
    if how is None:
        how = ".3g" if isinstance(value, float) else ""
    return format(value, how)


def table_text(cells: Sequence[Sequence[str]]) -> str:
    """Return cells in aligned columns.

    >>> print(table_text([["model", "mean"], ["bloom", "0.65"]]))
    model  mean
    bloom  0.65
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in cells]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def table_markdown(cells: Sequence[Sequence[str]]) -> str:
    """Return cells as a Markdown table: the first column and those with words to the left, numbers to the right.

    >>> print(table_markdown([["model", "mean", "U"], ["bloom", "0.6 to 1", "yes"]]))
    | model | mean | U |
    |:--|--:|:--|
    | bloom | 0.6 to 1 | yes |
    """
    columns = list(zip(*cells[1:], strict=True))[1:] or [()] * (len(cells[0]) - 1)
    words = [any(map(str.isalpha, "\n".join(column).replace(" to ", ""))) for column in columns]
    lines = [_markdown_row(row) for row in cells]
    return "\n".join([lines[0], "|:--|" + "".join(":--|" if word else "--:|" for word in words), *lines[1:]])


def _markdown_row(row: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"

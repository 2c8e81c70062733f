"""Tables that a chapter shows: Markdown on the page, aligned text in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def show_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Show a table as the output of a cell; numbers come already rounded, as text.

    Parameters
    ----------
    header
        Titles of the columns; the first column is set flush left, the others flush right.
    rows
        As many cells each as there are titles.

    Raises
    ------
    ValueError
        If a row has another number of cells than the header.
    """
    from IPython.display import display

    cells = table_cells(header, rows)
    display({"text/plain": table_text(cells), "text/markdown": table_markdown(cells)}, raw=True)


def table_cells(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[list[str]]:
    """Return header and rows as text, after checking that they are equally long."""
    cells = [[str(x) for x in row] for row in (header, *rows)]
    for row in cells:
        if len(row) != len(header):
            raise ValueError(f"row: expected {len(header)} cells, received {len(row)}: {', '.join(row)}")
    return cells


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
    """Return cells as a Markdown table.

    >>> print(table_markdown([["model", "mean"], ["bloom", "0.65"]]))
    | model | mean |
    |:--|--:|
    | bloom | 0.65 |
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
    return "\n".join([lines[0], "|:--|" + "--:|" * (len(cells[0]) - 1), *lines[1:]])

"""The code of chapters in the style that they are held to: formatted, linted, and short enough for the page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bookkit.chapters import read_markdown

if TYPE_CHECKING:
    from nbformat import NotebookNode

COLUMNS, CELL_LINES, CODE_LINES, WORDS = 88, 20, 200, 2500
"""At most: columns of a line, lines of a cell, visible lines of code and words of prose of a chapter."""
WORDS_A_MINUTE, LINES_A_MINUTE = 180, 20
"""How fast a reader reads prose with formulas, and code."""
HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
"""Tags of cells whose code is folded away or not on the page."""


@dataclass(frozen=True)
class Extent:
    """Say how much there is to read in a chapter.

    Parameters
    ----------
    words
        Of prose; formulas and directives count by their words.
    lines
        Of code that is not folded away.
    """

    words: int
    lines: int

    @property
    def minutes(self) -> int:
        """Reading time in minutes, rounded up to five."""
        return 5 * -int(-(self.words / WORDS_A_MINUTE + self.lines / LINES_A_MINUTE) // 5)


def extent(notebook: NotebookNode) -> Extent:
    r"""Return the extent of a chapter's text and visible code.

    >>> from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
    >>> cells = [new_markdown_cell("Two words."), new_code_cell("x = 1\nx")]
    >>> extent(new_notebook(cells=cells))
    Extent(words=2, lines=2)
    """
    prose = " ".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not HIDDEN & tags(cell)]
    return Extent(len(prose.split()), sum(len(source.splitlines()) for source in code))


def tags(cell: NotebookNode) -> set[str]:
    """Return the tags of a cell."""
    return set(cell.metadata.get("tags", []))


def formatted(source: Path) -> str:
    """Return the text of a chapter with every code cell formatted by ruff.

    Raises
    ------
    ValueError
        If a cell is no Python.
    """
    notebook, text, place = read_markdown(source), source.read_text(encoding="utf-8"), 0
    before = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    with TemporaryDirectory() as folder:
        file = _written(notebook, Path(folder))
        _ruff("format", file)
        after = [cell.source for cell in _read(file).cells if cell.cell_type == "code"]
    for old, new in zip(before, after, strict=True):
        start = text.index(old, place)
        text = text[:start] + new + text[start + len(old) :]
        place = start + len(new)
    return text


def problems(sources: Sequence[Path]) -> list[str]:
    """Return what is wrong with the code of chapters, a line each: format, lint, and cells or chapters too long."""
    found = []
    with TemporaryDirectory() as folder:
        for source in sources:
            notebook = read_markdown(source)
            _written(notebook, Path(folder), source.stem)
            found += [f"{source.name}: {problem}" for problem in _out_of_bounds(notebook)]
        for action in (("format", "--check"), ("check", "--quiet")):
            found += _ruff(*action, "--output-format", "concise", Path(folder), check=False)
    return found


def _out_of_bounds(notebook: NotebookNode) -> Iterator[str]:
    """Yield what exceeds its limit in one chapter, and cells without code."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    for number, source in enumerate(code, 1):
        lines = source.splitlines()
        if not source.strip():
            yield f"code cell {number}: expected code, received an empty cell"
        if len(lines) > CELL_LINES:
            yield f"code cell {number}: expected at most {CELL_LINES} lines, received {len(lines)}"
    read = extent(notebook)
    for name, limit, received in (("words", WORDS, read.words), ("lines of visible code", CODE_LINES, read.lines)):
        if received > limit:
            yield f"expected at most {limit} {name}, received {received}"


def _written(notebook: NotebookNode, folder: Path, stem: str = "chapter") -> Path:
    """Write a notebook without outputs into a folder with the linter's settings, and return its file."""
    import nbformat

    settings = f'line-length = {COLUMNS}\n[lint]\nselect = ["E", "F", "I", "B", "NPY", "UP"]\n'
    (folder / "ruff.toml").write_text(settings, encoding="utf-8")
    file = folder / f"{stem}.ipynb"
    nbformat.write(notebook, file)
    return file


def _read(file: Path) -> NotebookNode:
    import nbformat

    return nbformat.read(file, as_version=4)


def _ruff(*arguments: str | Path, check: bool = True) -> list[str]:
    """Run ruff and return the lines that name a problem, without the folder.

    Raises
    ------
    ModuleNotFoundError
        If ruff is not installed.
    ValueError
        If it could not read a cell.
    """
    words = [sys.executable, "-m", "ruff", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "No module named ruff" in done.stderr:
        raise ModuleNotFoundError("No module named 'ruff'", name="ruff")
    if check and done.returncode:
        raise ValueError(done.stderr.strip())
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return [re.sub(r"\S*/(?=\w+\.ipynb)", "", line) for line in lines if ".ipynb" in line]

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
from bookkit.ledger import line_markdown
from bookkit.records import KEY

if TYPE_CHECKING:
    from nbformat import NotebookNode

COLUMNS, CELL_LINES, CODE_LINES, WORDS = 88, 25, 200, 2500
"""At most: columns of a line, lines of a cell, visible lines of code and words of prose of a chapter."""
WORDS_A_MINUTE, LINES_A_MINUTE, TABLES_A_MINUTE = 200, 20, 2
"""How fast a reader reads; a displayed formula and a paragraph of a proof take a minute each."""
FORMULA = re.compile(r"^(?:> )?`{3,}\{math\}|^\$\$(?=\S|\n[^$]+\$\$)", re.MULTILINE)
PROOF = re.compile(r"^(`{3,})\{prf:proof\}.*?\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
BOX = re.compile(r"^(`{3,}|:{3,})\{dropdown\}.*?^\1$", re.MULTILINE | re.DOTALL)
"""A box that is closed until a reader opens it: what is in it does not count."""
RULE = re.compile(r"^\|[ :|-]*-[ :|-]*\|$", re.MULTILINE)
"""The line under the head of a table."""
HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
"""Tags of cells whose code is folded away or not on the page."""
UNSEEN = {"remove-output", "remove-cell"}
"""Tags of cells whose outputs are not on the page."""
MARKDOWN = "text/markdown"
SETTINGS = f'line-length = {COLUMNS}\n[lint]\nselect = ["E", "F", "I", "B", "NPY", "UP"]\n'


@dataclass(frozen=True)
class Extent:
    """How much there is to read in a chapter outside of closed boxes and folded code; of proofs, paragraphs.

    ``said`` counts the words of text that cells put out, in lists and lines, and not in tables.
    """

    words: int
    lines: int
    formulas: int = 0
    proofs: int = 0
    tables: int = 0
    said: int = 0

    @property
    def minutes(self) -> int:
        """Reading time in minutes, rounded up to five."""
        read = (self.words + self.said) / WORDS_A_MINUTE + self.lines / LINES_A_MINUTE + self.tables / TABLES_A_MINUTE
        return 5 * -int(-(read + self.formulas + self.proofs) // 5)


def extent(notebook: NotebookNode) -> Extent:
    r"""Return the extent of a chapter's text and visible code.

    >>> from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
    >>> cells = [new_markdown_cell("Two words."), new_code_cell("x = 1\nx")]
    >>> extent(new_notebook(cells=cells))
    Extent(words=2, lines=2, formulas=0, proofs=0, tables=0, said=0)
    """
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    prose = re.sub(r"^```bash$.*?^```$", "", prose, flags=re.MULTILINE | re.DOTALL)  # commands are not read as prose
    prose = BOX.sub("", prose)
    shown = [cell for cell in notebook.cells if not HIDDEN & set(cell.metadata.get("tags", []))]
    steps = [step for _, proof in PROOF.findall(prose) for step in proof.split("\n\n") if step.strip()]
    shows = [cell for cell in notebook.cells if not UNSEEN & set(cell.metadata.get("tags", []))]
    outputs = [output for cell in shows for output in cell.get("outputs", [])]
    return Extent(
        len(prose.split()),
        sum(len(source.splitlines()) for source in code_of(shown)),
        len(FORMULA.findall(prose)),
        len(steps),
        len(RULE.findall(prose)) + sum(map(_is_table, outputs)),
        sum(map(_words_said, outputs)),
    )


def _words_said(output: NotebookNode) -> int:
    """Count the words that an output adds to the text of its page."""
    kept = output.get("metadata", {}).get(KEY)
    text = output.get("data", {}).get(MARKDOWN, "")
    if kept:
        text = line_markdown(kept["row"], kept["part"], kept["verdict"])
    lines = [line for line in BOX.sub("", text).splitlines() if not line.startswith("|")]
    return len(re.sub(r"<[^>]*>|\]\([^)]*\)", " ", " ".join(lines)).split())


def _is_table(output: NotebookNode) -> bool:
    data = output.get("data", {})
    return "<table" in data.get("text/html", "") or bool(RULE.search(BOX.sub("", data.get("text/markdown", ""))))


def code_of(cells: Sequence[NotebookNode]) -> list[str]:
    """Return the code of those cells that have any."""
    return [cell.source for cell in cells if cell.cell_type == "code"]


def formatted(source: Path) -> str:
    """Return the text of a chapter with the imports of every code cell sorted and its code formatted by ruff."""
    import nbformat

    text, place = source.read_text(encoding="utf-8"), 0
    with TemporaryDirectory() as folder:
        file = _written(read_markdown(source), Path(folder))
        before = code_of(nbformat.read(file, as_version=4).cells)
        _ruff("check", "--quiet", "--fix-only", "--select", "I", file)
        _ruff("format", file)
        after = code_of(nbformat.read(file, as_version=4).cells)
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
    for number, source in enumerate(code_of(notebook.cells), 1):
        lines = len(source.splitlines())
        if not source.strip():
            yield f"code cell {number}: expected code, received an empty cell"
        if lines > CELL_LINES:
            yield f"code cell {number}: expected at most {CELL_LINES} lines, received {lines}"
    read = extent(notebook)
    for name, limit, received in (("words", WORDS, read.words), ("lines of visible code", CODE_LINES, read.lines)):
        if received > limit:
            yield f"expected at most {limit} {name}, received {received}"


def _written(notebook: NotebookNode, folder: Path, stem: str = "chapter") -> Path:
    """Write a notebook without outputs into a folder with the linter's settings, and return its file."""
    import nbformat

    (folder / "ruff.toml").write_text(SETTINGS, encoding="utf-8")
    file = folder / f"{stem}.ipynb"
    nbformat.write(notebook, file)
    return file


def _ruff(*arguments: str | Path, check: bool = True) -> list[str]:
    """Run ruff and return the lines that name a problem, without the folder; ValueError if it cannot read a cell."""
    words = [sys.executable, "-m", "ruff", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "No module named ruff" in done.stderr:
        raise ModuleNotFoundError("No module named 'ruff'", name="ruff")
    if check and done.returncode:
        raise ValueError(done.stderr.strip())
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return [re.sub(r"\S*/(?=\w+\.ipynb)", "", line) for line in lines if ".ipynb" in line]

"""The chapters of the book as values, read from ``_toc.yml`` and their MyST sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from nbformat import NotebookNode

NEEDS = ("records",)
"""What a chapter may need before it runs: the records of the other chapters."""


@dataclass(frozen=True)
class Chapter:
    """A chapter: its source in ``book/``, its executed pair in ``notebooks/``, and what it may be run with."""

    stem: str
    title: str
    source: Path
    notebook: Path
    parameters: Mapping[str, Any]
    needs: tuple[str, ...]


def list_chapters(root: Path) -> list[Chapter]:
    """Return the chapters in the order of ``_toc.yml``; pages without code are no chapters."""
    return [read_chapter(root, stem) for stem in list_stems(root)]


def find_chapter(root: Path, stem: str) -> Chapter:
    """Return the chapter called ``stem``; ValueError, with those that there are, if there is none."""
    stems = list(list_stems(root))
    if stem not in stems:
        raise ValueError(f"chapter: expected a page with code, one of {', '.join(stems)}, received {stem}")
    return read_chapter(root, stem)


def read_chapter(root: Path, stem: str) -> Chapter:
    """Read title, parameters and needs out of ``book/{stem}.md``."""
    source = root / "book" / f"{stem}.md"
    if not source.is_file():
        raise FileNotFoundError(f"{source}: the table of contents names this chapter, but there is no such file")
    notebook = read_markdown(source)
    needs = tuple((notebook.metadata.get("posbias") or {}).get("needs") or ())
    unknown = [need for need in needs if need not in NEEDS]
    if unknown:
        raise ValueError(f"{source.name}: needs: expected some of {', '.join(NEEDS)}, received {unknown[0]}")
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    title = re.search(r"^# +(.+?) *$", prose, re.MULTILINE)
    if title is None:
        raise ValueError(f"{source.name}: expected a heading '# Title', received none")
    parameters = _parameters(notebook, source.name)
    return Chapter(stem, title[1], source, root / "notebooks" / f"{stem}.ipynb", parameters, needs)


def read_markdown(source: Path) -> NotebookNode:
    """Read a MyST text notebook as a notebook without outputs."""
    import jupytext

    return jupytext.reads(source.read_text(encoding="utf-8"), fmt="md:myst")


def list_stems(root: Path) -> Iterator[str]:
    """Yield what the table of contents lists under ``notebooks/``, in its order."""
    for file in _files(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))):
        folder, _, stem = file.rpartition("/")
        if folder == "notebooks":
            yield stem.removesuffix(".ipynb")


def _files(node: Any) -> Iterator[str]:
    """Yield every ``file:`` below ``node``, in order."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from [str(value)] if key == "file" else _files(value)
    elif isinstance(node, list):
        for item in node:
            yield from _files(item)


def _parameters(notebook: NotebookNode, name: str) -> dict[str, Any]:
    """Return the literals assigned in the cell tagged ``parameters``; a chapter without one has none."""
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) > 1:
        raise ValueError(f"{name}: expected one cell tagged parameters, received {len(cells)}")
    values: dict[str, Any] = {}
    for node in ast.parse(cells[0].source).body if cells else []:
        try:
            if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
                raise ValueError
            values[node.targets[0].id] = ast.literal_eval(node.value)
        except ValueError:
            raise ValueError(
                f"{name}: the parameters cell: expected only lines `name = literal`, received {ast.unparse(node)}"
            ) from None
    return values

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
    """A chapter: its source, its notebook and what it may be run with.

    Parameters
    ----------
    stem
        File name without suffix, the same in ``book/`` and ``notebooks/``.
    title
        Its first heading.
    source
        The MyST text notebook, the only file that is edited by hand.
    notebook
        Its executed pair, written by the runner.
    parameters
        Names and default values of the cell tagged ``parameters``.
    needs
        What must be there before it runs, out of :data:`NEEDS`.
    """

    stem: str
    title: str
    source: Path
    notebook: Path
    parameters: Mapping[str, Any]
    needs: tuple[str, ...]


def list_chapters(root: Path) -> list[Chapter]:
    """Return the chapters in the order of ``_toc.yml``; pages without code are no chapters.

    Raises
    ------
    FileNotFoundError
        If a chapter of the table of contents has no source in ``book/``.
    ValueError
        If the table of contents or a source cannot be read as one.
    """
    return [read_chapter(root, stem) for stem in _stems(root)]


def find_chapter(root: Path, stem: str) -> Chapter:
    """Return the chapter called ``stem``, with or without its number: ``comparison`` or ``comparison``.

    Raises
    ------
    ValueError
        If there is none; the message lists those that exist.
    """
    stems = list(_stems(root))
    stem = next((full for full in stems if stem and full.partition("_")[2] == stem), stem)
    if stem not in stems:
        raise ValueError(f"chapter: expected one of {', '.join(stems)}, received {stem}")
    return read_chapter(root, stem)


def read_chapter(root: Path, stem: str) -> Chapter:
    """Read title, parameters and needs out of ``book/{stem}.md``."""
    source = root / "book" / f"{stem}.md"
    notebook = read_markdown(source)
    needs = tuple((notebook.metadata.get("posbias") or {}).get("needs") or ())
    unknown = [need for need in needs if need not in NEEDS]
    if unknown:
        raise ValueError(f"{source.name}: needs: expected some of {', '.join(NEEDS)}, received {unknown[0]}")
    return Chapter(
        stem=stem,
        title=_title(notebook, source.name),
        source=source,
        notebook=root / "notebooks" / f"{stem}.ipynb",
        parameters=_parameters(notebook, source.name),
        needs=needs,
    )


def read_markdown(source: Path) -> NotebookNode:
    """Read a MyST text notebook as a notebook without outputs."""
    import jupytext

    if not source.is_file():
        raise FileNotFoundError(f"{source}: the table of contents names this chapter, but there is no such file")
    return jupytext.reads(source.read_text(encoding="utf-8"), fmt="md:myst")


def _stems(root: Path) -> Iterator[str]:
    """Yield what the table of contents lists under ``notebooks/``, in its order."""
    try:
        toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"_toc.yml: not valid YAML: {error}") from None
    for file in _files(toc):
        folder, _, stem = file.rpartition("/")
        if folder == "notebooks":
            yield stem.removesuffix(".ipynb")


def _files(node: Any) -> Iterator[str]:
    """Yield every ``root:`` and ``file:`` below ``node``, in order."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in ("root", "file"):
                yield str(value)
            else:
                yield from _files(value)
    elif isinstance(node, list):
        for item in node:
            yield from _files(item)


def _title(notebook: NotebookNode, name: str) -> str:
    for cell in notebook.cells:
        heading = re.search(r"^# +(.+?) *$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
        if heading:
            return heading[1]
    raise ValueError(f"{name}: expected a heading '# Title', received none")


def _parameters(notebook: NotebookNode, name: str) -> dict[str, Any]:
    """Return the literals assigned in the cell tagged ``parameters``; a chapter without one has none."""
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) > 1:
        raise ValueError(f"{name}: expected one cell tagged parameters, received {len(cells)}")
    values: dict[str, Any] = {}
    for node in ast.parse(cells[0].source).body if cells else []:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        try:
            if not isinstance(target, ast.Name) or value is None:
                raise ValueError
            values[target.id] = ast.literal_eval(value)
        except ValueError:
            raise ValueError(
                f"{name}: the parameters cell: expected only lines `name = literal`, received {ast.unparse(node)}"
            ) from None
    return values

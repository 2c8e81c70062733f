"""A Sphinx extension: the pages carry no script that would be fetched from another machine.

jupyter-book puts the launcher of live cells (thebe) on every page, twice, with the address of its script; the
second declaration is an error in the browser's console, and the book has no live cells.
"""

from __future__ import annotations

from typing import Any


def setup(app: Any) -> dict[str, Any]:
    """Look at the scripts of every page before it is written."""
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def drop_thebe(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Take thebe's scripts and styles off one page."""
    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if not is_thebe(file)]


def is_thebe(file: Any) -> bool:
    """Say whether a script or style sheet, or the code written into the page, is thebe's."""
    return "thebe" in f"{file.filename} {file.attributes.get('body', '')}".lower()

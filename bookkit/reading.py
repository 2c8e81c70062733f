"""A Sphinx extension: how long a chapter takes to read, under its title."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bookkit.formatting import extent


def setup(app: Any) -> dict[str, Any]:
    """Look at every page once it is read."""
    app.connect("doctree-read", add_reading_time)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_reading_time(app: Any, doctree: Any) -> None:
    """Insert the reading time under the title of a chapter."""
    import nbformat
    from docutils import nodes

    path = Path(app.env.doc2path(app.env.docname))
    title = doctree.next_node(nodes.title)
    if path.suffix != ".ipynb" or not path.stem[0].isdigit() or title is None:
        return
    minutes = extent(nbformat.read(path, as_version=4)).minutes
    line = nodes.paragraph(text=f"Reading time: about {minutes} minutes.", classes=["reading-time"])
    title.parent.insert(title.parent.index(title) + 1, line)

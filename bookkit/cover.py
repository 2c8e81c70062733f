"""The figure on the first page and in the README: taken from the notebook that drew it, not drawn twice."""

from __future__ import annotations

import base64
from pathlib import Path

from posbias.files import write_whole

CHAPTER, FIGURE = "published", "fig-controlled-panels"
IMAGE = Path("book/assets/four_panels.png")


def committed_figure(root: Path) -> bytes:
    """Return the PNG of :data:`FIGURE` as the committed notebook of :data:`CHAPTER` holds it.

    Raises
    ------
    FileNotFoundError
        If the notebook is not there.
    ValueError
        If it has no such figure with a PNG output.
    """
    import nbformat

    path = root / "notebooks" / f"{CHAPTER}.ipynb"
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") != FIGURE:
            continue
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                return base64.b64decode(output.data["image/png"])
    raise ValueError(f"{path}: expected a figure {FIGURE} with a PNG output, received none")


def refresh(root: Path) -> Path:
    """Write the figure to :data:`IMAGE` if it changed, and return where it is."""
    image, figure = root / IMAGE, committed_figure(root)
    if not image.is_file() or image.read_bytes() != figure:
        write_whole(image, figure)
    return image

"""The pages: committed notebooks to html. Nothing is executed, and a warning is an error."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from pathlib import Path

from posbias.files import write_whole

JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"
FIGURES = {"predictions": "fig-real", "untrained": "fig-births", "why": "fig-why"}
FIGURES |= {"reading": "fig-reading", "remedies": "fig-remedies"}
"""Figures of the first page and the preprint by chapter: taken from the notebooks that drew them, not drawn twice."""
ASSETS = Path("book/assets")
SAMPLE, SAMPLE_PAGE = "bloom-8.report", Path("_build/html/book/report.html")
"""The kept measurement whose report the page on measuring one's own model shows, and where the report goes."""


class BuildFailed(Exception):
    """The build failed or had warnings; the message is what Sphinx reported."""


def build(root: Path) -> Path:
    """Build the whole book and return its first page, ``_build/html/index.html``."""
    shutil.rmtree(root / "_build" / "html", ignore_errors=True)  # pages of chapters that are gone
    options = ["build", ".", "--all", "-W", "-n", "--keep-going", "-q"]
    # --all: an incremental build leaves numbers glued from other chapters stale
    command = [sys.executable, "-c", JUPYTER_BOOK, *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    index = root / "_build" / "html" / "index.html"
    if done.returncode or not index.is_file():
        raise BuildFailed((done.stderr.strip() or done.stdout.strip()) + "\nthe book was not built")
    return index


def sample_report(root: Path) -> None:
    """Write the report on a reference model into the built pages, if its measurement is kept."""
    from posbias.measure.measurement import Measurement
    from studies import results

    if (root / "results" / "models.nc").is_file():
        Measurement(results.load("models", root / "results")[SAMPLE]).report(root / SAMPLE_PAGE)


def figure_of(root: Path, chapter: str) -> bytes:
    """Return the PNG of a chapter's figure among :data:`FIGURES` as its committed notebook holds it."""
    import nbformat

    path = root / "notebooks" / f"{chapter}.ipynb"
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == FIGURES[chapter]:
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output.data["image/png"])
    raise ValueError(f"{path}: expected a figure {FIGURES[chapter]} with a PNG output, received none")


def refresh_figure(root: Path, chapter: str) -> None:
    """Write a chapter's figure to the assets if it changed."""
    image, figure = root / ASSETS / f"{chapter}.png", figure_of(root, chapter)
    if not image.is_file() or image.read_bytes() != figure:
        write_whole(image, figure)

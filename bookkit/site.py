"""The pages: committed notebooks to html. Nothing is executed, and a warning is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"


class BuildFailed(Exception):
    """The build failed or had warnings; the message is what Sphinx reported."""


def build(root: Path) -> Path:
    """Build the whole book and return its first page, ``_build/html/index.html``.

    Raises
    ------
    BuildFailed
        If there is an error or a single warning.
    """
    shutil.rmtree(root / "_build" / "html", ignore_errors=True)  # pages of chapters that are gone
    options = ["build", ".", "--all", "-W", "-n", "--keep-going", "-q"]
    # --all: an incremental build leaves numbers glued from other chapters stale
    command = [sys.executable, "-c", JUPYTER_BOOK, *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    index = root / "_build" / "html" / "index.html"
    if done.returncode or not index.is_file():
        raise BuildFailed((done.stderr.strip() or done.stdout.strip()) + "\nthe book was not built")
    return index

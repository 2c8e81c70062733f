"""Where the book lies on this machine."""

from __future__ import annotations

from pathlib import Path


def find_root(start: Path | str | None = None) -> Path:
    """Return the folder of the book: the nearest one upward from ``start`` or here, else this checkout.

    A chapter that reads or writes files starts from it, because papermill, nbval and a reader's Jupyter each run it
    in another working directory.
    """
    here = Path.cwd() if start is None else Path(start).resolve()
    for folder in (here, *here.parents):
        if (folder / "_toc.yml").is_file() and (folder / "book").is_dir():
            return folder
    return Path(__file__).resolve().parents[1]

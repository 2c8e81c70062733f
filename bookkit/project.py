"""Find the book on this machine."""

from __future__ import annotations

from pathlib import Path

from posbias.shipped import REPOSITORY


def is_root(folder: Path) -> bool:
    """Return whether ``folder`` holds a book: a table of contents and a folder of sources."""
    return (folder / "_toc.yml").is_file() and (folder / "book").is_dir()


def find_root(start: Path | str | None = None) -> Path:
    """Return the folder of the book: the nearest one upward from ``start``, else the package's own checkout.

    A chapter that reads or writes files starts from here, because papermill, nbval and a reader's
    Jupyter each run it in another working directory.

    Parameters
    ----------
    start
        Folder to start from; the working directory when None.

    Raises
    ------
    FileNotFoundError
        If neither holds ``_toc.yml`` beside ``book/``, as where posbias was installed without its repository.
    """
    here = Path.cwd() if start is None else Path(start).resolve()
    checkout = Path(__file__).resolve().parents[1]
    for folder in (here, *here.parents, checkout):
        if is_root(folder):
            return folder
    raise FileNotFoundError(
        f"the book's sources: expected _toc.yml beside book/ in {here} or in a folder above it, received neither; "
        f"get them with 'git clone {REPOSITORY}', then run 'make book' there"
    )

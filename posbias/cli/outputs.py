"""Files that commands write: one check for all of them."""

from __future__ import annotations

from pathlib import Path

from posbias import errors
from posbias.files import check_writable, refuse_same


def check_output(
    path: Path, *suffixes: str, overwrite: bool, field: str = "output", sources: tuple[Path | None, ...] = ()
) -> Path:
    """Return the file that is to be written; raise for another suffix, a file that is read, and one that is there.

    >>> check_output(Path("m.csv"), ".nc", overwrite=False)
    Traceback (most recent call last):
    ValueError: output: expected a file name that ends in .nc, received m.csv
    """
    if suffixes and path.suffix not in suffixes:
        raise errors.invalid(field, f"a file name that ends in {' or '.join(suffixes)}", path.name or repr(str(path)))
    for source in sources:
        if source is not None:
            refuse_same(path, source)
    place = check_writable(path)
    if place.exists() and not overwrite:
        raise errors.invalid(str(path), "a file that is not there yet, or --overwrite", "one that is there")
    return place

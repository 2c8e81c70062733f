"""Where the book keeps the results of studies of its reference models, and how a chapter reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from posbias import errors
from posbias.netcdf import load

FOLDERS = {
    "hops": "comparison",
    "gap": "comparison",
    "paths-64": "comparison",
    "paths-128": "comparison",
    "rotary": "rotary",
    "rotary-1024": "rotary",
    "remedies": "design",
    "remedies-1024": "design",
    "added": "lookup",
}
"""Kind of study → folder below ``results/``; its files are called MODEL.KIND.nc."""


def read_study(results: Path, kind: str, models: Sequence[str]) -> dict[str, xr.Dataset]:
    """Return one kind of study, model → results, in the order of ``models``; models that have none are left out.

    Parameters
    ----------
    results
        The folder ``results`` of the book.
    kind
        One of :data:`FOLDERS`.
    models
        Names of reference models.

    Raises
    ------
    ValueError
        If there is no such kind, or a file is damaged.
    FileNotFoundError
        If no model has such a file.
    """
    if kind not in FOLDERS:
        raise errors.invalid("kind", f"one of {', '.join(FOLDERS)}", kind)
    files = {name: results / FOLDERS[kind] / f"{name}.{kind}.nc" for name in models}
    found = {name: load(file) for name, file in files.items() if file.is_file()}
    if not found:
        raise FileNotFoundError(f"{results / FOLDERS[kind]}: no file MODEL.{kind}.nc of {', '.join(models)}")
    return found

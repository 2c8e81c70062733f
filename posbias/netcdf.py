"""Labelled arrays in netCDF files, read completely or not at all, and written whole or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias import errors
from posbias.files import write_whole

if TYPE_CHECKING:
    import xarray as xr

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""First bytes of a netCDF file in HDF5."""


def check_signature(path: Path) -> None:
    """Raise ValueError or OSError unless a file begins as netCDF files do; needs neither xarray nor HDF5."""
    with path.open("rb") as file:  # what is missing or forbidden is said by the system
        start = file.read(8)
    if start != SIGNATURE:
        received = "another format" if start else "an empty file"
        raise errors.invalid(str(path), "a netCDF file written by posbias", received)


def load(path: Path) -> xr.Dataset:
    """Read a netCDF file into memory, or raise ValueError for a damaged one and OSError where there is none."""
    check_signature(path)
    import xarray as xr

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*phony_dims")  # of HDF5 files of other programs
            with xr.open_dataset(path, engine="h5netcdf") as results:
                return results.load()
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, IndexError) as error:
        raise errors.invalid(str(path), "an intact netCDF file", errors.short(error, 200)) from None


def load_layout(path: Path, attribute: str, layout: int, what: str) -> xr.Dataset:
    """Read a netCDF file whose ``attribute`` is the number of the layout that is known, or raise ValueError."""
    results = load(path)
    if str(number := results.attrs.get(attribute)) != str(layout):
        received = "no layout number" if number is None else f"layout {number}"
        raise errors.invalid(str(path), f"{what} of layout {layout}", received)
    return results


def write(path: Path, data: xr.Dataset, encoding: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Write labelled arrays as netCDF, packed as ``encoding`` says for xarray, whole or not at all.

    The file is made in memory and then written like any other: HDF5 on a disk that fills up can crash when it closes
    the file, and no error can be caught then.
    """
    content = data.to_netcdf(None, engine="h5netcdf", encoding={k: dict(x) for k, x in (encoding or {}).items()})
    write_whole(path, bytes(content))

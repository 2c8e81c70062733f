"""Labelled arrays from netCDF files, read completely or not at all."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

from posbias import checks


def load(path: Path) -> xr.Dataset:
    """Read a netCDF file into memory.

    Raises
    ------
    ValueError
        If it is no netCDF file, or a damaged one.
    OSError
        If it cannot be read.
    """
    with path.open("rb") as file:  # what is missing or forbidden is said by the system
        if file.read(8) != b"\x89HDF\r\n\x1a\n":
            raise checks.refuse(str(path), "a netCDF file written by posbias", "another format")
    try:
        with xr.open_dataset(path, engine="h5netcdf") as results:
            return results.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise checks.refuse(str(path), "an intact netCDF file", f"{error}") from None


def load_layout(path: Path, attribute: str, layout: int, what: str) -> xr.Dataset:
    """Read a netCDF file into memory whose attribute says that it has the layout that is known here.

    Parameters
    ----------
    path
        The file.
    attribute
        Name of the attribute that holds the layout's number.
    layout
        The number that is known.
    what
        What such a file is called in messages.

    Raises
    ------
    ValueError
        As :func:`load`, and if the number is missing or another one.
    OSError
        If the file cannot be read.
    """
    results = load(path)
    found = results.attrs.get(attribute)
    if found is None or int(found) != layout:
        received = "no layout number" if found is None else f"layout {found}"
        raise checks.refuse(str(path), f"{what} of layout {layout}", received)
    return results

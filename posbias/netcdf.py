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
    """Raise unless a file is there and begins as netCDF files do; needs neither xarray nor HDF5.

    Raises
    ------
    ValueError
        If it is no netCDF file.
    OSError
        If it cannot be read.
    """
    if path.exists() and not path.is_file() and not path.is_dir():  # reading a pipe would wait for ever
        raise errors.invalid(str(path), "a netCDF file written by posbias", "a device or a pipe")
    with path.open("rb") as file:  # what is missing or forbidden is said by the system
        start = file.read(8)
    if start != SIGNATURE:
        received = "another format" if start else "an empty file"
        raise errors.invalid(str(path), "a netCDF file written by posbias", received)


def load(path: Path) -> xr.Dataset:
    """Read a netCDF file into memory.

    Raises
    ------
    ValueError
        If it is no netCDF file, or a damaged one.
    OSError
        If it cannot be read.
    """
    check_signature(path)
    import xarray as xr

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*phony_dims")  # of HDF5 files of other programs
            with xr.open_dataset(path, engine="h5netcdf") as results:
                return results.load()
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, IndexError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise errors.invalid(str(path), "an intact netCDF file", reason) from None


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
    if integer_attribute(path, results.attrs, attribute) != layout:
        received = f"layout {results.attrs[attribute]}" if attribute in results.attrs else "no layout number"
        raise errors.invalid(str(path), f"{what} of layout {layout}", received)
    return results


def integer_attribute(path: Path, attributes: Mapping[Any, Any], name: str) -> int | None:
    """Return an attribute that must be an integer, None if it is not there.

    Raises
    ------
    ValueError
        If it is a text, a list, or another number.

    >>> integer_attribute(Path("m.nc"), {"posbias_schema": "one"}, "posbias_schema")
    Traceback (most recent call last):
    ValueError: m.nc: posbias_schema: expected an integer, received 'one'
    """
    value = attributes.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, str | bytes) or int(value) != value:
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError):
        received = " ".join(repr(value).split())[:60]
        raise errors.invalid(f"{path}: {name}", "an integer", received) from None


def write(path: Path, data: xr.Dataset, encoding: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Write labelled arrays as netCDF, whole or not at all.

    The file is made in memory, packed, and then written like any other: HDF5 on a disk that fills up can crash when it
    closes the file, and no error can be caught then.

    Parameters
    ----------
    path
        The file.
    data
        The arrays.
    encoding
        As xarray has it: name → how it is packed.

    Raises
    ------
    OSError
        If the file cannot be written, such as on a full disk; one that is there is then left as it was.
    """
    content = data.to_netcdf(None, engine="h5netcdf", encoding={k: dict(x) for k, x in (encoding or {}).items()})
    write_whole(path, bytes(content))

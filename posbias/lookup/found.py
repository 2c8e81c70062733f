"""What a lookup found, for those who ask in Python: numbers by place, what they say, and a file."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from posbias import netcdf
from posbias.files import check_output
from posbias.lookup.file import by_place, read_lookup, summary_lines, verdict
from posbias.lookup.tasks import SCORES
from posbias.measure.measurement import check_path

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """Hold what a model finds at each place of its prompts; printed, what that says.

    Parameters
    ----------
    results
        Every number by arm, context and place, with prompts and answers as text, and with where it came from in its
        attributes: what ``posbias lookup`` writes.
    """

    results: xr.Dataset

    @property
    def verdict(self) -> str:
        """Whether the middle is lost, in one sentence."""
        return verdict(self.results)

    def to_pandas(self) -> pd.DataFrame:
        """Return the scores of each arm and place, a mean with the ends of its 95% interval, ``low`` and ``high``.

        Places count from 0.
        """
        tables = []
        for arm in self.results["arm"].values:
            columns: dict[str, Any] = {}
            for score in SCORES:
                ends = by_place(self.results, score, str(arm))
                columns |= dict(zip((score, f"{score}_low", f"{score}_high"), ends, strict=True))
            tables.append(pd.DataFrame(columns).assign(arm=str(arm)).rename_axis("place"))
        return pd.concat(tables).set_index("arm", append=True).swaplevel()

    def to_xarray(self) -> xr.Dataset:
        """Return a copy of everything that was found, with its provenance as attributes."""
        return self.results.copy()

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the file that ``posbias lookup`` writes, and return its path; :func:`load_lookup` reads it.

        Raises
        ------
        ValueError
            If the name does not end in .nc.
        OSError
            If it cannot be written.
        """
        netcdf.write(file := check_path(path, ".nc"), self.results)
        return file

    def figure(self, path: str | PathLike[str]) -> Path:
        """Draw the share of right answers by place and arm with 95% intervals, and return the path of the image.

        Parameters
        ----------
        path
            The .png or .svg file to write; one that is there is replaced.

        Raises
        ------
        ValueError
            If the name does not end in .png or .svg.
        OSError
            If it cannot be written.
        """
        from posbias.lookup.figure import SUFFIXES, write_figure

        return write_figure(check_output(Path(path), SUFFIXES, "path"), self.results)

    def __repr__(self) -> str:
        return "\n".join(summary_lines(self.results))


def load_lookup(path: str | PathLike[str]) -> Found:
    """Read what :meth:`Found.save` or ``posbias lookup`` wrote.

    Parameters
    ----------
    path
        A .nc file.

    Raises
    ------
    ValueError
        If it is no lookup, of another layout, or incomplete.
    OSError
        If it cannot be read.
    """
    return Found(read_lookup(check_path(path, ".nc")))

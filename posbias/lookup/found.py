"""What a lookup found, for those who ask in Python: numbers by place, what they say, and a file."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from posbias.lookup.file import ENDS, read_lookup, summary_lines, write_lookup
from posbias.lookup.tasks import OF_TASK
from posbias.measure.measurement import checked_path

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class Found:
    """Hold what a model finds at each place of its prompts; printed, what that says.

    Parameters
    ----------
    results
        Every number, labelled, with where it came from in its attributes: what ``posbias lookup`` writes.
    """

    results: xr.Dataset

    def to_pandas(self) -> pd.DataFrame:
        """Return groups of neighbouring places, one a row: first and last place, how many prompts, and the scores.

        Places count from 0. Each score is a mean with the ends of its 95% interval, ``low`` and ``high``.
        """
        columns = {name: f"group_{name}" for name in ("first", "last", "prompts")}
        for score in OF_TASK[str(self.results.attrs["task"])]:
            columns |= {score if end == "mean" else f"{score}_{end}": f"{score}_{end}" for end in ENDS}
        table = pd.DataFrame({name: self.results[column].values for name, column in columns.items()})
        return table.rename_axis("group")

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
        file = checked_path(path, ".nc")
        write_lookup(file, self.results)
        return file

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
    return Found(read_lookup(checked_path(path, ".nc")))

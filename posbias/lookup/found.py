"""What a lookup found, for those who ask in Python: numbers by place, what they say, a file and a report."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd

from posbias.files import check_writable
from posbias.lookup.file import ENDS, described, read_lookup, summary_lines, title, write_lookup
from posbias.lookup.tasks import OF_TASK, Task
from posbias.measure.measurement import checked_path, extra
from posbias.measure.settings import Settings
from posbias.notebook import shown

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measure.biases import Described


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
        x, scores = self.results, OF_TASK[str(self.results.attrs["task"])]
        names = [name if end == "mean" else f"{name}_{end}" for name in scores for end in ENDS]
        columns = dict(zip(names, (f"{name}_{end}" for name in scores for end in ENDS), strict=True))
        columns = {"first": "group_first", "last": "group_last", "prompts": "group_prompts"} | columns
        return pd.DataFrame({name: x[column].values for name, column in columns.items()}).rename_axis("group")

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

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the report with figures, one file (.html), and return its path.

        Raises
        ------
        ValueError
            If the name does not end in .html.
        OSError
            If it cannot be written.
        """
        file = check_writable(checked_path(path, ".html"))
        with extra("book"):
            from posbias.report.lookup_page import write_lookup_report
        return write_lookup_report(file, self.results)

    def _repr_html_(self) -> str:
        names = ("prompts", "over all prompts", "by place", "like a profile", "order")
        facts = zip(names, (described(self.results), *[*summary_lines(self.results)][1:]), strict=False)
        return shown(title(self.results), [*facts])

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


def ask(
    settings: Settings,
    task: Task,
    profiled: int,
    bias: Described | None,
    temperature: float,
    *,
    output: Path | None = None,
    **options: Any,
) -> Found | None:
    """Ask a model for what is at each place of its prompts, with one change to it at most.

    None comes back in processes other than the first. Options are those of :func:`~posbias.lookup.run.look_up`.
    """
    from posbias.lookup.run import Lookup, changed, look_up

    asked = Lookup(settings, task, profiled, changed(settings.source, bias, temperature))
    with TemporaryDirectory() as folder:
        results = look_up(asked, output or Path(folder) / "found.nc", **options)
    return None if results is None else Found(results)

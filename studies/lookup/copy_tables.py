"""How models copy by place, beside what their prompts' profiles say: a row for each retrieval that was kept."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from posbias import errors
from posbias.lookup.file import read_retrieval
from posbias.lookup.prompt_profiles import MEASURED

ROLLOUTS = {"c": "formula", "kernels": "rollout"}
"""Predictions that are compared: with content weights of a formula, and with measured attention."""


def copy_table(folder: Path | str) -> pd.DataFrame:
    """Return what models gain from the first occurrence of a segment, by where it stands.

    Parameters
    ----------
    folder
        Of files NAME.nc that ``posbias retrieval --task copy`` wrote.

    Returns
    -------
    table : DataFrame
        A row for each model: ``gain`` (nats a token) with ``gain_low`` and ``gain_high``; ``first``, ``middle``,
        ``last``, the means of a sixteenth of the places; ``p``, of no difference between places; Spearman's correlation
        of gain and profile over sixteenths, for ``influence`` (measured) and :data:`ROLLOUTS`, with intervals.

    Raises
    ------
    ValueError
        If there is no file, or one is no retrieval.
    """
    paths = sorted(Path(folder).glob("*.nc"))
    if not paths:
        raise errors.invalid(str(folder), "files of posbias retrieval --task copy", "none")
    rows = {}
    for path in paths:
        found = read_retrieval(path)
        if found.attrs["task"] != "copy":
            raise errors.invalid(str(path), "a retrieval with --task copy", found.attrs["task"])
        mean = found["gain_mean"].values
        row = dict(zip(("gain", "gain_low", "gain_high"), found["overall"].sel(score="gain").values, strict=True))
        row |= {"first": mean[0], "middle": mean[len(mean) // 2], "last": mean[-1]}
        row["p"] = float(found["difference_p_value"].sel(score="gain"))
        for name, column in {MEASURED: "influence", **ROLLOUTS}.items():
            ranks = found["rank_correlation"].sel(profile_name=name, score="gain").values
            row |= dict(zip((column, f"{column}_low", f"{column}_high"), ranks, strict=True))
        rows[path.stem] = row
    return pd.DataFrame(rows).T

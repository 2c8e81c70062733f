"""Models trained from several seeds, side by side.

Prompts are the same for every seed, so that what differs between seeds is training alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import xarray as xr

Seeds = Mapping[str, dict[int, xr.Dataset]]
"""Model → seed → measurement, of :func:`studies.results.seeds_of`."""


def complete(seeds: Seeds, wanted: int = 3) -> dict[str, dict[int, xr.Dataset]]:
    """Return the models that have as many seeds as wanted, or more."""
    return {model: files for model, files in seeds.items() if len(files) >= wanted}


def by_seed(seeds: Seeds) -> dict[str, xr.Dataset]:
    """Return measurements by MODEL.seed-SEED, so that tables of many models take each seed for a model of its own.

    >>> by_seed({"bloom-8": {0: xr.Dataset(), 2: xr.Dataset()}}).keys()
    dict_keys(['bloom-8.seed-0', 'bloom-8.seed-2'])
    """
    return {f"{model}.seed-{seed}": x for model, files in seeds.items() for seed, x in files.items()}


def split_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with ``model`` as in :func:`by_seed` with the two in columns of their own, ``model`` and ``seed``.

    >>> split_seeds(pd.DataFrame({"model": ["bloom-8.seed-2"], "W1": [0.1]})).to_dict("records")
    [{'model': 'bloom-8', 'W1': 0.1, 'seed': 2}]
    """
    names = table["model"].str.rsplit(".seed-", n=1)
    return table.assign(model=names.str[0], seed=names.str[1].astype(int))


def range_text(values: pd.Series, form: str) -> str:
    """Return the smallest and the largest of some numbers as words, and that there are none if there are none.

    >>> range_text(pd.Series([2.0, 1.0]), ".1f"), range_text(pd.Series([1.0, 1.04]), ".1f"), range_text(pd.Series(), "")
    ('1.0 to 2.0', '1.0', 'none measured')
    """
    if values.empty:
        return "none measured"
    low, high = f"{values.min():{form}}", f"{values.max():{form}}"
    return low if low == high else f"{low} to {high}"

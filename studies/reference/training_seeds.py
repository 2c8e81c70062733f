"""Models trained from several seeds: numbers of each, their spread over seeds, and that over prompts beside it.

Prompts are the same for every seed, so that what differs between seeds is training alone; what differs between prompts
is had by leaving out groups of them, or drawing them anew, a module's prompts together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

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


def jackknife_error(without: Float[np.ndarray, "G ..."]) -> Float[np.ndarray, "..."]:
    """Return the standard error of a statistic from its values without each of G groups, √((G-1)/G Σ (θ_g - θ̄)²).

    Source: the delete-a-group jackknife (Efron and Tibshirani 1993, chapter 11).

    >>> x = np.array([1.0, 2.0, 6.0])  # of a mean it is the usual one
    >>> abs(jackknife_error((x.sum() - x) / 2) - x.std(ddof=1) / 3**0.5) < 1e-12
    np.True_
    """
    G = len(without)
    return np.asarray(np.sqrt((G - 1) / G * ((without - without.mean(0)) ** 2).sum(0)))


SPREADS = ("over_seeds", "over_prompts", "ratio")
"""Columns of :func:`spread_table` beside those of the seeds."""


def spread_table(
    seeds: Seeds, value: Callable[[xr.Dataset], float], error: Callable[[xr.Dataset], float]
) -> pd.DataFrame:
    """Return a number of each model from each seed, its spread over seeds, and its error from prompts."""
    rows = {}
    for model, files in seeds.items():
        values = {f"seed {seed}": value(x) for seed, x in files.items()}
        over_seeds = float(np.std(list(values.values()), ddof=1))
        over_prompts = float(np.mean([error(x) ** 2 for x in files.values()]) ** 0.5)
        ratio = over_seeds / over_prompts if over_prompts else float("inf")
        rows[model] = values | {"over_seeds": over_seeds, "over_prompts": over_prompts, "ratio": ratio}
    found = pd.DataFrame.from_dict(rows, orient="index", columns=None if rows else list(SPREADS))
    return found[[*sorted(set(found) - set(SPREADS)), *SPREADS]].rename_axis("model")

"""What the paper says about its tables of distances, decided from the printed numbers and their rounding alone.

The gain of a model on a data set is W(b) - W(c), both as printed: positive where content brings the rollout nearer to
the measurement. Two equal prints are a tie; a gain of one unit or more has a certain sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from posbias import errors
from studies.published.table_errors import UNIT

if TYPE_CHECKING:
    from pandas import DataFrame

Siblings = Mapping[str, str]
"""The larger model of a family by the smaller one."""


def distance_tables(entries: DataFrame) -> dict[str, DataFrame]:
    """Return printed distances of one table by variant, each with a row for a model and a column for a data set.

    Parameters
    ----------
    entries
        With the columns model, dataset, variant and printed; of one table, with one entry for each place.

    Raises
    ------
    ValueError
        If a place has two entries, or none.
    """
    if entries.duplicated(["model", "dataset", "variant"]).any():
        raise errors.invalid("entries", "one for each model, data set and variant", "several for some")
    models, datasets = entries["model"].unique(), entries["dataset"].unique()
    tables = {}
    for variant, rows in entries.groupby("variant", sort=False):
        table = rows.pivot(index="model", columns="dataset", values="printed").reindex(models, columns=datasets)
        if table.isna().any(axis=None):
            raise errors.invalid("entries", "one for each model, data set and variant", f"none for some of {variant}")
        tables[str(variant)] = table
    return tables


def gains(entries: DataFrame) -> DataFrame:
    """Return W(b) - W(c) in whole units of the last digit, a row for a model and a column for a data set.

    >>> import pandas as pd
    >>> entries = pd.DataFrame({"model": "m", "dataset": "d", "variant": ["b", "c"], "printed": [0.16, 0.05]})
    >>> gains(entries).loc["m", "d"].item()
    11
    """
    tables = distance_tables(entries)
    return ((tables["b"] - tables["c"]) / UNIT).round().astype(int)


def closest_without_content(units: DataFrame) -> bool:
    """Return whether (b) is nearer than (c) in more than half of the places, ties counted for (c)."""
    return bool(2 * (units < 0).to_numpy().sum() > units.size)


def refines_larger(units: DataFrame, siblings: Siblings) -> bool:
    """Return whether content gains in every larger model on every data set, and more than in its sibling.

    More by over two units, the most that the rounding of four numbers can make of nothing.
    """
    large, small = units.loc[list(siblings.values())].to_numpy(), units.loc[list(siblings)].to_numpy()
    return bool((large > 0).all() and (large - small > 2).all())


def closer_in_larger(table: DataFrame, siblings: Siblings) -> int:
    """Return in how many places the larger model's printed distance is below its sibling's."""
    large, small = table.loc[list(siblings.values())].to_numpy(), table.loc[list(siblings)].to_numpy()
    return int((large - small < -UNIT / 2).sum())


def relabelled(table: DataFrame) -> Iterator[DataFrame]:
    """Yield the table with its rows under other models' names, in every order but its own."""
    for order in permutations(range(len(table))):
        if order != tuple(range(len(table))):
            yield table.iloc[list(order)].set_axis(table.index)


@dataclass(frozen=True)
class OverModels:
    """Say what a statement about gains rests on, with the model as the unit.

    Parameters
    ----------
    nearer_b, nearer_c, tied
        Places in which (b) or (c) is nearer, or neither by the printed digits.
    models_b, models_c
        Models whose gains sum to less than 0, or to more.
    sign_p
        Two-sided p value of the sign test over models.
    rank, rank_p
        Spearman's correlation of a model's mean gain with its size, and the exact p value over all orders, two-sided.
    """

    nearer_b: int
    nearer_c: int
    tied: int
    models_b: int
    models_c: int
    sign_p: float
    rank: float
    rank_p: float


def over_models(units: DataFrame, sizes: Mapping[str, int | float]) -> OverModels:
    """Return what gains say, once places are counted and once models: a model's places share one rollout.

    Parameters
    ----------
    units
        As :func:`gains` returns them, 3 to 8 models.
    sizes
        Of each model, in any unit.

    Raises
    ------
    ValueError
        If there are fewer models or more.

    >>> import pandas as pd
    >>> units = pd.DataFrame({"d": [-1, 2, 3]}, index=["x", "y", "z"])
    >>> found = over_models(units, {"x": 7, "y": 30, "z": 176})
    >>> found.models_c, round(found.rank, 6), round(found.rank_p, 4)
    (2, 1.0, 0.3333)
    """
    from scipy.stats import binomtest, permutation_test, spearmanr

    if not 3 <= len(units) <= 8:
        raise errors.invalid("units", "3 to 8 models", len(units))
    total, places = units.sum(axis=1).to_numpy(), units.to_numpy()
    below, above = int((total < 0).sum()), int((total > 0).sum())
    size = np.array([sizes[name] for name in units.index], dtype=float)

    def rank(one: np.ndarray) -> float:
        return float(spearmanr(one, size).statistic)

    found = permutation_test((total,), rank, permutation_type="pairings", vectorized=False, n_resamples=np.inf)
    return OverModels(
        nearer_b=int((places < 0).sum()),
        nearer_c=int((places > 0).sum()),
        tied=int((places == 0).sum()),
        models_b=below,
        models_c=above,
        sign_p=float(binomtest(below, below + above).pvalue) if below + above else 1.0,
        rank=float(found.statistic),
        rank_p=float(found.pvalue),
    )

"""Checks of recency probabilities, as functions of the table they check: growth, residual, early turn, the print."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import chi2

from studies.norms.recency_grid import SMALLEST, growth

SURE = 4.0
"""Standard errors beyond which a difference is none of chance, over some hundred comparisons."""


def rises(grid: pd.DataFrame) -> bool:
    """Tell whether every curve over α nowhere falls by 4 standard errors, and ends 10 above where it began.

    Parameters
    ----------
    grid
        Rows of :func:`~studies.norms.recency_grid.read_grid`: of each setting one for each α.
    """
    curves = growth(grid)
    return bool((curves["fall"] < SURE).all() and (curves["clear"] > 10).all())


def print_is_met(beside: pd.DataFrame, digits: int = 4) -> bool:
    """Tell whether printed probabilities are ours: each alone, and all together.

    Each differs by less than 4 of our standard errors beyond the rounding of the print and by less than 5 units of its
    last digit. Together, squared differences over their variance, our error's and that of rounding, have a sum that
    chance exceeds in more than one of a thousand cases.

    Parameters
    ----------
    beside
        Of :func:`~studies.norms.recency_grid.beside_print`.
    digits
        Decimals of the print.
    """
    error = np.hypot(beside["error"].clip(lower=SMALLEST), 10.0**-digits / 12**0.5)
    together = float(((beside["difference"] / error) ** 2).sum())
    each = (beside["beyond"] < SURE).all() and beside["difference"].max() < 5 * 10.0**-digits
    return bool(each and together < chi2.ppf(0.999, len(beside)))


def residual_weakens(grid: pd.DataFrame) -> bool:
    """Tell whether a residual nowhere raises the recency probability, and leaves it above 1/2 where it is strong.

    Strong is d < 256 and α of 0.4 or more; a residual must leave it 5 standard errors above 1/2 there, and lower it by
    4 at least.

    Parameters
    ----------
    grid
        Rows with LayerNorm, of both networks in each setting.
    """
    by = ["d", "alpha", "layer"]
    bare, mixed = (grid[grid["residual"] == kind].set_index(by).sort_index() for kind in ("none", "pre"))
    error = np.hypot(bare["error"], mixed["error"])
    more = (mixed["probability"] - bare["probability"]) / error.clip(lower=SMALLEST)
    strong = mixed.query("d < 256 and alpha >= 0.4")
    still = strong["probability"] > 0.5 + 5 * strong["error"]
    return bool((more < SURE).all() and (more.loc[strong.index] < -SURE).all() and still.all())


def turns_early(grid: pd.DataFrame) -> bool:
    """Tell whether layer 3 prefers early tokens by 10 standard errors, and layer 4 no less, in every setting.

    Parameters
    ----------
    grid
        Rows without a norm and without a residual.
    """
    table = grid.set_index(["d", "alpha", "layer"])
    p, error = (table[column].unstack("layer") for column in ("probability", "error"))
    return bool((p[3] < 0.5 - 10 * error[3]).all() and (p[4] <= p[3]).all())


def disappears(grid: pd.DataFrame) -> bool:
    """Tell whether no row prefers the later key: at most 4 standard errors above 1/2.

    Parameters
    ----------
    grid
        Rows with ``probability`` and ``error``.

    >>> disappears(pd.DataFrame({"probability": [0.5, 0.3], "error": [0.01, 0.01]}))
    True
    """
    return bool((grid["probability"] <= 0.5 + SURE * grid["error"]).all())


def altered(grid: pd.DataFrame, rows: Sequence[int] | np.ndarray, by: float) -> pd.DataFrame:
    """Return the grid with the probabilities of some rows, counted from 0, changed by a number.

    >>> altered(pd.DataFrame({"probability": [0.5, 0.25]}), [1], 0.25)["probability"].tolist()
    [0.5, 0.5]
    """
    probability = grid["probability"].to_numpy(copy=True)
    probability[np.asarray(rows)] += by
    return grid.assign(probability=probability)


def shuffled(grid: pd.DataFrame, column: str, by: Sequence[str], seed: int) -> pd.DataFrame:
    """Return the grid with a column's values shuffled within each group: a null of no order.

    Parameters
    ----------
    grid, column
        Rows, and the column whose values change places.
    by
        Columns that make a group.
    seed
        Of the shuffle.

    >>> table = pd.DataFrame({"a": [0, 0, 1], "x": [1, 2, 3]})
    >>> sorted(shuffled(table, "x", ["a"], 0)["x"][:2].tolist()), shuffled(table, "x", ["a"], 0)["x"][2]
    ([1, 2], np.int64(3))
    """
    rng = np.random.default_rng(seed)
    values = grid[column].to_numpy(copy=True)
    for places in grid.groupby(list(by)).indices.values():
        values[places] = rng.permutation(values[places])
    return grid.assign(**{column: values})

"""Errors put into a printed table, to see which of them its tests notice: moved, exchanged and misplaced numbers.

A table is a frame with a row for each thing that is tested. A test says of each row whether its printed numbers are
possible; an error is the frame with one row changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from posbias import errors

if TYPE_CHECKING:
    from pandas import DataFrame

UNIT = 0.01
"""One unit of the last printed digit; a printed number is at most half of it from the exact one."""

RowTest = Callable[["DataFrame"], Bool[np.ndarray, "rows"]]
"""Says for each row of a table whether its printed numbers are possible."""


def by_distance(rows: DataFrame) -> Bool[np.ndarray, "rows"]:
    """Return whether what is computed rounds to what is printed, in every pair of columns computed_v, printed_v.

    >>> import pandas as pd
    >>> by_distance(pd.DataFrame({"printed_b": [0.08, 0.01], "computed_b": [0.079, 0.016]})).tolist()
    [True, False]
    """
    off = [np.abs(rows[f"computed_{v}"] - rows[f"printed_{v}"]) for v in _tested(rows, "computed_")]
    return np.all([x <= UNIT / 2 for x in off], axis=0)


def by_mean(rows: DataFrame) -> Bool[np.ndarray, "rows"]:
    """Return whether printed_v can be the distance of profiles whose means are at least least_v apart, for every v.

    >>> import pandas as pd
    >>> by_mean(pd.DataFrame({"printed_b": [0.08, 0.08], "least_b": [0.084, 0.086]})).tolist()
    [True, False]
    """
    return np.all([rows[f"printed_{v}"] + UNIT / 2 >= rows[f"least_{v}"] for v in _tested(rows, "least_")], axis=0)


def by_pair(rows: DataFrame) -> Bool[np.ndarray, "rows"]:
    """Return whether printed_b and printed_c can be distances of two profiles, apart from each other, to a third.

    The triangle inequality, |W_b - W_c| ≤ apart ≤ W_b + W_c, within the rounding of both.
    """
    b, c = rows["printed_b"], rows["printed_c"]
    return np.asarray(((b - c).abs() <= rows["apart"] + UNIT) & (rows["apart"] <= b + c + UNIT))


def unnoticed(test: RowTest, tables: Iterable[DataFrame]) -> list[bool]:
    """Return for each table whether every row passes the test."""
    return [bool(test(table).all()) for table in tables]


def moved(rows: DataFrame, columns: Sequence[str], amount: float) -> Iterator[DataFrame]:
    """Yield the table with one number larger or smaller by an amount, in turn; none becomes negative.

    Raises
    ------
    ValueError
        If the amount is not positive.

    >>> import pandas as pd
    >>> [x["W"].tolist() for x in moved(pd.DataFrame({"W": [0.5, 0.25]}), ["W"], 0.25)]
    [[0.25, 0.25], [0.75, 0.25], [0.5, 0.0], [0.5, 0.5]]
    """
    if not amount > 0:
        raise errors.invalid("amount", "a positive number", amount)
    for index in rows.index:
        for column in columns:
            for sign in (-1, 1):
                found = rows.loc[index, column] + sign * amount
                if found > -1e-9:
                    yield _with(rows, index, {column: found})


def exchanged(rows: DataFrame, one: str, other: str) -> Iterator[DataFrame]:
    """Yield the table with the numbers of two columns exchanged in one row, in turn.

    >>> import pandas as pd
    >>> [x.to_numpy().tolist() for x in exchanged(pd.DataFrame({"b": [0.5, 0.0], "c": [0.25, 1.0]}), "b", "c")]
    [[[0.25, 0.5], [0.0, 1.0]], [[0.5, 0.25], [1.0, 0.0]]]
    """
    for index in rows.index:
        yield _with(rows, index, {one: rows.loc[index, other], other: rows.loc[index, one]})


def misplaced(rows: DataFrame, columns: Sequence[str]) -> Iterator[DataFrame]:
    """Yield the table with one row holding the numbers of another, in turn; rows that differ in nothing are left out.

    >>> import pandas as pd
    >>> [x["W"].tolist() for x in misplaced(pd.DataFrame({"W": [0.5, 0.25]}), ["W"])]
    [[0.25, 0.25], [0.5, 0.5]]
    """
    for index in rows.index:
        for other in rows.index:
            values = {column: rows.loc[other, column] for column in columns}
            if any(rows.loc[index, column] != value for column, value in values.items()):
                yield _with(rows, index, values)


def _tested(rows: DataFrame, prefix: str) -> list[str]:
    """Return the variants v for which the table has a column prefix + v."""
    tested = [name.removeprefix(prefix) for name in rows.columns if name.startswith(prefix)]
    if not tested:
        raise errors.invalid("rows", f"a column {prefix}…", ", ".join(map(str, rows.columns)))
    return tested


def _with(rows: DataFrame, index: object, values: dict[str, float]) -> DataFrame:
    table = rows.copy()
    for column, value in values.items():
        table.loc[index, column] = value
    return table

"""Printed tables of distances against the rollouts they are about: entries, tests, errors put in, and statements.

Frames have a row for each printed distance, with the columns of :func:`entry_frame`. A distance from a known profile
confines the mean of the other, |mean(q) - mean(p)| ≤ W₁(p, q): a range is a pair (low, high) of mean positions, empty
if low > high. The gain of a model on a data set is W(b) - W(c), both as printed: positive where content brings the
rollout nearer to the measurement. Two equal prints are a tie; a gain of one unit or more has a certain sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from pandas import DataFrame, Series

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein
from posbias.published import numbers
from posbias.published.architectures import architecture_faithful
from posbias.published.configuration import RolloutConfig
from posbias.rollout.profiles import mean_position

VARIANTS = {"a": "(a) attention only", "b": "(b) with residual", "c": "(c) residual and content"}
"""The rollouts of the paper by their letters: λ = 1 and no content; measured λ; measured λ and content."""

READINGS = {
    "as published": (False, False),
    "slopes only": (True, False),
    "content only": (False, True),
    "both": (True, True),
}
"""What is taken from the architecture in place of the file: slopes, scale of the content logits."""


def variant_config(
    model: str, variant: str, n: int, dataset: str = "fineweb-edu", reading: str = "as published"
) -> RolloutConfig:
    """Return the configuration of one variant of a model's rollout for n tokens.

    Source: residual-aware paper, section 6.2.

    >>> float(variant_config("mpt-7b", "a", 8).lambdas().min())
    1.0
    """
    config = numbers.config(model, "all", dataset).at_length(n)
    config = config if variant == "c" else config.without_content()
    config = config.without_residual() if variant == "a" else config
    slopes, content = READINGS[reading]
    described = numbers.MODELS[model]
    return architecture_faithful(config, described.family, described.head_dim, slopes=slopes, content=content)


@cache
def variant_profile(
    model: str, variant: str, n: int, dataset: str = "fineweb-edu", reading: str = "as published"
) -> Float[np.ndarray, "n"]:
    """Return the influence profile of :func:`variant_config`; computed once, and not to be written to.

    >>> variant_profile("mpt-7b", "b", 4).round(2).tolist()
    [0.74, 0.15, 0.07, 0.04]
    """
    p = variant_config(model, variant, n, dataset, reading).profile()
    p.flags.writeable = False
    return p


def reading_frame(n: int) -> DataFrame:
    """Return the mean position of variants (b) and (c) of every model in every reading, for n tokens.

    One row each, with the columns model, label, variant, reading and mean (0 first token, 1 last).
    """
    rows = [
        (name, described.label, variant, reading, mean_position(variant_profile(name, variant, n, reading=reading)))
        for name, described in numbers.MODELS.items()
        for variant in "bc"
        for reading in READINGS
    ]
    return pd.DataFrame(rows, columns=["model", "label", "variant", "reading", "mean"])


CORPUS_LABELS = {"fineweb-edu": "FineWeb-Edu", "dclm": "DCLM", "wikipedia": "Wikipedia"}
"""The data sets as the paper names them."""


def entry_frame(*, own_schedule: bool = False, reading: str = "as published") -> DataFrame:
    """Return every printed distance with what the published files say about its rollout.

    Low and high round to what is printed, mean is that of the rollout, schedule the data set of its mixing: with
    ``own_schedule`` (b) has that of its own data set, where the authors' notebook takes that of FineWeb-Edu.

    Source: residual-aware paper, tables 2 to 4.

    >>> entries = entry_frame()
    >>> entries.query("table == 2 and model == 'bloom'")["printed"].tolist()
    [0.65, 0.08, 0.01]
    """
    rows = []
    for entry in numbers.printed_tables():
        own = own_schedule or entry.variant == "c"
        schedule = entry.dataset if own else numbers.CORPORA[0]
        p = variant_profile(entry.model, entry.variant, entry.n, schedule, reading)
        where = {"table": entry.table, "n": entry.n, "dataset": entry.dataset, "corpus": CORPUS_LABELS[entry.dataset]}
        where |= {"model": entry.model, "label": numbers.MODELS[entry.model].label, "variant": entry.variant}
        found = {"printed": entry.wasserstein, "low": entry.low, "high": entry.high}
        rows.append(where | found | {"schedule": schedule, "mean": mean_position(p)})
    return pd.DataFrame(rows)


Range = tuple[float, float]
WHOLE: Range = (0.0, 1.0)
"""Every mean position that there is."""


def allowed_means(mean: float, distance: float) -> Range:
    """Return the means in [0, 1] that a profile at most ``distance`` away from one with ``mean`` may have.

    >>> allowed_means(0.75, 0.5)
    (0.25, 1.0)
    """
    return overlap((mean - distance, mean + distance), WHOLE)


def overlap(*ranges: Range) -> Range:
    """Return what all ranges have in common: the largest low and the smallest high.

    >>> overlap((0.0, 0.5), (0.25, 1.0))
    (0.25, 0.5)
    """
    return max(low for low, _ in ranges), min(high for _, high in ranges)


def gaps_to(mean: float, means: Range) -> Range:
    """Return the smallest and the largest |mean - x| over x in a range.

    >>> gaps_to(0.5, (0.25, 0.625))
    (0.0, 0.25)
    """
    ends = [mean - x for x in means]
    smallest = 0.0 if min(ends) <= 0 <= max(ends) else min(map(abs, ends))
    return smallest, max(map(abs, ends))


def shown(means: Range) -> str:
    """Return a range as text.

    >>> shown((0.25, 0.5)), shown((0.5, 0.25))
    ('0.250 to 0.500', 'none (gap 0.250)')
    """
    low, high = means
    return f"{low:.3f} to {high:.3f}" if low <= high else f"none (gap {low - high:.3f})"


def vote(old: float, new: float, means: Range) -> str:
    """Say which way a corrected mean moves: towards every allowed mean, away from every one, or open.

    |new - x| - |old - x| is linear in x between old and new and constant outside, so that its extremes over the
    range are at the range's ends or at old and new.

    >>> vote(0.2, 0.4, (0.6, 0.7)), vote(0.5, 0.8, (0.6, 0.7))
    ('towards', 'open')
    """
    low, high = means
    if abs(new - old) < 1e-12:
        return "unchanged"
    at = np.clip([low, high, old, new], low, high)
    change = np.abs(new - at) - np.abs(old - at)
    if change.max() < 0:
        return "towards"
    return "away" if change.min() > 0 else "open"


UNIT = 0.01
"""One unit of the last printed digit; a printed number is at most half of it from the exact one."""

RowTest = Callable[["DataFrame"], Bool[np.ndarray, "rows"]]
"""Says for each row of a table whether its printed numbers are possible."""


def by_distance(rows: DataFrame) -> Bool[np.ndarray, "rows"]:
    """Return whether what is computed rounds to what is printed, in every pair of columns computed_v, printed_v.

    >>> by_distance(pd.DataFrame({"printed_b": [0.08, 0.01], "computed_b": [0.079, 0.016]})).tolist()
    [True, False]
    """
    off = [np.abs(rows[f"computed_{v}"] - rows[f"printed_{v}"]) for v in _tested(rows, "computed_")]
    return np.all([x <= UNIT / 2 for x in off], axis=0)


def by_mean(rows: DataFrame) -> Bool[np.ndarray, "rows"]:
    """Return whether printed_v can be the distance of profiles whose means are at least least_v apart, for every v.

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

    >>> [x["W"].tolist() for x in moved(pd.DataFrame({"W": [0.5, 0.25]}), ["W"], 0.25)]
    [[0.25, 0.25], [0.75, 0.25], [0.5, 0.0], [0.5, 0.5]]
    """
    for index in rows.index:
        for column in columns:
            for sign in (-1, 1):
                found = rows.loc[index, column] + sign * amount
                if found > -1e-9:
                    yield _with(rows, index, {column: found})


def exchanged(rows: DataFrame, one: str, other: str) -> Iterator[DataFrame]:
    """Yield the table with the numbers of two columns exchanged in one row, in turn.

    >>> [x.to_numpy().tolist() for x in exchanged(pd.DataFrame({"b": [0.5, 0.0], "c": [0.25, 1.0]}), "b", "c")]
    [[[0.25, 0.5], [0.0, 1.0]], [[0.5, 0.25], [1.0, 0.0]]]
    """
    for index in rows.index:
        yield _with(rows, index, {one: rows.loc[index, other], other: rows.loc[index, one]})


def misplaced(rows: DataFrame, columns: Sequence[str]) -> Iterator[DataFrame]:
    """Yield the table with one row holding the numbers of another, in turn; rows that differ in nothing are left out.

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
    if not tested:  # nothing would be found possible
        raise errors.invalid("rows", f"a column {prefix}…", ", ".join(map(str, rows.columns)))
    return tested


def _with(rows: DataFrame, index: object, values: dict[str, float]) -> DataFrame:
    table = rows.copy()
    for column, value in values.items():
        table.loc[index, column] = value
    return table


ProfileOf = Callable[[str, str, int, str], Float[np.ndarray, "n"]]
"""Returns the profile of a model's variant for n tokens with the schedule of a data set."""

PLACE = ["table", "n", "dataset", "model"]
KEPT = [*PLACE, "label", "corpus"]


def means_by_collapse(entries: DataFrame) -> DataFrame:
    """Return the measured mean of each model that the printed distance of variant (a) allows.

    A rollout that has collapsed onto the first token is as far from a profile as that profile's mean, up to the
    mean of the rollout itself.
    """
    collapsed = entries.query("variant == 'a'").set_index("model")
    return pd.DataFrame({"low": collapsed["low"] - collapsed["mean"], "high": collapsed["high"] + collapsed["mean"]})


def identity_frame(entries: DataFrame, means: DataFrame) -> DataFrame:
    """Return entries (b) and (c) with the range of |mean(p) - measured mean| and what the mean identity says.

    Columns least and largest are the range, short is by how much the printed distance is below it, identity is
    ``meets`` in it, ``if they cross`` above it and ``impossible`` below it.
    """
    chosen = entries.query("variant != 'a'")
    gaps = [gaps_to(row.mean, tuple(means.loc[row.model, ["low", "high"]])) for row in _rows(chosen)]
    chosen = chosen.assign(least=[least for least, _ in gaps], largest=[largest for _, largest in gaps])
    chosen = chosen.assign(short=chosen["least"] - chosen["high"])
    verdict = np.where(chosen["low"] <= chosen["largest"], "meets", "if they cross")
    return chosen.assign(identity=np.where(chosen["short"] > 0, "impossible", verdict))


def pair_frame(entries: DataFrame, profile: ProfileOf) -> DataFrame:
    """Return what the entries (b) and (c) of one model, table and data set say together.

    Low and high are the measured means that both allow, room whether there are any; apart is the distance of the two
    rollouts, rigid whether |W_b - W_c| ≤ apart within rounding, consistent whether moreover apart ≤ W_b + W_c.
    """
    rows = []
    for _, pair in entries.query("variant != 'a'").groupby(PLACE, sort=False):
        b, c = (pair.query("variant == @v").iloc[0] for v in "bc")
        apart = normalised_wasserstein(*(profile(x.model, x.variant, x.n, x.schedule) for x in (b, c)))
        low, high = overlap(*(allowed_means(x["mean"], x.high) for x in (b, c)))
        rigid = abs(b.printed - c.printed) <= apart + UNIT
        found = {"printed_b": b.printed, "printed_c": c.printed, "mean_b": b["mean"], "mean_c": c["mean"]}
        found |= {"apart": apart, "low": low, "high": high, "room": low <= high, "rigid": rigid}
        rows.append({**b[KEPT], **found})
    pairs = pd.DataFrame(rows)
    return pairs.assign(consistent=by_pair(pairs))


def judged_frame(entries: DataFrame, profile: ProfileOf, measured: Mapping[str, Float[np.ndarray, "n"]]) -> DataFrame:
    """Return the entries of tables 3 and 4 with a verdict and its reason, by the strongest test that there is.

    The tests, strongest first: the distance itself, for the models and prompt length of a measured curve; the
    measured mean that (a) of table 2 gives; and the partner in the same table. The first two are for FineWeb-Edu
    at the length of table 2.
    """
    of_2 = entries.query("table == 2")
    identity = identity_frame(of_2, means_by_collapse(of_2)).set_index(["model", "variant"])
    pairs = pair_frame(entries, profile).set_index(PLACE)
    chosen = entries.query("table > 2")
    found = []
    for row in _rows(chosen):
        if row.table == 4 or row.dataset != "fineweb-edu":
            found.append(_by_partner(pairs.loc[(row.table, row.n, row.dataset, row.model)]))
        elif row.model in measured:
            p = profile(row.model, row.variant, row.n, row.schedule)
            found.append(_by_distance(row, normalised_wasserstein(p, measured[row.model])))
        else:
            found.append(_by_mean(identity.loc[(row.model, row.variant)]))
    means = [allowed_means(row.mean, row.high) for row in _rows(chosen)]
    chosen = chosen.assign(low_mean=[low for low, _ in means], high_mean=[high for _, high in means])
    return chosen.assign(verdict=[_verdict(holds) for holds, _ in found], why=[why for _, why in found])


def _rows(frame: DataFrame) -> list[Any]:
    """Return the rows of a frame as named tuples, without the index."""
    return list(frame.itertuples(index=False))


def _verdict(holds: bool) -> str:
    return "consistent" if holds else "not consistent"


def _by_distance(row: Any, distance: float) -> tuple[bool, str]:
    return bool(row.low <= distance <= row.high), f"the distance is {distance:.4f}"


def _by_mean(row: Series) -> tuple[bool, str]:
    by = f", by {row['short']:.4f}" if row["short"] > 0 else ""
    return bool(row["short"] <= 0), f"by the mean that (a) gives: {row['identity']}{by}"


def _by_partner(row: Series) -> tuple[bool, str]:
    if not row["consistent"]:
        return False, f"(b), (c) exclude each other: rollouts {row['apart']:.3f} apart"
    return True, f"(b) and (c) allow means from {shown((row['low'], row['high']))}"


Siblings = Mapping[str, str]
"""The larger model of a family by the smaller one."""


def distance_tables(entries: DataFrame) -> dict[str, DataFrame]:
    """Return printed distances of one table by variant, each with a row for a model and a column for a data set."""
    models, datasets = entries["model"].unique(), entries["dataset"].unique()
    tables = {}
    for variant, rows in entries.groupby("variant", sort=False):
        table = rows.pivot(index="model", columns="dataset", values="printed").reindex(models, columns=datasets)
        tables[str(variant)] = table
    return tables


def gains(entries: DataFrame) -> DataFrame:
    """Return W(b) - W(c) in whole units of the last digit, a row for a model and a column for a data set.

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
    """Say what a statement about gains rests on, with the model as the unit."""

    nearer_b: int  # Places in which (b) or (c) is nearer, or neither by the printed digits
    nearer_c: int
    tied: int
    models_b: int  # Models whose gains sum to less than 0, or to more
    models_c: int
    sign_p: float  # Two-sided p value of the sign test over models
    rank: float  # Spearman's correlation of a model's mean gain with its size
    rank_p: float  # The exact p value over all orders, two-sided


def over_models(units: DataFrame, sizes: Mapping[str, int | float]) -> OverModels:
    """Return what gains say, once places are counted and once models: a model's places share one rollout.

    >>> units = pd.DataFrame({"d": [-1, 2, 3]}, index=["x", "y", "z"])
    >>> found = over_models(units, {"x": 7, "y": 30, "z": 176})
    >>> found.models_c, round(found.rank, 6), round(found.rank_p, 4)
    (2, 1.0, 0.3333)
    """
    from scipy.stats import binomtest, permutation_test, spearmanr

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

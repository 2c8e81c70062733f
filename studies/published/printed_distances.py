"""Printed distances held against the means of their rollouts: what rounding and the triangle inequality allow.

The frames have a row for each printed distance, with the columns of
:func:`studies.published.entries.entry_frame`: table, n, dataset, model, variant, printed, low, high and mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein
from studies.published.allowed_means import allowed_means, gaps_to, overlap, shown
from studies.published.table_errors import UNIT, by_pair

if TYPE_CHECKING:
    from pandas import DataFrame, Series

ProfileOf = Callable[[str, str, int, str], Float[np.ndarray, "n"]]
"""Returns the profile of a model's variant for n tokens with the schedule of a data set."""

PLACE = ["table", "n", "dataset", "model"]
KEPT = [*PLACE, "label", "corpus"]


def means_by_collapse(entries: DataFrame) -> DataFrame:
    """Return the measured mean of each model that the printed distance of variant (a) allows.

    A rollout that has collapsed onto the first token is as far from a profile as that profile's mean, up to the
    mean of the rollout itself.

    Returns
    -------
    DataFrame
        Columns low and high, one row for each model.
    """
    collapsed = entries.query("variant == 'a'").set_index("model")
    return collapsed.assign(low=collapsed["low"] - collapsed["mean"], high=collapsed["high"] + collapsed["mean"])[
        ["low", "high"]
    ]


def identity_frame(entries: DataFrame, means: DataFrame) -> DataFrame:
    """Return entries (b) and (c) with the range of |mean(p) - measured mean| and what the mean identity says.

    Parameters
    ----------
    entries
        Of one table.
    means
        Low and high of the measured mean for each model, as :func:`means_by_collapse` returns them.

    Returns
    -------
    DataFrame
        The entries with the columns least and largest (the range), short (by how much the printed distance is
        below it, 0 or less if it is not) and identity: ``meets`` if the printed distance is in the range,
        ``if they cross`` above it, ``impossible`` below it.
    """
    chosen = entries.query("variant != 'a'")
    gaps = [gaps_to(row.mean, tuple(means.loc[row.model, ["low", "high"]])) for row in _rows(chosen)]
    chosen = chosen.assign(least=[least for least, _ in gaps], largest=[largest for _, largest in gaps])
    chosen = chosen.assign(short=chosen["least"] - chosen["high"])
    verdict = np.where(chosen["low"] <= chosen["largest"], "meets", "if they cross")
    return chosen.assign(identity=np.where(chosen["short"] > 0, "impossible", verdict))


def pair_frame(entries: DataFrame, profile: ProfileOf) -> DataFrame:
    """Return what the entries (b) and (c) of one model, table and data set say together.

    Parameters
    ----------
    entries
        With the column schedule.
    profile
        Returns the rollouts.

    Returns
    -------
    DataFrame
        One row for each pair: where it stands; printed_b, printed_c, mean_b and mean_c; apart, the distance of
        the two rollouts; low and high of the measured means that both allow; room, whether there are any; rigid,
        whether |W_b - W_c| ≤ apart within rounding; consistent, whether moreover apart ≤ W_b + W_c.
    """
    import pandas as pd

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

    Parameters
    ----------
    entries
        All tables, with the column schedule.
    profile
        Returns the rollouts.
    measured
        Measured curves by model.

    Returns
    -------
    DataFrame
        Entries of tables 3 and 4 with low_mean and high_mean (the measured means that the entry alone allows),
        verdict (``consistent`` or ``not consistent``) and why.
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

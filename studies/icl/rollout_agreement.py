"""Rollout and gradient beside what trained networks favour: signs, ranks and sizes, and the order of depths."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import spearmanr

from posbias import errors
from posbias.comparison.multiplicity import holm, sign_p_value
from posbias.comparison.resampling import interval, resample_weights
from studies.icl.gap_tables import FIELDS, PAIR_NAMES, described
from studies.icl.outcomes import gaps, preferences
from studies.icl.prediction import differences, predicted_profiles, shares
from studies.icl.settings import Setting

SOURCES = ("rollout", "gradient")
"""Where influence is taken from: the rollout of measured kernels, or the measured gradient."""


def influence_by_source(results: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the influence of every token by rollout and by gradient, (seeds, tokens) each."""
    return {"rollout": predicted_profiles(results), "gradient": results["influence"].values}


def agreement_points(runs: Mapping[Setting, xr.Dataset]) -> pd.DataFrame:
    """Return influence beside accuracy, means over seeds: a row for each setting, source and pair of places.

    The columns are :data:`~studies.icl.gap_tables.FIELDS`, source, pair, difference and share (of
    influence), gap and preference (in accuracy).

    Parameters
    ----------
    runs
        Settings → results.
    """
    rows = []
    for setting, x in runs.items():
        measured = {"gap": gaps(x).mean(0), "preference": preferences(x).mean(0)}
        for source, profiles in influence_by_source(x).items():
            items = setting.task.items
            found = {"difference": differences(profiles, items).mean(0), "share": shares(profiles, items).mean(0)}
            for k, pair in enumerate(PAIR_NAMES):
                values = {name: float(values[k]) for name, values in (found | measured).items()}
                rows.append(described(setting) | {"source": source, "pair": pair} | values)
    table = pd.DataFrame(rows, columns=[*FIELDS, "source", "pair", "difference", "share", "gap", "preference"])
    return table.assign(pair=pd.Categorical(table["pair"], PAIR_NAMES, ordered=True))


def agreement_scores(points: pd.DataFrame, groups: Mapping[str, str], *, least: float) -> pd.DataFrame:
    """Return how well influence tells what is favoured: a row for each source and group of networks.

    Parameters
    ----------
    points
        From :func:`agreement_points`.
    groups
        Name → query that selects a group's points; an empty query selects all.
    least
        Gaps below this have no sign and are not counted in ``gaps``, ``sign`` and ``earlier``.

    Returns
    -------
    table : DataFrame
        Index (source, networks). Columns: ``gaps`` counted; ``sign``, the share of them whose sign the difference of
        influence has; ``earlier``, the share in which the earlier place is favoured; ``rank`` and ``share_rank``,
        Spearman's coefficient of difference and gap, and of share and preference; ``off`` and ``zero_off``, the mean of
        |share - preference| and of |preference|.

    Raises
    ------
    ValueError
        If a group selects no point.
    """
    rows = {}
    for source in SOURCES:
        of_source = points[points["source"] == source]
        for name, query in groups.items():
            chosen = of_source.query(query) if query else of_source
            if chosen.empty:
                raise errors.invalid("groups", "queries that select results", query)
            rows[source, name] = _scores(chosen, least)
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.set_index(pd.MultiIndex.from_tuples(list(rows), names=["source", "networks"]))


def agreement_intervals(
    points: pd.DataFrame, groups: Mapping[str, str], *, least: float, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Return intervals for the signs of :func:`agreement_scores`, by resampling settings with their three gaps.

    Parameters
    ----------
    points, groups, least
        As for :func:`agreement_scores`.
    resamples, seed
        Of the bootstrap.

    Returns
    -------
    table : DataFrame
        Index (source, networks). Columns: ``settings`` that have a gap that counts; ``sign`` and its 95 % interval
        ``sign_low``, ``sign_high``; ``ahead``, the share of signs less that of always naming the earlier place, with
        ``ahead_low``, ``ahead_high``; its p value ``p``, and ``adjusted`` by Holm over the groups of one source.

    Raises
    ------
    ValueError
        If a group has no gap beyond ``least``.
    """
    rows = {}
    for source in SOURCES:
        clear = points[(points["source"] == source) & (points["gap"].abs() > least)]
        for name, query in groups.items():
            rows[source, name] = _sign_interval(clear.query(query) if query else clear, resamples, seed)
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(list(rows), names=["source", "networks"])
    by_source = table["p"].groupby(level="source", sort=False)
    return table.assign(adjusted=by_source.transform(lambda p: holm(p.to_numpy())))


def _sign_interval(clear: pd.DataFrame, resamples: int, seed: int) -> dict[str, float]:
    """Return the share of signs and its lead over "earlier", with intervals, settings as units."""
    if clear.empty:
        raise errors.invalid("groups", "queries that select gaps beyond least", "one that selects none")
    unit = clear.groupby(list(FIELDS)).ngroup().to_numpy()
    right = (np.sign(clear["difference"]) == np.sign(clear["gap"])).to_numpy(float)
    ahead = right - (clear["gap"] > 0).to_numpy(float)
    weights = resample_weights(unit, resamples, seed=seed)
    weights /= weights.sum(1, keepdims=True)
    values = {"settings": float(len(np.unique(unit)))}
    for name, x in (("sign", right), ("ahead", ahead)):
        low, high = interval(weights @ x)
        values |= {name: float(x.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}
    return values | {"p": sign_p_value(weights @ ahead)}


def _scores(chosen: pd.DataFrame, least: float) -> dict[str, int | float]:
    """Return the scores of one group."""
    clear = chosen[chosen["gap"].abs() > least]
    known = chosen.dropna(subset=["share", "preference"])
    return {
        "gaps": len(clear),
        "sign": float((np.sign(clear["difference"]) == np.sign(clear["gap"])).mean()),
        "earlier": float((clear["gap"] > 0).mean()),
        "rank": float(spearmanr(chosen["difference"], chosen["gap"]).statistic),
        "share_rank": float(spearmanr(known["share"], known["preference"]).statistic),
        "off": float((known["share"] - known["preference"]).abs().mean()),
        "zero_off": float(known["preference"].abs().mean()),
    }


def depth_orders(points: pd.DataFrame) -> pd.DataFrame:
    """Return whether the depths of each encoding have the same order by rollout and by what is measured.

    Parameters
    ----------
    points
        From :func:`agreement_points`, of networks that were trained without bias.

    Returns
    -------
    table : DataFrame
        A row for each vocabulary, residual, encoding, pair and measure (``gap`` or ``preference``), with ``same``;
        encodings with one depth are left out.
    """
    rows = []
    of_rollout = points[points["source"] == "rollout"]
    for key, group in of_rollout.groupby(["vocabulary", "residual", "encoding", "pair"], observed=True):
        ordered = group.sort_values("layers")
        if len(ordered) > 1:
            for predicted, measured in (("difference", "gap"), ("share", "preference")):
                same = np.array_equal(np.argsort(ordered[predicted].values), np.argsort(ordered[measured].values))
                rows.append((*key, measured, same))
    return pd.DataFrame(rows, columns=["vocabulary", "residual", "encoding", "pair", "measure", "same"])

"""Checks of looking a value up by place: thresholds of the ledger, and what each check notices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from studies.checks import Check
from studies.lookup import evidence, tables
from studies.lookup.evidence import HOPS, Evidence
from studies.lookup.tables import TASK

LATER = {"post_hoc": True}


def gives_the_order(table: pd.DataFrame, predictor: str = TASK) -> bool:
    """Say whether a rule gives the order of learning, and better than longer paths do."""
    ranks = tables.rank_means(table, 500)
    behind = ranks.loc[["rollout_born", "two hops"], "behind_low"]
    return bool(ranks.loc[predictor, "mean"] > 0.7 and (behind > 0).all())


def ahead(table: pd.DataFrame, name: str, other: str) -> bool:
    """Say whether a rule's mean rank correlation is above .7, and .2 above that of another."""
    ranks = table[[name, other]].mean()
    return bool(ranks[name] > 0.7 and ranks[name] > ranks[other] + 0.2)


def hop_check(seen: Evidence) -> Check:
    """Return the check that one hop gives the order where one hop is enough."""
    order, means = seen.order, seen.means
    best, (agree, of) = means.loc["one hop"], evidence.clear_signs(seen)
    swapped = order.assign(**{TASK: order["two hops"], "two hops": order[TASK]})
    mixed = []
    for seed in range(20):
        runs_of = np.random.default_rng(seed).permutation(len(seen.ordered)).tolist()
        mixed.append(gives_the_order(evidence.order_by(seen, runs_of)))
    return Check(
        "RT-order", "by one hop, for pairs of one token",
        "If one hop is enough, places are learned in the order of the prior.",
        gives_the_order(order),
        f"{len(order)} settings × 3 seeds: mean rank {best['mean']:.2f} "
        f"[{best['low']:.2f}, {best['high']:.2f}], of recency "
        f"{means.loc['recency', 'mean']:.2f}; sign of {agree}/{of} clear "
        "differences between the ends",
        "the mean rank correlation is .7 or less, or not above those of the "
        "whole rollout and of two hops, encodings resampled",
        {"two hops for one": [gives_the_order(swapped)], "another setting's prior": mixed},
        "another predictor is as good", LATER,
    )  # fmt: skip


def rollout_check(seen: Evidence) -> Check:
    """Return the check that the whole rollout gives the order, which it does not."""
    means = seen.means
    whole = means.loc["rollout_born"]
    return Check(
        "RT-order", "by the whole rollout in place of one hop",
        "If one hop is enough, places are learned in the order of a whole rollout.",
        bool(whole["mean"] > 0.7),
        f"mean rank correlation {whole['mean']:.2f} [{whole['low']:.2f}, "
        f"{whole['high']:.2f}], above 0 in {whole['right']:.0%} of {len(seen.order)} settings",
        "the mean rank correlation is .7 or less",
        {"recency": [bool(means.loc["recency", "mean"] > 0.7)]},
        "one hop is enough, and more hops favour the first tokens",
        {"in_part": bool(whole["low"] > 0)},
    )  # fmt: skip


def two_hop_check(seen: Evidence) -> Check:
    """Return the check that two hops give the order where two are needed."""
    table = seen.twice
    mean = table[HOPS].mean()
    longer = mean[["rollout_born", "influence_born"]].max()
    return Check(
        "RT-order", "by two hops, for pairs of two tokens",
        "Pairs of two tokens are learned in the order of two hops.",
        ahead(table, "two hops", "one hop"),
        f"{len(table)} settings, {table['networks'].sum()} networks: mean rank "
        f"of two hops {mean['two hops']:.2f}, of one {mean['one hop']:.2f}, of the rollout "
        f"{mean['rollout_born']:.2f}, of influence before training {mean['influence_born']:.2f}",
        "the mean rank of two hops is .7 or less, or not .2 above that of one "
        "(undecided if longer paths do as well)",
        {
            "one hop for two": [ahead(table, "one hop", "two hops")],
            "recency for two hops": [ahead(table, "recency", "one hop")],
        },
        "one hop does as well", LATER | {"undecided": bool(longer >= mean["two hops"])},
    )  # fmt: skip


def price_check(seen: Evidence) -> Check:
    """Return the check that a factor of e in the prior saves the same number of steps."""

    def one_price(table: pd.DataFrame) -> bool:
        return bool((tables.nat_spread(table) < 2).all())

    nats = seen.nats
    spread, shared = tables.nat_spread(nats), nats[nats["encoding"].isin(tables.SHARED)]
    steps, explained = shared["steps"].astype(float), shared["explained"].astype(float)
    others = ["influence_born", "squares_born", "rollout_born", "recency", "end"]
    broken = [one_price(tables.nat_table(seen.ordered, name)) for name in others]
    return Check(
        "RT-order",
        "with the same number of steps per nat for every bias that all heads share",
        "A factor of e in the prior saves the same number of steps for every encoding that all heads share.",
        one_price(nats),
        f"{len(spread)} sizes of network: {steps.min():.0f} to "
        f"{steps.max():.0f} steps per nat, for one size of network within a "
        f"factor of {spread.max():.2f}; R² {explained.mean():.2f}",
        "steps per nat differ by a factor of 2 or more between position encodings "
        "in networks of one size, for pairs of one token and biases that heads share",
        {"another predictor for the hops": broken},
        "position encodings differ in what a nat is worth", LATER,
    )  # fmt: skip


def longer_check(seen: Evidence) -> Check:
    """Return the check that longer prompts lose the places with little prior."""
    reach = seen.reach
    others = reach[reach["encoding"] != "rope"]
    reverse = reach.assign(**{TASK: -reach[TASK]})
    return Check(
        "RT-middle", "beyond the trained length",
        "At four times the trained length, values are found in the order of the prior.",
        ahead(reach, TASK, "recency"),
        f"{len(reach)} settings whose places differ at 4 times the length: mean rank "
        f"correlation of the prior {reach[TASK].mean():.2f}, of recency "
        f"{reach['recency'].mean():.2f}; without RoPE {others[TASK].mean():.2f} and "
        f"{others['recency'].mean():.2f}",
        "the mean rank correlation of the prior with the log-probability is .7 "
        "or less, or not .2 above that of recency",
        {
            "recency for the prior": [ahead(reach, "recency", TASK)],
            "the prior reversed": [ahead(reverse, TASK, "recency")],
        },
        "RoPE's prior is even, and it fails at the first places",
        LATER | {"in_part": ahead(others, TASK, "recency")},
    )  # fmt: skip


def trained_check(seen: Evidence) -> Check:
    """Return the check that some place stays lost at the trained length, which none does."""
    places = seen.open_places
    return Check(
        "RT-middle", "within the trained length",
        "Some eighth that attention can reach stays below 90% even at the trained length.",
        bool(places["worst"].min() < 0.9),
        f"{len(places)} settings without hidden places: worst part "
        f"{places['worst'].min():.2f} of the values, at the trained length",
        "every part of the places is found in nine cases of ten or more",
        {"the best part for the worst": [bool(places["best"].min() < 0.9)]},
        "training on evenly placed answers undoes the prior", {},
    )  # fmt: skip


def copy_check(seen: Evidence) -> Check:
    """Return the check that language models copy in the order of their influence."""
    copies = seen.copies

    def told_by(table: pd.DataFrame, name: str = "influence") -> bool:
        return bool((table[f"{name}_low"] > 0).all() and (table["p"] < 0.05 / 10).all())

    def ranged(name: str, digits: int) -> str:
        return f"{copies[name].min():.{digits}f} to {copies[name].max():.{digits}f}"

    reverse = copies.assign(influence_low=-copies["influence_high"])
    recent = copies.assign(influence_low=copies["recency"])
    broken: dict[str, Any] = {
        "the formula's rollout for influence": [told_by(copies, "formula")],
        "influence reversed": [told_by(reverse)],
        "last place first": [told_by(recent)],
    }
    return Check(
        "RT-copy", "ten reference models",
        "Language models copy in the order of their influence.", told_by(copies),
        f"{len(copies)} models: rank correlation of benefit and influence "
        f"{ranged('influence', 2)}; benefit {ranged('middle', 3)} in the middle, "
        f"{ranged('last', 3)} at the last places",
        "an interval of the rank correlation with measured influence contains 0, "
        "or places do not differ at .05/10",
        broken, "another order", LATER,
    )  # fmt: skip


def lookup_checks(seen: Evidence) -> list[Check]:
    """Return all checks of looking up."""
    order = [hop_check(seen), rollout_check(seen), two_hop_check(seen), price_check(seen)]
    return [*order, longer_check(seen), trained_check(seen), copy_check(seen)]

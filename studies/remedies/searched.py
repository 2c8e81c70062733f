"""Real questions as a search hands them over: all passages in its order, and what changes that.

The right passage is where BM25 has it, and not at each place in turn. Of the first 50 questions nothing
is asked for this: these prompts are among those with the right passage at every place. The next 100 were
asked anew; of 50 of them the answers without a remedy were known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.stats import norm

from posbias.comparison.multiplicity import holm
from posbias.lookup.scores import paired_difference
from studies.remedies import tables
from studies.remedies.real import RANKED, Real, gain_said
from studies.remedies.tables import AS_IS

CLEAR = ("one-by-one-likely", "likely-two", "heads-alone")
"""Ways whose gain stands if all eight are corrected together."""
Right = Mapping[str, Float[np.ndarray, "C P"]]

ALONE = ("search-alone", "one-by-one-likely", "heads-alone")
"""Ways of choosing one passage, which are compared with one another."""
WAYS = ("search-last", *ALONE)
"""What is compared with all passages in the order of the search."""
NEW = "smollm2.searched"
"""The entry of questions that were asked in the search's order."""
ORDERS = "smollm2.likely-orders"
"""The entry of the same questions, asked in orders by the likelihood and with two passages."""
AGAIN = "smollm2.likely-again"
"""The entry of 200 new questions, with the ways that gained most on those, and limits set before."""
PAIRS_AGAIN = (
    ("one-by-one-likely", "likely-last"),
    ("likely-last", "search-last"),
    ("one-by-one-likely", "search-alone"),
)
"""Comparisons that were planned for these."""
PLANNED = (("likely-last", "search-last"), ("one-by-one-likely", "likely-last"))
"""Two comparisons that were planned: another choice at the same length, and the same choice with a shorter prompt."""
POWER_OF_TWO = float(norm.isf(tables.LEVEL / 2 / 2) + norm.isf(0.2))
"""Standard errors that are seen in four of five samples by a test at half of the 5 % level."""


class Ordered(tables.Compared):
    """Answers to real questions, those to all passages in the search's order as what others are compared with."""

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """How ways of choosing one passage differ in right answers, the first less the second; Holm over pairs."""
        return compare_pairs(self.right, combinations(ALONE, 2))


def compare_pairs(right: Right, pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Return by how much the first of each pair has more right answers than the second; Holm over pairs."""
    rows = {}
    for one, other in pairs:
        gain = (right[one] - right[other])[:, 0]
        found = paired_difference(gain)
        rows[one, other] = (found.mean, found.low, found.high, tables.p_value(gain))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["gain", "low", "high", "p"])
    return table.assign(p=holm(table["p"].to_numpy()))


@dataclass(frozen=True, eq=False)
class AskedInOrder(Ordered):
    """Hold answers to questions each of which was asked once, in the search's order."""

    entry: xr.Dataset

    @cached_property
    def entries(self) -> dict[str, xr.Dataset]:
        """Right answers by question under each way, and costs."""
        names = [str(name) for name in self.entry["remedy"].values]
        return {f"smollm2.{name}": in_one_place(self.entry.sel(remedy=name)) for name in names}


@dataclass(frozen=True, eq=False)
class Reordered(AskedInOrder):
    """Hold answers to the same questions in orders by the likelihood, compared with all in the search's order."""

    orders: xr.Dataset

    @cached_property
    def entries(self) -> dict[str, xr.Dataset]:
        """Right answers in the search's order and in the others, and costs."""
        plain = in_one_place(self.entry.sel(remedy=AS_IS))
        names = [str(name) for name in self.orders["remedy"].values]
        found = {f"smollm2.{name}": in_one_place(self.orders.sel(remedy=name)) for name in names}
        return {f"smollm2.{AS_IS}": plain} | found

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """The two comparisons that were planned."""
        return compare_pairs(self.right | AskedInOrder(self.entry).right, PLANNED)


@dataclass(frozen=True, eq=False)
class Confirmed(AskedInOrder):
    """Hold answers to the new questions."""

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """The three comparisons that were planned."""
        return compare_pairs(self.right, PAIRS_AGAIN)

    def read_of_chosen(self, name: str) -> float:
        """Return the share of right answers where one passage was sent and it was the right one."""
        one = self.entry.sel(remedy=name)
        return float(one["correct"].values[one["kept"].values == 1].mean())


def confirmed_numbers(confirmed: Confirmed) -> dict[str, Any]:
    """Return right answers to the new questions under each way, gains, p, what they cost, and planned comparisons."""
    table, plain = confirmed.table, confirmed.table.loc[AS_IS]
    found: dict[str, Any] = {"questions": len(confirmed.right[AS_IS]), "family": len(table) - 1}
    found["search_right"] = table.loc["search-alone", "named"]
    found["likely_right"] = float(confirmed.entry["likeliest"].mean())
    for name in table.index:
        x, short = table.loc[name], name.replace("-", "_")
        found |= {short: float(x["right"]), f"{short}_times": x["tokens"] / plain["tokens"]}
        found[f"{short}_requests"] = x["requests"]
        if name != AS_IS:
            found |= {f"{short}_gain": gain_said(table, name), f"{short}_p": tables.p_said(x["p"])}
            halves = np.array_split(tables.gain_of(confirmed.right, name), 2)
            found[f"{short}_halves"] = " and ".join(f"{half.mean():+.2f}" for half in halves)
    for name in ALONE:
        found[f"{name}_chosen"] = float(confirmed.entry["kept"].sel(remedy=name).mean())
        found[f"{name}_read"] = confirmed.read_of_chosen(name)
    for (one, other), x in confirmed.pairs.iterrows():
        said = f"{x['gain']:+.2f}, {x['low']:+.2f} to {x['high']:+.2f}; p {tables.p_said(x['p'])}"
        found[f"{one}_over_{other}"] = said
    return {f"again_{name}".replace("-", "_"): x for name, x in found.items()}


def corrected_together(ordered: Ordered, reordered: Reordered) -> dict[str, float]:
    """Return p of the gains of all eight ways, after Holm's correction for all together."""
    raw = uncorrected(ordered, reordered)
    return dict(zip(raw, holm(np.array([*raw.values()])), strict=True))


def uncorrected(ordered: Ordered, reordered: Reordered) -> dict[str, float]:
    """Return p of the gain of each of all eight ways by itself."""
    right = reordered.right | ordered.right
    return {name: tables.p_value(tables.gain_of(right, name)) for name in right if name != AS_IS}


def family_numbers(ordered: Ordered, reordered: Reordered) -> dict[str, float]:
    """Return p of the gains of all eight ways, uncorrected and after Holm's correction for all together."""
    raw, together = uncorrected(ordered, reordered), corrected_together(ordered, reordered)
    clear = max(together[name] for name in CLEAR)
    others = {name: p for name, p in together.items() if name not in {*CLEAR, "likely-first"}}
    found = {"family": len(raw), "family_clear": clear, "family_least": min(others.values())}
    found |= {"raw_least": min(raw[name] for name in others), "raw_most": max(raw[name] for name in others)}
    return {f"ordered_{name}": x for name, x in found.items()}


def reordered_numbers(reordered: Reordered) -> dict[str, Any]:
    """Return what orders by the likelihood, and two passages, give."""
    table = reordered.table
    found: dict[str, Any] = {}
    for name in table.index.drop(AS_IS):
        x, short = table.loc[name], name.replace("-", "_")
        found[f"ordered_{short}"] = float(x["right"])
        found[f"ordered_{short}_gain"] = f"{gain_said(table, name)}; p {tables.p_said(x['p'])}"
    for (one, other), x in reordered.pairs.iterrows():
        said = f"{x['gain']:+.2f}, {x['low']:+.2f} to {x['high']:+.2f}; p {tables.p_said(x['p'])}"
        found[f"ordered_{one}_over_{other}".replace("-", "_")] = said
    return found


@dataclass(frozen=True, eq=False)
class Searched(Ordered):
    """Hold answers to real questions, those to all passages in the search's order as what others are compared with."""

    real: Real

    @cached_property
    def entries(self) -> dict[str, xr.Dataset]:
        """Right answers by question under each way, a mean over places where these were asked, and costs."""
        rank = self.real.ranked["rank"]
        plain = self.real.questions["smollm2.eight"].isel(question=slice(len(rank)))
        plain = plain.isel(place=xr.DataArray(rank.values, dims="question"))
        found = {AS_IS: xr.Dataset({"correct": plain["correct"], "tokens_read": plain["tokens"] + plain["written"]})}
        found[AS_IS]["kept"], found[AS_IS]["requests"] = 1.0, 1.0
        for name in WAYS:
            if name in self.real.ranked["remedy"]:
                found[name] = self.real.ranked.sel(remedy=name)
            elif f"{RANKED}-{name}" in self.real.kept:
                found[name] = self.real.kept[f"{RANKED}-{name}"]
        return {f"smollm2.{name}": in_one_place(x) for name, x in found.items()}


def in_one_place(entry: xr.Dataset) -> xr.Dataset:
    """Return an entry with right answers by question, a mean over places where there are several."""
    correct = entry["correct"]
    correct = correct.mean("place") if "place" in correct.dims else correct
    return entry.assign(correct=correct.expand_dims("one", 1))


def choose_ordered(real: Real) -> Ordered:
    """Return the questions that were asked in this order where they are there, else those of which it is counted."""
    return AskedInOrder(real.kept[NEW]) if NEW in real.kept else Searched(real)


def answers_alone(real: Real) -> Float[np.ndarray, "Q"]:
    """Return which of the questions of :data:`NEW` are answered rightly with the right passage alone."""
    entry, correct = real.kept[NEW], real.questions["smollm2.floors"].sel(given="right")["correct"].values
    first, count = int(entry.attrs["first"]), entry.sizes["question"]
    return np.asarray(correct[first : first + count], dtype=np.float64)


def right_alone(real: Real) -> float:
    """Return the share of right answers to the questions of :data:`NEW` with the right passage alone."""
    return float(answers_alone(real).mean())


def new_numbers(real: Real) -> dict[str, Any]:
    """Return two comparisons with the likeliest passage, and right answers where the search's first is wrong."""
    entry = real.kept[NEW]
    right = {str(x): entry["correct"].sel(remedy=x).values.astype(np.float64) for x in entry["remedy"].values}
    likely, missed = right["one-by-one-likely"], entry["rank"].values > 0
    over, left = paired_difference(likely - right["search-last"]), paired_difference(answers_alone(real) - likely)
    found: dict[str, Any] = {
        "ordered_likely_over_last": f"{over.mean:+.2f}, {over.low:+.2f} to {over.high:+.2f}",
        "ordered_likely_over_last_p": tables.p_value(likely - right["search-last"]),
        "ordered_left": f"{left.mean:.2f}, {left.low:.2f} to {left.high:.2f}",
    }
    for name, where in (("missed", missed), ("found", ~missed)):
        found[f"ordered_{name}"] = int(where.sum())
        found |= {f"ordered_{name}_{x.replace('-', '_')}": int(y[where].sum()) for x, y in right.items()}
    return found


def verdict_said(table: pd.DataFrame) -> str:
    """Return how many of the gains are significant."""
    tried = table.drop(AS_IS)
    helping = int((tried["verdict"] == "helps").sum())
    if not helping:
        return f"none of these gains is significant (least p {tried['p'].min():.2g})"
    if helping == len(tried):
        return f"all of these gains are significant (largest p {tried['p'].max():.2g})"
    return f"{helping} of the {len(tried)} gains {'is' if helping == 1 else 'are'} significant"


def rows_needed(ordered: Ordered, gain: float) -> int:
    """Return rows, in tens, that show such a gain of the search's first passage alone, of two remedies compared."""
    spread = tables.gain_of(ordered.right, "search-alone").std(ddof=1)
    return math.ceil((POWER_OF_TWO * spread / gain) ** 2 / 10) * 10


def ordered_numbers(ordered: Ordered) -> dict[str, Any]:
    """Return what a page says of passages in a search's order."""
    table, pairs = ordered.table, ordered.pairs
    searched = table.loc["search-alone"]
    best = pairs.loc[[("search-alone", "one-by-one-likely")]].iloc[0]
    over_last = paired_difference((ordered.right["search-alone"] - ordered.right["search-last"]).mean(1))
    found: dict[str, Any] = {name: float(x) for name, x in table["right"].items()}
    for name in table.index.drop(AS_IS):
        found[f"{name}_gain"] = gain_said(table, name)
    found |= {f"{name}_points": table.loc[name, "named"] for name in ALONE}
    found |= {
        "questions": len(ordered.right[AS_IS]),
        "verdict": verdict_said(table),
        "rows_two": rows_needed(ordered, 0.1),
        "search_right": searched["named"],
        "search_wrong": 1 - searched["named"],
        "likely_over_search": f"{-best['gain']:+.2f}, {-best['high']:+.2f} to {-best['low']:+.2f}; p {best['p']:.2g}",
        "alone_over_last": f"{over_last.mean:+.2f}, {over_last.low:+.2f} to {over_last.high:+.2f}",
        "others_p": pairs["p"].drop([("search-alone", "one-by-one-likely")]).min(),
    }
    return {f"ordered_{name}".replace("-", "_"): x for name, x in found.items()}

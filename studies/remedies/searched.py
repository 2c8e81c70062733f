"""Real questions as a search hands them over: all passages in its order, and what changes that.

The right passage stands where BM25 puts it, first for three questions in four, and not at each place in
turn. Nothing is asked for this: these prompts are among those with the right passage at every place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import pandas as pd
import xarray as xr

from posbias.comparison.multiplicity import holm
from posbias.lookup.scores import flip_p_value, paired_difference
from studies.remedies import tables
from studies.remedies.real import RANKED, Real
from studies.remedies.tables import AS_IS

ALONE = ("search-alone", "one-by-one-likely", "heads-alone")
"""Ways of choosing one passage, which are compared with one another."""
WAYS = ("search-last", *ALONE)
"""What is compared with all passages in the order of the search."""


@dataclass(frozen=True, eq=False)
class Searched(tables.Compared):
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
        ways = {}
        for name, x in found.items():
            correct = x["correct"].mean("place") if "place" in x["correct"].dims else x["correct"]
            ways[f"smollm2.{name}"] = x.assign(correct=correct.expand_dims("one", 1))
        return ways

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """How ways of choosing one passage differ in right answers, the first less the second; Holm over pairs."""
        rows = {}
        for one, other in combinations(ALONE, 2):
            gain = (self.right[one] - self.right[other])[:, 0]
            found = paired_difference(gain)
            rows[one, other] = (found.mean, found.low, found.high, flip_p_value(gain))
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["gain", "low", "high", "p"])
        return table.assign(p=holm(table["p"].to_numpy()))

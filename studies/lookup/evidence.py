"""What the kept networks say of looking a value up by place, in the numbers that the page prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import spearmanr

from studies.lookup import tables
from studies.lookup.pictures import LABELS
from studies.lookup.tables import TASK, Run
from studies.reference.models import REFERENCES
from studies.results import Results, load, of_kind

FIRST = {(4, 16, 1), (2, 32, 1), (4, 32, 1)}
"""Layers, pairs and tokens of settings that were known when the criteria were set."""
HOPS = ["one hop", "two hops", "rollout_born", "influence_born", "recency"]
"""Rules that are compared where a value has to be read by its key first."""
RULES = {
    "one hop": "*prior*: attention by the position encoding alone, in one layer",
    "influence_born": "*influence before training*: gradient at the place",
    "recency": "*last place first*",
    "two hops": "the prior, applied twice",
    "rollout_born": "*rollout*: the prior, over all layers and residuals",
}
"""What may give the order of learning, as a table says it."""
RIVALS = ("none", "alibi", "rope")
"""Encodings of the networks that were trained among competing facts."""
PROFILES = {"measured": "influence", "c": "formula", "kernels": "rollout"}
"""What the benefit of a copy is compared with, and its column."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Hold the entries of ``results/lookup.nc``; what takes long is worked out once."""

    kept: Mapping[str, xr.Dataset]

    @cached_property
    def runs(self) -> list[Run]:
        """All settings."""
        return tables.read_runs(self.kept)

    @property
    def even(self) -> list[Run]:
        """Settings whose training asks for every place."""
        return [run for run in self.runs if run.results.attrs["places"] == "even"]

    @cached_property
    def ordered(self) -> list[Run]:
        """Those of them with one token per pair and a prior that prefers some places."""
        single = [run for run in self.even if run.results.attrs["tokens"] == 1]
        return [run for run in single if tables.gives_order(run)]

    def line(self, layers: int, pairs: int, tokens: int = 1, places: str = "even") -> list[Run]:
        """Return the settings of one size of network and prompt, one for each encoding."""
        wanted = {"layers": layers, "pairs": pairs, "tokens": tokens, "places": places}
        return [run for run in self.runs if wanted.items() <= run.results.attrs.items()]

    @cached_property
    def order(self) -> pd.DataFrame:
        """How far each rule gives the order of learning, where one hop is enough."""
        return tables.order_table(self.ordered)

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean rank correlation of each rule over these settings."""
        return tables.rank_means(self.order)

    @cached_property
    def twice(self) -> pd.DataFrame:
        """The same where two hops are needed, with the number of networks that learned the task."""
        two = tables.finished(self.line(3, 8, tokens=2))
        order = tables.order_table(two)
        return order.assign(networks=[run.results.sizes["seed"] for run in two])

    @cached_property
    def tilts(self) -> pd.DataFrame:
        """How much sooner the last quarter is learned than the first."""
        return tables.tilt_table(self.ordered)

    @cached_property
    def nats(self) -> pd.DataFrame:
        """Steps that a factor of e in the prior saves, by setting."""
        return tables.nat_table(self.ordered)

    @cached_property
    def ends(self) -> pd.DataFrame:
        """What is found in the best and the worst eighth, by setting and length of the prompt."""
        done, rows = tables.finished(self.even), []
        for run in done:
            rows += [found_in_the_end(run, times) for times in (1, 2, 4)]
        return pd.DataFrame(rows).set_index(["setting", "times"])

    @property
    def open_places(self) -> pd.DataFrame:
        """Settings at the trained length whose attention can reach every place."""
        near = self.ends.xs(1, level="times")
        return near[~near.index.str.startswith("flat")]

    @property
    def reach(self) -> pd.DataFrame:
        """Settings whose places differ in prompts of four times the length."""
        far = self.ends.xs(4, level="times")
        return far[far["best"] - far["worst"] > 0.05]

    @cached_property
    def copies(self) -> pd.DataFrame:
        """Benefit of a copy by place in ten language models, and its rank correlations."""
        found = of_kind(self.kept, "copies", list(REFERENCES))
        return pd.DataFrame({name: copied(x) for name, x in found.items()}).T


def load_evidence(file: str = "") -> Evidence:
    """Return what is kept, and in place of it what ``file`` has."""
    own = Results(file) if file else {}
    return Evidence({**load("lookup"), **own})


def found_in_the_end(run: Run, times: int) -> dict[str, Any]:
    """Return the best and the worst eighth's accuracy, and what orders log-probabilities."""
    found = tables.found_at_the_end(run, times)
    logs = tables.found_at_the_end(run, times, "log_probability")
    prior = tables.predicted(run, TASK, times=times)
    row = {"setting": run.name, **run.line, "times": times, "worst": found.min()}
    row |= {"best": found.max(), TASK: tables.rank(prior, logs)}
    return row | {"recency": tables.rank(np.arange(8.0), logs)}


def copied(found: xr.Dataset) -> dict[str, float]:
    """Return the benefit of a copy by place in one model, and its rank correlations."""
    mean = found["gain_mean"].values
    row = {"first": mean[0], "middle": mean[len(mean) // 2], "last": mean[-1]}
    row["p"] = float(found["difference_p_value"].sel(score="gain"))
    for profile, name in PROFILES.items():
        ranks = found["rank_correlation"].sel(profile_name=profile, score="gain")
        names = (name, f"{name}_low", f"{name}_high")
        row |= dict(zip(names, ranks.values, strict=True))
    return row | {"recency": spearmanr(np.arange(16), mean)[0]}


def clear_signs(seen: Evidence) -> tuple[int, int]:
    """Return how many clear differences between the ends have the prior's sign, and of how many.

    Heads that see no last place are left out.
    """
    sizes = [tuple(row) for row in seen.order[["layers", "pairs", "tokens"]].to_numpy()]
    speed, prior = seen.tilts["measured"], seen.tilts[TASK]
    half = tables.certain(speed.to_numpy(), seen.tilts["spread"].to_numpy(), sizes, 3)
    clear = (speed.abs() > half) & ~seen.tilts.index.str.startswith("flat")
    agree = (np.sign(prior) == np.sign(speed))[clear]
    return int(agree.sum()), len(agree)


def rules_shown(seen: Evidence) -> pd.DataFrame:
    """Return the table of rules: mean rank correlations, one hop enough and two hops needed."""
    names = [*RULES]
    ranks = seen.means.loc[names]
    interval = [f"{x.mean:.2f} ({x.low:.2f} to {x.high:.2f})" for x in ranks.itertuples()]
    two = [f"{seen.twice[name].mean():.2f}" for name in names]
    shown = {"one hop is enough (95%)": interval, "two hops are needed": two}
    return pd.DataFrame(shown, pd.Index(RULES.values(), name="rule"))


def lengths_shown(seen: Evidence) -> pd.DataFrame:
    """Return the worst eighth by encoding and length, four layers and 32 pairs, and the two ends."""
    names = {1: "worst eighth, trained length", 4: "worst eighth, 4 ×", 0: "middle half, trained on the ends"}
    same = seen.ends[(seen.ends["layers"] == 4) & (seen.ends["pairs"] == 32)].reset_index()
    worst = same.pivot_table("worst", "encoding", "times")[[1, 4]]
    for run in seen.line(4, 32, places="ends"):
        found = run.results["accuracy_1"].mean("seed").values
        worst.loc[run.results.attrs["encoding"], 0] = found[8:24].mean()
    shown = worst.loc[list(LABELS)].rename(index=LABELS, columns=names)
    return shown.rename_axis("position encoding").rename_axis(None, axis=1)


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return what the page quotes of the lookup task."""
    return order_numbers(seen) | end_numbers(seen) | other_numbers(seen)


def order_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what is learned first, and what a prior is worth."""
    order, twice = seen.order, seen.twice
    sizes = [tuple(row) for row in order[["layers", "pairs", "tokens"]].to_numpy()]
    later = order[[size not in FIRST for size in sizes]]
    (slope,) = (run for run in seen.line(4, 32) if run.results.attrs["encoding"] == "steep")
    first, *_, last = tables.learning_times(slope, 4).mean(0)
    shared = seen.nats[seen.nats["encoding"].isin(tables.SHARED)]
    saved = (shared["steps"] / shared["time"]).astype(float)
    unordered = [run for run in seen.even if not tables.gives_order(run)]
    found = {
        "settings": len(order),
        "least": order[TASK].min(),
        "even_spread": tables.order_table(unordered)["spread"].max(),
        "later": len(later),
        "later_rank": later["one hop"].mean(),
        "case_prior": np.exp(seen.tilts.loc["steep-T4-n32-one-even", TASK]),
        "case_first": first,
        "case_last": last,
        "nat": saved.mean(),
        "nat_least": saved.min(),
        "nat_most": saved.max(),
        "twice": len(twice),
    }
    return {f"networks_{name}": x for name, x in found.items()}


def end_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what is found in the end."""
    biased = seen.reach[seen.reach["encoding"] != "rope"]
    hiding = [run for run in seen.even if run.results.attrs["encoding"] == "flat"]
    far = lengths_shown(seen)["worst eighth, 4 ×"].drop(LABELS["flat"])  # which hides places at every length
    found = {
        "all": len(seen.runs),
        "open": len(seen.open_places),
        "unlearned": len(seen.even) - len(hiding) - len(seen.open_places),
        "worst": seen.open_places["worst"].min(),
        "far": len(biased),
        "far_prior": biased[TASK].mean(),
        "far_recency": biased["recency"].mean(),
        "far_all": len(seen.reach),
        "far_all_prior": seen.reach[TASK].mean(),
        "far_all_recency": seen.reach["recency"].mean(),
        "far_least": far.min(),
        "far_most": far.max(),
        "hours": sum(run.results.attrs["seconds"] for run in seen.runs) / 3600,
    }
    return {f"networks_{name}": x for name, x in found.items()}


def other_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what is found among competing facts, and what language models copy."""
    rivals, copies = [seen.kept[f"{name}.rivals"] for name in RIVALS], seen.copies
    competing = [x["accuracy_1"].mean("seed").values[0] for x in rivals]
    as_well = (copies["recency"] - copies["influence"]).astype(float) > -1e-6  # with ties
    return {
        "networks_rivals": min(tables.parted(x).min() for x in competing),
        "networks_copy_models": len(copies),
        "networks_copy_recency": int(as_well.sum()),
        "networks_copy_least": copies["influence"].min(),
    }


def order_by(seen: Evidence, hops_of: Sequence[int]) -> pd.DataFrame:
    """Return :attr:`Evidence.order` as if each setting had the prior of another."""
    ranks = []
    for i, j in enumerate(hops_of):
        speed = -tables.learning_times(seen.ordered[i]).mean(0)
        ranks.append(tables.rank(tables.predicted(seen.ordered[j], TASK), speed))
    return seen.order.assign(**{TASK: ranks})

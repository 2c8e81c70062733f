"""What networks trained from scratch prefer, in the numbers that the page prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from posbias.comparison.multiplicity import holm
from studies.icl import claims, tables
from studies.icl.tables import Runs

RETRIEVES = 0.75
"""A network retrieves if it is right in more than this share of prompts with new classes."""
MIXED, PLAIN_DATA = "vocabulary == 'mixture'", "bias == 'none'"
KNOW, COPY = f"novel > {RETRIEVES}", f"novel <= {RETRIEVES}"
GROUPS = {
    "retrieve, data without bias": f"{MIXED} and {PLAIN_DATA} and residual",
    "retrieve, all data and tasks": KNOW,
    "do not retrieve, data without bias": f"{MIXED} and {PLAIN_DATA} and not residual",
    "do not retrieve, all data and tasks": COPY,
    "both, biased data": f"{MIXED} and not {PLAIN_DATA}",
    "both, second task": "vocabulary == 'fixed'",
    "both, all data and tasks": "",
}
"""Groups of networks; Holm's correction is over all seven, and the page shows the first four."""
SHOWN = {
    "retrieve, data without bias": "retrieve; trained without bias",
    "retrieve, all data and tasks": "retrieve; all",
    "do not retrieve, data without bias": "do not retrieve; trained without bias",
    "do not retrieve, all data and tasks": "do not retrieve; all",
}
"""What the table of the page calls them."""
WAYS: dict[str, dict[str, bool]] = {
    "mean over layers": {},
    "last layer": {"last_layer": True},
    "last layer, beyond uniform": {"last_layer": True, "beyond_even": True},
}
"""How the sink metric is read; the paper prints the first."""
PRINTED = "mean over layers"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Hold the results of ``results/icl.nc`` by figure; what takes long is worked out once."""

    figures: Mapping[str, Runs]

    def joined(self, *names: str) -> Runs:
        """Return all results of some figures."""
        return tables.joined(self.figures, *names)

    @cached_property
    def gap(self) -> pd.DataFrame:
        """Gaps of every network of the first task that was trained without bias."""
        return tables.gap_table(self.joined("figure4", "figure5"))

    @cached_property
    def points(self) -> pd.DataFrame:
        """Influence beside what is preferred, by setting and pair of places."""
        names = [name for name in self.figures if name != "spread"]
        return tables.agreement_points(self.joined(*names))

    @cached_property
    def depth(self) -> pd.DataFrame:
        """Claims on depth, first task."""
        return claims.depth_claims(self.joined("figure4", "figure5"))

    @cached_property
    def bias(self) -> pd.DataFrame:
        """Claims on biased data, first task."""
        return claims.bias_claims(self.joined("figure3", "figure6", "figure5"))

    @cached_property
    def fixed_depth(self) -> pd.DataFrame:
        """Claims on depth, second task."""
        return claims.depth_claims(self.joined("figure9", "figure10"))

    @cached_property
    def fixed_bias(self) -> pd.DataFrame:
        """Claims on biased data, second task."""
        return claims.bias_claims(self.joined("figure11", "figure10"))

    def sinks(self, figure: str) -> dict[str, pd.DataFrame]:
        """Return the claims on sinks by each way to read the metric."""
        found = {}
        for way, options in WAYS.items():
            table = tables.sink_table(self.figures[figure], **options)
            seeds = tables.tables_by_seed(self.figures[figure], **options)
            found[way] = claims.sink_claims(table, seeds)
        return found


def load_evidence(folder: str = "") -> Evidence:
    """Return what is kept, and in place of it what ``folder`` has."""
    return Evidence(tables.kept_runs(folder))


def printed_sinks(runs: Runs) -> pd.DataFrame:
    """Check the claims on sinks as the metric is printed, averaged over layers."""
    return claims.sink_claims(tables.sink_table(runs), tables.tables_by_seed(runs))


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return what the page quotes of the networks that prefer one of two answers."""
    found = task_numbers(seen) | place_numbers(seen) | bias_numbers(seen) | claim_numbers(seen)
    return {f"icl_{name}": x for name, x in found.items()}


def task_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how networks were trained, and which of them learned the task."""
    run, *_ = seen.figures["figure4"].values()
    learned = tables.outcome_table(seen.joined("figure4", "figure5"))
    novel = learned.groupby("residual")["novel"].mean()
    (fixed, *_) = seen.figures["figure9"].values()
    return {
        "seeds": run.sizes["seed"],
        "iterations": int(run.attrs["iterations"]),
        "fixed_iterations": int(fixed.attrs["iterations"]),
        "novel_plain": novel[False],
        "novel_residual": novel[True],
    }


def place_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how many networks prefer which place, trained without bias."""
    gap = seen.gap.query("residual")
    over = gap.assign(over=gap["gap"] > 0).groupby("pair", observed=True)["over"]
    later = (gap["pair"] == "middle vs last") & (gap["gap"] < 0)
    plain = seen.gap.query("not residual and pair == 'first vs last'")["gap"] > 0
    return {
        "networks": int(over.size()["first vs last"]),
        "over_last": int(over.sum()["first vs last"]),
        "over_middle": int(over.sum()["first vs middle"]),
        "last_over": int(later.sum()),
        "plain_networks": len(plain),
        "plain_first": int(plain.sum()),
    } | lost_numbers(seen.gap)


def lost_numbers(gap: pd.DataFrame) -> dict[str, Any]:
    """Return at how many depths networks with a decay mask prefer both ends to the middle.

    In every seed, and significantly, by Student's t over seeds and Holm's correction over all gaps.
    """
    by = ["residual", "encoding", "layers"]
    wide = gap.pivot_table(index=[*by, "pair"], columns="seed", values="gap", observed=True)
    significant = pd.Series(holm(claims.seed_p_values(wide.to_numpy())) <= 0.05, wide.index)
    signs = claims.signs(gap, by)
    found = []
    for sure in (signs, signs.where(significant, 0)):
        decay = sure.unstack("pair").loc[True, "decay"]
        found.append(int(((decay[claims.FM] > 0) & (decay[claims.ML] < 0)).sum()))
    return {"decay_lost": found[0], "decay_lost_surely": found[1], "family": len(wide)}


def rope_lowers(seen: Evidence) -> list[int]:
    """Return at which depths RoPE lowers the gap of first and last place without a residual."""
    rows = seen.gap.query("not residual and pair == 'first vs last'")
    mean = rows.groupby(["encoding", "layers"])["gap"].mean()
    change = mean["rope"] - mean["none"]
    return [int(depth) for depth in change.index[change < -claims.LEAST]]


def bias_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what networks prefer whose training favours a place."""
    runs = seen.joined("figure3", "figure6")
    gap = tables.gap_table(runs).query("pair == 'first vs last'")
    mean = gap.groupby(["bias", "mask", "encoding"])["gap"].mean()
    learned = tables.outcome_table(runs).groupby(["bias", "mask", "encoding"])["novel"].mean()
    return {
        "bias_last": mean["last", "causal", "none"],
        "biased_kinds": len(learned),
        "biased_retrieve": int((learned > RETRIEVES).sum()),
        "ends_rope": mean["ends", "causal", "rope"],
        "ends_sinusoidal": -mean["ends", "full", "sinusoidal"],
    }


def claim_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how many of the paper's claims hold, and what the length of vectors changes."""
    first, second = (seen.sinks(figure) for figure in ("figure8", "figure13"))
    tallies = {
        "bias": (seen.bias, seen.fixed_bias),
        "depth": (seen.depth, seen.fixed_depth),
        "sinks": (first[PRINTED], second[PRINTED]),
    }
    found: dict[str, Any] = {
        "sinks_last": int(first["last layer"]["holds"].sum()),
        "sinks_beyond": int(first["last layer, beyond uniform"]["holds"].sum()),
    }
    for name, (one, two) in tallies.items():
        found |= {f"{name}_of": len(one), f"{name}_of_fixed": len(two)}
        found |= {name: int(one["holds"].sum()), f"{name}_fixed": int(two["holds"].sum())}
    spread = seen.figures["spread"]
    signs = claims.signs(tables.gap_table(spread), ["residual", "encoding", "spread"])
    signs = signs.unstack("spread")
    learned = tables.outcome_table(spread).query("residual").groupby("spread")["novel"].mean()
    found |= {"spread_same": int((signs["text"] == signs["code"]).sum()), "spread_of": len(signs)}
    return found | {"code_novel": learned["code"], "text_novel": learned["text"]}


def lead_table(seen: Evidence) -> pd.DataFrame:
    """Return in how many comparisons the rollout and a guess name the preferred place."""
    scores = tables.agreement_scores(seen.points, GROUPS, least=claims.LEAST)
    sure = tables.agreement_intervals(seen.points, GROUPS, least=claims.LEAST)
    scores, sure = scores.loc[list(SHOWN)], sure.loc[list(SHOWN)]
    shown = pd.DataFrame({"comparisons": scores["gaps"].astype(int)})
    for column, title in (("sign", "rollout right"), ("guess", "guess right")):
        found = zip(scores[column], scores["gaps"], strict=True)
        shown[title] = [f"{x * n:.0f} ({x:.0%})" for x, n in found]
    lead = zip(scores["sign"] - scores["guess"], sure["ahead_low"], sure["ahead_high"], strict=True)
    shown["rollout's lead (95%)"] = [f"{x:+.0%} ({low:+.0%} to {high:+.0%})" for x, low, high in lead]
    shown["p"] = sure["adjusted"]
    return shown.rename(index=SHOWN).rename_axis("networks")

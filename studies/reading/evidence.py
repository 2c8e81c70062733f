"""What the kept answers say of the law of reading by place, in the numbers that the page prints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.reading import Reading, distances, fit_law, fit_reading, log_likelihood, shares
from posbias.lookup.scores import paired_difference
from studies.reading import tables
from studies.reading.tables import Counts
from studies.results import load

LAW = "place, exponential fall"
P = 8
TITLES = {
    "eight": "8 documents",
    "four": "4 documents",
    "sixteen": "16 documents",
    "thirty-two": "32 documents",
    "between": "8, and a neutral document behind each",
    "around": "8, four neutral documents in front and four behind",
    "inside": "8, twice as long by neutral sentences",
    "ends": "8, a neutral document at both ends",
    "kinds": "8, facts about persons",
    "plain": "8, plain text",
}
"""What each kind of list is called in a table."""
TRIED = np.arange(0, 3, 0.02)
"""Values of γ among which that of one competitor is found."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Hold the entries of ``results/reading.nc`` by part; what takes long is worked out once."""

    kept: dict[str, xr.Dataset]

    @cached_property
    def sets(self) -> dict[str, Counts]:
        """Answers by set, place asked and place read, of every kind of list; ``eight`` has both halves."""
        found = {}
        for name in TITLES:
            if name in self.kept:
                found[name] = tables.count_answers(self.kept[name])
        return found | {"eight": np.concatenate([self.first, self.new])}

    @property
    def first(self) -> Counts:
        """Answers of the first 40 sets of eight documents."""
        return tables.count_answers(self.kept["eight"])

    @property
    def new(self) -> Counts:
        """Answers of 40 other sets."""
        return tables.count_answers(self.kept["eight-new"])

    @property
    def others(self) -> Counts:
        """Answers of sets in which each document states a fact of another kind."""
        return tables.count_answers(self.kept["others"])

    @property
    def totals(self) -> dict[str, Float[np.ndarray, "P P"]]:
        """Answers of every kind of list, over its sets."""
        return {name: x.sum(0) for name, x in self.sets.items()}

    @cached_property
    def law(self) -> Reading:
        """The law of all 80 sets."""
        source = [self.kept[name]["source"].values for name in ("eight", "eight-new")]
        return fit_reading(np.concatenate(source).astype(int))

    @cached_property
    def doses(self) -> Float[np.ndarray, "K d"]:
        """Shares mistaken that the law expects by distance of one competitor, for each γ of :data:`TRIED`."""
        return np.array([tables.dose_expected(self.law.pulls, x) for x in TRIED])

    @property
    def entries(self) -> dict[str, xr.Dataset]:
        """The entries of :attr:`sets`."""
        return {name: self.kept[name] for name in self.sets}


def load_evidence() -> Evidence:
    """Return what is kept."""
    return Evidence({name.removeprefix("smollm2."): x for name, x in load("reading").items()})


def named(stem: str, found: tuple[float, float, float]) -> dict[str, float]:
    """Return a number and its interval under their names."""
    return dict(zip((stem, f"{stem}_low", f"{stem}_high"), found, strict=True))


def law_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what the law says of 80 sets, and how well one half expects the other."""
    law, flat = seen.law, shares(np.zeros(P), seen.law.sharpness).diagonal()
    bonus = tables.of_resamples(seen.sets["eight"], tables.bonus)
    numbers = {
        "sets": law.sets, "answers": law.answers, "asked": law.answers + law.unknown,
        "near": law.near, "wrong": law.wrong, "factor": np.exp(law.sharpness),
        "sharpness": law.sharpness, "sharpness_low": law.sharpness_interval[0],
        "sharpness_high": law.sharpness_interval[1],
        "deviance": deviance(seen.first, seen.new), "deviance_back": deviance(seen.new, seen.first),
        "flat_end": flat[0], "flat_pulls": shares(law.pulls, 0.0)[0, 0],
        "right": law.counts.trace() / law.answers,
    }  # fmt: skip
    seen_right = law.counts.diagonal() / law.counts.sum(1)
    numbers |= {f"right_{name}": seen_right[k] for name, k in {"first": 0, "last": -1}.items()}
    numbers |= named("bonus", bonus)
    rival = tables.rival_table(seen.first, seen.new).loc["place, bonus"]
    numbers |= named("lead", (rival["behind"], rival["low"], rival["high"]))
    numbers |= wrong_numbers(law.counts)
    for k, end in enumerate(("first", "last")):
        numbers |= named(end, (law.ends[k], *law.ends_interval[:, k]))
    return {f"reading_{name}": x for name, x in numbers.items()}


def wrong_numbers(counts: Float[np.ndarray, "P P"]) -> dict[str, float]:
    """Return how many wrong answers are later or near, and which shares chance or the pulls of places would give.

    Chance is a document drawn at random for each wrong answer, other than the right one.
    """
    wrong, place = counts * (1 - np.eye(P)), np.arange(P)
    alone = tables.by_pulls(counts)
    by_chance = float(wrong.sum(1) @ (P - 1 - place) / (P - 1) / wrong.sum())
    return {
        "near_pulls": near_share(alone), "later": later_share(counts), "later_pulls": later_share(alone),
        "later_chance": by_chance,
    }  # fmt: skip


def half_law(counts: Counts) -> Float[np.ndarray, "P P"]:
    """Return the shares that the law expects once it is fitted to some sets."""
    sharpness, pulls, _ = fit_law(counts.sum(0))
    return shares(pulls, sharpness)


def deviance(fitted: Counts, judged: Counts) -> float:
    """Return how far what one half expects is from the other half's own table."""
    total = judged.sum(0)
    return 2 * (tables.saturated(total) - log_likelihood(half_law(fitted), total))


def answers_missed(seen: Evidence) -> Float[np.ndarray, "P P"]:
    """Return by cell how many answers were seen, less those that the law of the other half of the sets expects."""
    missed = np.zeros((P, P))
    for fitted, judged in ((seen.first, seen.new), (seen.new, seen.first)):
        total = judged.sum(0)
        missed += total - half_law(fitted) * total.sum(1, keepdims=True)
    return missed


def calibration(seen: Evidence, bins: int = 9) -> pd.DataFrame:
    """Return expected and seen shares of answers, cells of about equal expected share together.

    Each half of the sets is judged by the law of the other. ``low`` to ``high`` is the 95% interval over sets.
    """
    expected = np.stack([half_law(seen.new), half_law(seen.first)])
    counts = np.stack([seen.first, seen.new])
    asked = counts.sum(-1, keepdims=True)
    told = asked * expected[:, None]
    edges = np.quantile(expected, np.linspace(0, 1, bins + 1)[1:-1])
    which = np.digitize(expected, edges)
    weights = resample_weights(counts.shape[1], 400)
    rows = []
    for k in range(bins):
        cells = (which == k)[:, None]
        hits, mean, of = ((x * cells).sum((0, 2, 3)) for x in (counts, told, asked * cells))
        low, high = interval(weights @ hits / (weights @ of))
        rows.append((mean.sum() / of.sum(), hits.sum() / of.sum(), low, high))
    table = pd.DataFrame(rows, columns=["expected", "seen", "low", "high"], index=range(1, bins + 1))
    return table.rename_axis("ninth of the cells")


def dose_sharpness(seen: Evidence, wrong: Any, of: Any) -> float:
    """Return γ that expects mistaken shares by distance best, with the pulls of eight documents."""
    hits, all_of = wrong.sum((0, 2)), of.sum((0, 2))
    p = seen.doses
    fit = (hits * np.log(p) + (all_of - hits) * np.log(1 - p)).sum(1)
    return float(TRIED[fit.argmax()])


def dose_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what one competitor does, by its distance."""
    wrong, of = tables.dose(seen.kept["dose"])
    drawn = []
    for w in resample_weights(len(wrong), 200):
        drawn.append(dose_sharpness(seen, w[:, None, None] * wrong, w[:, None, None] * of))
    low, high = interval(np.array(drawn))
    names = ("reading_dose_sharpness", "reading_dose_low", "reading_dose_high")
    return dict(zip(names, (dose_sharpness(seen, wrong, of), low, high), strict=True))


def apart_rights(seen: Evidence) -> Float[np.ndarray, "C 2"]:
    """Return by set the share of right answers with look-alikes apart, and side by side."""
    right = (seen.kept["apart"]["asked"] == seen.kept["apart"]["source"]).values
    return np.asarray(right.reshape(len(right), 2, 4).mean(2))


def apart_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what keeping look-alikes apart gains."""
    right = apart_rights(seen)
    gain = paired_difference(right[:, 0] - right[:, 1])
    return named("reading_gain", (gain.mean, gain.low, gain.high)) | {"reading_apart_sets": len(right)}


def sharpness_table(seen: Evidence) -> pd.DataFrame:
    """Return γ of every kind of list, and that of eight documents carried over to it by each unit."""
    rows, eight = {}, seen.kept["eight"]
    for name, counts in seen.sets.items():
        middle, low, high = tables.of_resamples(counts, lambda n: fit_law(n)[0])
        row: dict[str, Any] = {"sets": len(counts), "sharpness γ (95%)": f"{middle:.2f} ({low:.2f} to {high:.2f})"}
        for unit in tables.UNITS:
            step = tables.steps_between(seen.kept[name], unit)[0, 1]
            row[f"by {unit}"] = tables.sharpness_by_unit(eight, seen.totals["eight"], unit) * step
        rows[TITLES[name]] = row
    return pd.DataFrame(rows).T.rename_axis("list").rename(columns={"by share": "by share of the list"})


def unit_draws(seen: Evidence, draws: int = 100) -> pd.DataFrame:
    """Return by unit the mean miss of log γ in resamples of the sets."""
    drawn = {name: np.tensordot(resample_weights(len(x), draws, seed=1), x, 1) for name, x in seen.sets.items()}
    return pd.DataFrame(tables.unit_misses(seen.entries, drawn))


def unit_numbers(seen: Evidence) -> dict[str, Any]:
    """Return by unit the mean miss of log γ, and in which share of resamples the share of the list is nearest."""
    misses, drawn = tables.unit_misses(seen.entries, seen.totals), unit_draws(seen)
    numbers = {f"reading_miss_{unit}": float(x) for unit, x in misses.items()}
    for unit in ("places", "tokens"):
        numbers[f"reading_unit_{unit}"] = (drawn["share"] < drawn[unit]).mean()
    gap = drawn["places"] - drawn["share"]
    low, high = interval(gap.to_numpy())
    return numbers | {"reading_unit_gap_low": low, "reading_unit_gap_high": high}


def form_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how well the law of eight documents, with nothing fitted anew, expects the answers of other lists."""
    numbers: dict[str, Any] = {}
    for name in ("kinds", "plain"):
        lead = lead_on(seen, seen.sets[name])
        sharpness = tables.of_resamples(seen.sets[name], lambda n: fit_law(n)[0])
        numbers |= named(f"reading_{name}_lead", lead) | named(f"reading_{name}_sharpness", sharpness)
    return numbers


def lead_on(seen: Evidence, counts: Counts) -> tuple[float, float, float]:
    """Return by how many nats the law of 80 sets expects answers better than place with a bonus does."""
    expected = tables.rival_shares(seen.totals["eight"])
    each = ((np.log(expected[LAW]) - np.log(expected["place, bonus"])) * counts).sum((1, 2))
    low, high = interval(resample_weights(len(each)) @ each)
    return float(each.sum()), float(low), float(high)


def other_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what answers are where each document states a fact of another kind, and γ by length of the list."""
    counts = seen.others
    total = counts.sum(0)
    numbers = {"others_right": total.trace() / total.sum()}
    for name in ("four", "eight", "sixteen", "thirty-two"):
        sharpness = fit_law(seen.totals[name])[0]
        word = name.replace("-", "_")
        numbers |= {f"sharpness_{word}": sharpness, f"scaled_{word}": sharpness * len(seen.totals[name])}
    numbers |= named("others_bonus", tables.of_resamples(counts, tables.bonus))
    numbers |= named("long_ratio", unit_of_32(seen))
    return {f"reading_{name}": x for name, x in numbers.items()}


def later_share(counts: tables.Tables) -> Any:
    """Return which share of wrong answers is from a document behind the right one.

    >>> float(later_share(np.array([[5.0, 1, 1], [2, 5, 0], [0, 0, 5]])))
    0.5
    """
    return np.triu(counts, 1).sum((-2, -1)) / wrong_in(counts)


def near_share(counts: tables.Tables) -> Any:
    """Return which share of wrong answers is from a neighbour of the right document.

    >>> float(near_share(np.array([[5.0, 1, 1], [0, 5, 0], [0, 0, 5]])))
    0.5
    """
    return (counts * (distances(counts.shape[-1]) == 1)).sum((-2, -1)) / wrong_in(counts)


def wrong_in(counts: tables.Tables) -> Float[np.ndarray, "*B"]:
    """Return how many answers are wrong."""
    return np.asarray(counts.sum((-2, -1)) - counts.trace(axis1=-2, axis2=-1))


def unit_of_32(seen: Evidence, resamples: int = 400) -> tuple[float, float, float]:
    """Return γ of 32 documents over that of eight, with its interval over sets of both."""
    long, eight = seen.sets["thirty-two"], seen.sets["eight"]
    own, other = resample_weights(len(long), resamples, seed=2), resample_weights(len(eight), resamples, seed=3)
    low, high = interval(fit_law(np.tensordot(own, long, 1))[0] / fit_law(np.tensordot(other, eight, 1))[0])
    return float(fit_law(long.sum(0))[0] / fit_law(eight.sum(0))[0]), float(low), float(high)


def mean_pull(counts: tables.Tables) -> Float[np.ndarray, "*B"]:
    """Return the mean of the two ends' pulls."""
    return (tables.pull(counts, 0) + tables.pull(counts, -1)) / 2


def share_left(occupied: Counts, free: Counts, resamples: int = 200) -> tuple[float, float, float]:
    """Return how much of the pull is left at occupied ends, with its interval over sets of both."""
    own, other = (resample_weights(len(x), resamples, seed=k) for k, x in ((2, occupied), (3, free)))
    low, high = interval(mean_pull(np.tensordot(own, occupied, 1)) / mean_pull(np.tensordot(other, free, 1)))
    return float(mean_pull(occupied.sum(0)) / mean_pull(free.sum(0))), float(low), float(high)


def end_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how much of the ends' pull is left where they are occupied, and right answers of sixteen documents."""
    counts = seen.totals["sixteen"]
    numbers = {
        "sixteen_between": counts[:, 6:12].sum() / counts.sum(),
    }  # fmt: skip
    numbers |= named("left", share_left(seen.sets["ends"], seen.sets["eight"]))
    return {f"reading_{name}": x for name, x in numbers.items()}


def sixteen_fitted(seen: Evidence) -> Float[np.ndarray, "16 16"]:
    """Return the shares of the law that is fitted to sixteen documents, with a pull of each place."""
    sharpness, pulls, _ = fit_law(seen.totals["sixteen"])
    return shares(pulls, sharpness)


def sixteen_expected(seen: Evidence) -> Float[np.ndarray, "16 16"]:
    """Return the shares that three numbers of eight documents expect of sixteen: half of γ, and two pulls."""
    first, last = seen.law.ends
    return shares(np.array([first, *[0.0] * 14, last]), seen.law.sharpness / 2)

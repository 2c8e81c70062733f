"""What the chapter ``why`` says of training: numbers, a table, a figure, and the check of Y-asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr

from studies import results
from studies.checks import Check, ranged
from studies.tune import tables
from studies.tune.follow import follow_checks, follow_said, texts_of
from studies.tune.tables import BEFORE

NAMES = {BEFORE: "(as it is)", "every": "every place", "middle": "middle", "ends": "ends"}
NAMES |= {"apart": "every place, no competitors", "text": "running text"}
COLOURS = {BEFORE: "#000000", "every": "#0072B2", "middle": "#D55E00", "ends": "#009E73"}
ASKED = ("every", "middle")
"""The two trainings on which Y-asked is decided."""
SEEDS, NOTHING = 3, 0.05
"""How many seeds the threshold asks for, and below what gain the claim is refuted."""
Arms = Mapping[str, xr.Dataset]


@dataclass(frozen=True)
class Evidence:
    """Hold the answers by arm of each seed of adapters; ``kept`` are all entries by name."""

    kept: Mapping[str, xr.Dataset]
    by_seed: Mapping[int, Arms]

    @property
    def first(self) -> Arms:
        """Return the arms of the first seed, which has the most."""
        return self.by_seed[min(self.by_seed)]

    @property
    def judged(self) -> dict[int, Arms]:
        """Return the seeds of which both trainings of Y-asked are there."""
        return {seed: arms for seed, arms in self.by_seed.items() if {*ASKED} <= {*arms}}


def load_evidence() -> Evidence:
    """Return what ``results/tune.nc`` keeps of answers."""
    kept = dict(results.load("tune").items())
    seeds = {int(name.split(".")[1].removeprefix("seed-")) for name in kept if ".seed-" in name}
    found = {seed: tables.answers_of(kept, seed) for seed in sorted(seeds)}
    return Evidence(kept, {seed: arms for seed, arms in found.items() if len(arms) > 1})


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return what the prose says of training."""
    gains = tables.gain_table(seen.first)
    every = gains.loc["every"]
    leads = [tables.gain_table(arms) for arms in seen.judged.values()]
    return {
        "why_steps": seen.kept["every.seed-0.training"].sizes["step"],
        "why_sets": seen.first[BEFORE].sizes["context"],
        "why_before_middle": gains.loc[BEFORE, "middle"],
        "why_every_middle": min(x.loc["every", "middle"] for x in leads),
        "why_every_gain": every["gain"],
        "why_every_low": every["gain low"],
        "why_every_high": every["gain high"],
        "why_controls": controls_said(seen),
        "why_again": again_said(seen),
        "why_scope": scope_said(seen),
        "why_gain": gain_said(seen),
        "why_open": open_said(seen),
        "why_follow": follow_said(texts_of(seen.kept)),
    }


def seeds_with(seen: Evidence, arm: str) -> int:
    """Return with how many seeds an arm was trained and tested."""
    return sum(arm in arms for arms in seen.by_seed.values())


COUNTS = {1: "one seed", 2: "two seeds", 3: "three seeds"}


def scope_said(seen: Evidence) -> str:
    """Return with how many seeds Y-asked's two trainings were done, of those that its threshold asks for."""
    every, middle = (seeds_with(seen, arm) for arm in ASKED)
    if every == middle:
        return COUNTS[every] + ("" if every >= SEEDS else " of the three that our threshold asks for")
    return f"{COUNTS[every]} for every place and {COUNTS[middle]} for the middle, of three"


def gain_said(seen: Evidence) -> str:
    """Return by how much more the middle gains than the ends with every place, of all seeds."""
    found = [tables.gain_table(arms).loc["every"] for arms in seen.by_seed.values() if "every" in arms]
    if len(found) == 1:
        return ranged((found[0]["gain"], found[0]["gain low"], found[0]["gain high"]))
    gains = [x["gain"] for x in found]
    low, high = min(x["gain low"] for x in found), max(x["gain high"] for x in found)
    return f"{min(gains):.2f} to {max(gains):.2f} (intervals from {low:.2f} to {high:.2f})"


def open_said(seen: Evidence) -> str:
    """Return what the seeds leave open."""
    few = len(seen.judged)
    if few >= SEEDS and is_decided(seen):
        return "That the lost middle is a matter of training holds in the three seeds that our threshold asked for."
    if few >= SEEDS:
        return "That the lost middle is a matter of training was to hold in three seeds, and does not hold in all."
    so_far = "in which it does" if is_decided(seen) else "and it does not hold in all of them"
    have = f"we have both trainings with {COUNTS[few]}"
    return f"That the lost middle is a matter of training was to hold in three seeds; {have}, {so_far}."


def again_said(seen: Evidence) -> str:
    """Return a sentence on the trainings with other seeds: another start, other facts, the same sets to answer."""
    found = []
    for seed, arms in seen.by_seed.items():
        for arm, column in (("every", "gain"), ("middle", "lead")):
            if arm in arms and arms is not seen.first:
                x = tables.gain_table(arms).loc[arm]
                told = ranged((x[column], x[f"{column} low"], x[f"{column} high"]))
                found.append(f"{_AGAIN[arm].format(told)} (seed {seed})")
    if not found:
        return "We have trained with one seed alone."
    return f"Trained again, from other starts and on other facts, it does the same: {'; '.join(found)}."


_AGAIN = {
    "every": "with every place the middle gains {} more than the ends",
    "middle": "with the middle alone the middle is ahead of the ends by {}",
}


def controls_said(seen: Evidence) -> str:
    """Return a sentence on the trainings that ask for no place among competitors."""
    there = {arm: entry for arm, entry in seen.first.items() if arm in ("apart", "text")}
    if not there:
        return (
            "Its controls, training on documents that do not compete and on text, were not run (`make tune` has them)."
        )
    gains, said = tables.gain_table({BEFORE: seen.first[BEFORE], **there}), []
    for arm in there:
        x = gains.loc[arm]
        gain = ranged((x["gain"], x["gain low"], x["gain high"]))
        said.append(f"on {_CONTROLS[arm]} the middle gains {gain} more than the ends")
    return f"As controls we trained it without any competitor: {'; '.join(said)}."


_CONTROLS = {"apart": "documents that do not compete", "text": "running text"}


def shown(seen: Evidence) -> pd.DataFrame:
    """Return the table of the page: a row an arm of the first seed, ends, middle, gain, blur and wrong answers."""
    gains, laws = tables.gain_table(seen.first), tables.law_table(seen.first)
    table = gains[["ends", "middle"]].copy()
    spans = {}
    for name, one in (("gain", gains), ("blur", laws)):
        low, high = (f"{name} {x}" if name == "gain" else x for x in ("low", "high"))
        spans[name] = ["–" if np.isnan(x[name]) else ranged((x[name], x[low], x[high])) for _, x in one.iterrows()]
    table["gain (95%)"], table["blur (95%)"] = spans["gain"], spans["blur"]
    table["wrong"] = laws["wrong"]
    order = [arm for arm in NAMES if arm in table.index]
    return table.loc[order].rename(index=NAMES).rename_axis("trained on")


def seeds_shown(seen: Evidence) -> pd.DataFrame:
    """Return by seed and arm what decides Y-asked, and right answers at the ends and between them."""
    rows = {}
    for seed, arms in seen.by_seed.items():
        gains = tables.gain_table(arms).drop(BEFORE)
        for arm in [x for x in NAMES if x in gains.index]:
            x = gains.loc[arm]
            rows[seed, NAMES[arm]] = {
                "ends": x["ends"],
                "middle": x["middle"],
                "gain (95%)": ranged((x["gain"], x["gain low"], x["gain high"])),
                "middle less ends (95%)": ranged((x["lead"], x["lead low"], x["lead high"])),
            }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(rows, names=["seed", "trained on"])
    return table


def draw_places(seen: Evidence) -> None:
    """Draw right answers by place for each training; other seeds as thin lines."""
    fig, ax = plt.subplots(figsize=(5.2, 2.9))
    places = np.arange(1, 9)
    for arms in seen.by_seed.values():
        right = tables.right_by_place(arms)
        for k, arm in enumerate(x for x in COLOURS if x in right):
            mean, low, high = right[arm]
            if arms is not seen.first:
                if arm != BEFORE:
                    ax.plot(places, mean, color=COLOURS[arm], lw=0.8, alpha=0.5)
                continue
            look: dict[str, Any] = {"color": COLOURS[arm], "marker": "o", "ms": 4, "label": NAMES[arm]}
            ax.errorbar(places + 0.08 * k, mean, [mean - low, high - mean], **look)
    ax.set(xlabel="place of the right document", ylabel="right answers", ylim=(0, 1.03))
    ax.legend(title="trained with the answer at", ncols=2, fontsize=8, title_fontsize=8)


def is_asked(arms: Arms) -> bool:
    """Say whether the middle gains more than the ends if asked at every place, and leads if asked in the middle."""
    rows = tables.gain_table(arms)
    return bool(rows.loc["every", "gain low"] > 0 and rows.loc["middle", "lead low"] > 0)


def places_mixed(rng: np.random.Generator, arms: Arms) -> dict[str, xr.Dataset]:
    """Return answers before training and after that in the middle with the places of each set mixed."""
    mixed = {arm: entry.copy() for arm, entry in arms.items()}
    for arm in (BEFORE, "middle"):
        correct = rng.permuted(mixed[arm]["correct"].values, axis=1)
        mixed[arm]["correct"] = (("context", "place"), correct)
    return mixed


def is_decided(seen: Evidence) -> bool:
    """Say whether Y-asked holds in each seed of which both trainings are there."""
    return all(is_asked(arms) for arms in seen.judged.values())


def is_refuted(judged: Mapping[int, Arms]) -> bool:
    """Say whether with every place the middle gains next to nothing in each seed."""
    return all(tables.gain_table(arms).loc["every", "gain high"] < NOTHING for arms in judged.values())


def turned_round(arms: Arms) -> dict[str, xr.Dataset]:
    """Return answers with those before training turned round: wrong where they were right."""
    return {**arms, BEFORE: arms[BEFORE].assign(correct=1 - arms[BEFORE]["correct"])}


def asked_check(seen: Evidence) -> Check:
    """Return the check of Y-asked, undecided until three seeds are there."""
    rng, judged = np.random.default_rng(0), seen.judged
    mixed = [is_asked(places_mixed(rng, arms)) for arms in judged.values() for _ in range(20 // len(judged))]
    found = []
    for seed, arms in judged.items():
        rows = tables.gain_table(arms)
        x, lead = rows.loc["every"], rows.loc["middle", "lead"]
        gain = ranged((x["gain"], x["gain low"], x["gain high"]))
        found.append(f"seed {seed}: every place {gain}, middle {lead:+.2f} more there than at the ends")
    few = len(judged) < SEEDS
    turned = {seed: turned_round(arms) for seed, arms in judged.items()}
    return Check(
        "Y-asked", "", f"The lost middle is a matter of what training asked for ({COUNTS[len(judged)]}).",
        not is_refuted(judged), "; ".join(found), "the middle's gain is below 0.05 in each seed",
        {"places mixed": mixed, "answers before turned round": [not is_refuted(turned)]},
        "the middle gains next to nothing", {"undecided": few or not is_decided(seen)},
    )  # fmt: skip


def tune_checks(seen: Evidence) -> list[Check]:
    """Return the check of Y-asked and, once it is measured, that of Y-follow."""
    return [asked_check(seen), *follow_checks(texts_of(seen.kept))]

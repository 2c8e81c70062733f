"""What the chapter ``why`` says of training: numbers, a table, a figure, and the check of Y-asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr

from posbias.lookup.scores import paired_difference
from studies import results
from studies.checks import Check, ranged
from studies.tune import tables
from studies.tune.facts import ASKED as ASKED_OF
from studies.tune.form import form_numbers
from studies.tune.tables import BEFORE
from studies.tune.tables import Answers as Arms

NAMES = {BEFORE: "as it is", "every": "every place", "middle": "places 4 and 5", "ends": "the ends"}
NAMES |= {"apart": "no competitors", "text": "running text"}
COLOURS = {BEFORE: "#000000", "every": "#0072B2", "middle": "#D55E00", "ends": "#009E73"}
CONTROL_COLOURS = {BEFORE: "#000000", "apart": "#CC79A7", "text": "#56B4E9"}
ASKED = ("every", "middle")
"""The two trainings on which Y-asked is decided."""
CONTROLS = {"apart": "documents of eight kinds, at every place", "text": "running text"}
"""Trainings without competing documents, and what they train on."""
ASKS = ("every", "ends")
"""Two trainings that differ in the places alone, and of which one asks for the middle."""
CHANCE = 1 / 8
SETS = 4
"""Sets of documents in a step of training."""
SEEDS, NOTHING, CONTROL = 3, 0.05, 0.10
"""How many seeds the threshold asks for, below what gain the claim is refuted, and what a control's gain may be."""


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
    leads = [tables.gain_table(arms) for arms in seen.judged.values()]
    tabled = [tables.gain_table(arms) for arms in seen.by_seed.values()]
    return {
        "why_steps": seen.kept["every.seed-0.training"].sizes["step"],
        "why_sets": seen.first[BEFORE].sizes["context"],
        "why_before_middle": gains.loc[BEFORE, "middle"],
        "why_before_ends": gains.loc[BEFORE, "ends"],
        "why_every_middle": min(x.loc["every", "middle"] for x in leads),
        "why_questions": seen.kept["every.seed-0.training"].sizes["step"] * SETS * ASKED_OF,
        "why_seeds": all_seeds_said(seen),
        **shares_said(seen),
        **form_numbers(seen.first),
        "why_ends_middle": np.mean([x.loc["ends", "middle"] for x in tabled if "ends" in x.index]),
        "why_last_before": tables.last_of_middle(seen.first[BEFORE]),
        "why_last_ends": np.mean([tables.last_of_middle(x["ends"]) for x in seen.by_seed.values() if "ends" in x]),
        "why_lead_middle": leads_said(seen),
        "why_difference": differences_said(seen),
        **control_shares(seen),
        **shift_said(seen),
        **contrasts_said(seen),
        "why_apart_less": apart_less(seen),
        "why_finds_all": gains.loc[BEFORE, "ends"] - gains.loc[BEFORE, "middle"],
        "why_points_before": 100 * (gains.loc[BEFORE, "ends"] - gains.loc[BEFORE, "middle"]),
    }


def listed(said: Sequence[str]) -> str:
    """Return words as a list.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(said[:-1]), *said[-1:]]))


def leads_said(seen: Evidence) -> str:
    """Return by how much the middle is ahead of the ends if it alone was asked for, each seed with its interval."""
    rows = [tables.gain_table(arms).loc["middle"] for arms in seen.judged.values()]
    return listed([ranged((x["lead"], x["lead low"], x["lead high"])) for x in rows])


def differences_said(seen: Evidence) -> str:
    """Return how many more answers from the middle are right with every place than with the ends, for each seed."""
    said = []
    for arms in seen.by_seed.values():
        if {"every", "ends"} <= {*arms}:
            every, ends = (arms[x]["correct"].values[:, tables.MIDDLE].astype(np.float64).mean(1) for x in ASKS)
            found = paired_difference(every - ends)
            said.append(ranged((found.mean, found.low, found.high)))
    return listed(said)


def shares_said(seen: Evidence) -> dict[str, str]:
    """Return by training the shares of right answers in the middle and at the ends, as words: of all its seeds."""
    said, trained = {}, {arm for arms in seen.by_seed.values() for arm in arms} - {BEFORE}
    for arm in [x for x in NAMES if x in trained]:
        entries = [arms[arm]["correct"].values.astype(np.float64) for arms in seen.by_seed.values() if arm in arms]
        said[f"why_{arm}_middle_said"] = percent([float(x[:, tables.MIDDLE].mean()) for x in entries])
        said[f"why_{arm}_ends_said"] = percent([float(x[:, tables.ENDS].mean()) for x in entries])
    right = [arms["middle"]["correct"].values.mean(0) for arms in seen.by_seed.values() if "middle" in arms]
    for end, at in (("first", 0), ("last", -1)):
        said[f"why_middle_{end}_said"] = percent([x[at] for x in right])
    beside = np.mean(right, axis=0)[[1, 2, 5, 6]]
    said["why_middle_beside_said"] = percent(beside.tolist())
    return said


def shift_said(seen: Evidence) -> dict[str, str]:
    """Return what training at the ends does to the second place, and to the sixth and seventh: the seeds' shares."""
    after = [arms["ends"]["correct"].values.mean(0) for arms in seen.by_seed.values() if "ends" in arms]
    before = seen.first[BEFORE]["correct"].values.mean(0)
    return {
        "why_ends_second_said": percent([float(x[1]) for x in after]),
        "why_ends_late_said": percent([float(x[5:7].mean()) for x in after]),
        "why_before_first": f"{before[0]:.0%}",
        "why_before_second": f"{before[1]:.1%}",
        "why_before_late": f"{before[5:7].mean():.0%}",
    }


def contrasts_said(seen: Evidence) -> dict[str, str]:
    """Return how trainings that differ in places alone differ in the middle and at the ends: points, and intervals.

    Places 4 and 5 less the ends in the middle, and every place less places 4 and 5 at the ends.
    """
    said = {}
    for name, (one, other), at in (
        ("middle", ("middle", "ends"), tables.MIDDLE), ("ends", ("every", "middle"), tables.ENDS),
    ):  # fmt: skip
        found = []
        for arms in [arms for arms in seen.by_seed.values() if {one, other} <= {*arms}]:
            of_one, of_other = (arms[x]["correct"].values[:, at].astype(np.float64).mean(1) for x in (one, other))
            found.append(paired_difference(of_one - of_other))
        points = sorted(round(100 * x.mean) for x in found) or [0]
        said[f"why_contrast_{name}"] = f"{points[0]} to {points[-1]}"
        said[f"why_contrast_{name}_said"] = listed([ranged((x.mean, x.low, x.high)) for x in found])
    return said


def apart_less(seen: Evidence) -> str:
    """Return by how many points fewer of the middle are found after training without competitors: the seeds' range."""
    both = [arms for arms in seen.by_seed.values() if {"every", "apart"} <= {*arms}]
    right = [arms["every"]["correct"].values - arms["apart"]["correct"].values for arms in both]
    points = sorted(round(100 * x[:, tables.MIDDLE].mean()) for x in right)
    return f"{points[0]} to {points[-1]}" if points else "–"


def percent(shares: Sequence[float]) -> str:
    """Return shares in percent, the least and the greatest.

    >>> percent([0.9, 0.955]), percent([0.967, 0.971])
    ('90 to 96%', '97%')
    """
    least, most = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return least if least == most else f"{least.removesuffix('%')} to {most}"


def seeds_with(seen: Evidence, arm: str) -> int:
    """Return with how many seeds an arm was trained and tested."""
    return sum(arm in arms for arms in seen.by_seed.values())


COUNTS = {1: "one seed", 2: "two seeds", 3: "three seeds"}


def all_seeds_said(seen: Evidence) -> str:
    """Return with how many seeds the three trainings were done."""
    most, ends = min(seeds_with(seen, arm) for arm in ASKED), seeds_with(seen, "ends")
    return COUNTS[most] if most == ends else f"{COUNTS[most]}, and {COUNTS[ends]} with the ends"


def controls_of(seen: Evidence) -> dict[str, list[pd.Series]]:
    """Return what each training that asks for no place among competitors gains, seed by seed."""
    found: dict[str, list[pd.Series]] = {}
    for arm in CONTROLS:
        for arms in seen.by_seed.values():
            if arm in arms:
                gains = tables.gain_table({BEFORE: arms[BEFORE], arm: arms[arm]})
                found.setdefault(arm, []).append(gains.loc[arm])
    return found


def control_shares(seen: Evidence) -> dict[str, float]:
    """Return the shares of right answers, between the ends and there, after the controls: means over seeds."""
    found = {}
    for arm, rows in controls_of(seen).items():
        for where in ("middle", "ends"):
            found[f"why_{arm}_{where}"] = float(np.mean([x[where] for x in rows]))
        firsts = [arms[arm]["correct"].values[:, 0].mean() for arms in seen.by_seed.values() if arm in arms]
        found[f"why_{arm}_first"] = float(np.mean(firsts))
    return found


def gains_said(rows: Sequence[pd.Series]) -> str:
    """Return by how much the middle gains on the ends, each seed with its interval."""
    return listed([ranged((x["gain"], x["gain low"], x["gain high"])) for x in rows])


def shown(seen: Evidence) -> pd.DataFrame:
    """Return the table of the page: arms and seeds, ends, middle, and by how much more it gains."""
    rows = {}
    for seed, arms in seen.by_seed.items():
        gains = tables.gain_table(arms)
        for arm in [x for x in NAMES if x in gains.index and (x != BEFORE or arms is seen.first)]:
            x = gains.loc[arm]
            gain = "–" if arm == BEFORE else ranged((x["gain"], x["gain low"], x["gain high"]))
            name = NAMES[arm] if arms is seen.first else f"{NAMES[arm]}, seed {seed}"
            rows[name] = {"ends": x["ends"], "middle": x["middle"], "gain (95%)": gain}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("trained on")


def draw_places(
    seen: Evidence, colours: Mapping[str, str] = COLOURS, title: str = "trained with the answer at"
) -> None:
    """Draw right answers by place for each training that has a colour; other seeds as thin lines."""
    _, ax = plt.subplots(figsize=(5.2, 2.9))
    places = np.arange(1, 9)
    for arms in seen.by_seed.values():
        right = tables.right_by_place(arms)
        for k, arm in enumerate(x for x in colours if x in right):
            mean, low, high = right[arm]
            if arms is not seen.first:
                if arm != BEFORE:
                    ax.plot(places, mean, color=colours[arm], lw=0.8, alpha=0.5)
                continue
            look: dict[str, Any] = {"color": colours[arm], "marker": "o", "ms": 4, "label": NAMES[arm]}
            ax.errorbar(places + 0.08 * k, mean, [mean - low, high - mean], **look)
    ax.axhline(CHANCE, color="0.5", ls="--", lw=0.8)
    ax.text(8.35, CHANCE + 0.01, "guess", color="0.4", fontsize=8, ha="right")
    ax.set(xlabel="place of the right document", ylabel="right answers", ylim=(0, 1.03))
    ax.legend(title=title, ncols=4, fontsize=8, title_fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))


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
        x, y = rows.loc["every"], rows.loc["middle"]
        gain, lead = (ranged((r[key], r[f"{key} low"], r[f"{key} high"])) for r, key in ((x, "gain"), (y, "lead")))
        gained = f"with every place the middle gains {gain} on the ends (alone no proof)"
        found.append(f"seed {seed}: {gained}, with places 4 and 5 it leads them by {lead}")
    before = tables.gain_table(seen.first).loc[BEFORE]
    found.append(f"(a model that finds all gains {before['ends'] - before['middle']:.2f})")
    few = len(judged) < SEEDS
    turned = {seed: turned_round(arms) for seed, arms in judged.items()}
    return Check(
        "Y-asked", "", f"Further training at chosen places changes which places are lost ({COUNTS[len(judged)]}).",
        not is_refuted(judged), "; ".join(found), "the middle's gain is below 0.05 in each seed",
        {"places mixed": mixed, "answers before turned round": [not is_refuted(turned)]},
        "the middle gains next to nothing", {"undecided": few or not is_decided(seen)},
    )  # fmt: skip


def is_beyond(rows: Sequence[pd.Series]) -> bool:
    """Say whether in each seed the middle's gain over the ends' lies wholly beyond what a control's may be."""
    return all(x["gain low"] > CONTROL or x["gain high"] < -CONTROL for x in rows)


def control_checks(seen: Evidence) -> list[Check]:
    """Return the check of Y-asked's controls, none if neither was trained."""
    there = controls_of(seen)
    if not there:
        return []
    turned = {seed: turned_round(arms) for seed, arms in seen.by_seed.items()}
    rejects = any(map(is_beyond, controls_of(Evidence(seen.kept, turned)).values()))
    beyond = [arm for arm, rows in there.items() if is_beyond(rows)]
    within = []
    for arm, rows in there.items():
        if all(max(abs(x["gain low"]), abs(x["gain high"])) <= CONTROL for x in rows):
            within.append(arm)
    return [Check(
        "Y-asked", "controls", "Neither control moves middle and ends apart.", not beyond,
        ", ".join(f"{NAMES[arm]} {gains_said(rows)}" for arm, rows in there.items()),
        "in each seed the interval of the middle's gain over the ends' lies wholly beyond 0.10",
        {"answers before turned round": [not rejects]},
        f"they move apart after training on {listed([CONTROLS[arm] for arm in beyond])}",
        {"undecided": not beyond and len(within) < len(CONTROLS)},
    )]  # fmt: skip


def tune_checks(seen: Evidence) -> list[Check]:
    """Return the checks of Y-asked and, once they are measured, of its controls."""
    return [asked_check(seen), *control_checks(seen)]

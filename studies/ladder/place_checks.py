"""Checks of where trained networks lie between head gains squared and added, and whether they have a U."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr

from posbias.comparison.samples import SMOOTH, Sample, u_decisions
from posbias.rollout.profiles import mean_position
from studies.checks import Check
from studies.ladder import alignment_tables as alignment
from studies.ladder.evidence import MODELS, Small
from studies.reference.influence_tables import shuffled, start_moved, with_profile
from studies.reference.trained import training_record
from studies.results import load

Samples = Mapping[str, Sample]


def read_between(kept: Mapping[str, xr.Dataset], models: tuple[str, ...]) -> dict[str, xr.Dataset]:
    """Return the entries of models, seeds and states of training, with their stage."""
    found: dict[tuple[int, int, int, bool], tuple[str, xr.Dataset]] = {}
    for entry in kept:
        name = alignment.NAME.match(entry)
        if name is None or name["model"] not in models:
            continue
        model, finished = name["model"], name["part"] == "between"
        x, record = kept[entry], training_record(model)
        seed = int(name["seed"] if name["seed"] is not None else record["seed"])
        step = int(x.attrs.get("training_steps", record["steps"]))
        stage = {"model": model, "seed": seed, "step": step, "finished": int(finished)}
        of_stage = {f"stage_{k}": value for k, value in stage.items()}
        found.setdefault((models.index(model), seed, step, finished), (entry, x.assign_attrs(of_stage)))
    return dict(found[key] for key in sorted(found))


class Places:
    """Hold networks, states of their training, and where each lies between both limits."""

    def __init__(self, small: Small) -> None:
        self.between = read_between(load("ladder"), MODELS)
        self.asked = {name: alignment.sample_between(x) for name, x in self.between.items()}
        more = {f"{m}.between": x for m, x in small.judged.items()}  # on more prompts
        self.of_u = self.asked | {k: alignment.sample_between(more[k]) for k in more if k in self.asked}

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each network and state."""
        return alignment.place_table(self.between)

    @cached_property
    def ended(self) -> pd.DataFrame:
        """The rows of networks whose training has ended."""
        return self.table[self.table["finished"] == 1]

    @cached_property
    def u(self) -> pd.Series:
        """Whether each has a U."""
        return valleys(self.of_u)


def valleys(samples: Samples) -> pd.Series:
    """Return whether each has a U: yes, no or open."""
    return u_decisions(samples, resamples=50 * max(len(samples), 20))["u"]


def u_check(places: Places, rng: np.random.Generator) -> Check:
    """Return the check that training does not overcome the trough."""
    ended = places.ended.index

    def keep(samples: Samples) -> bool:
        u = valleys(samples)
        return bool((u[u.index.isin(ended)] == "yes").mean() > 0.5 and (u != "no").all())

    u = places.u
    with_u, lost = u[u.index.isin(ended)] == "yes", u.index[u == "no"]
    without = {k: start_moved(places.of_u[k], 0.0, smooth=SMOOTH) for k in ended}
    mixed = {k: shuffled(places.of_u[k], rng) for k in ended}
    return Check(
        "BI-train", "", "Training does not overcome the trough.", keep(places.of_u),
        f"a U is significant in {with_u.sum()} of {len(ended)} trained networks and "
        f"undecided in {len(ended) - with_u.sum()}; none is gone in {len(places.of_u) - len(ended)} states before",
        "the U of some trained network or state before is significantly gone by "
        "Holm's rule, or half of the trained networks have none that is significant",
        {
            "first tokens on their trough's level": [keep(places.of_u | without)],
            "positions of trained networks shuffled": [keep(places.of_u | mixed)],
        },
        f"{len(lost)} have lost theirs, or too few have one",
        {"undecided": not with_u.all(), "post_hoc": True},
        f"a U in {with_u.sum()} of {len(ended)} trained networks, undecided in {len(ended) - with_u.sum()}",
    )  # fmt: skip


def moved_between(sample: Sample, limits: alignment.Limits, place: float) -> Sample:
    """Return a sample with its own noise whose profile is at a place between both limits."""
    law, aligned = limits
    inner = min(place, 1.0)
    p = (1 - inner) * law + inner * aligned
    if place > 1:
        first, last = mean_position(law), mean_position(aligned)
        p = p * ((first + place * (last - first)) / mean_position(p))
        p[0] += 1 - p.sum()
    return with_profile(sample, p)


def between_check(places: Places) -> Check:
    """Return the check that influence lies between head gains squared and added."""
    trained = {k: x for k, x in places.asked.items() if k in places.ended.index}
    limits = {name: alignment.limits_of(x) for name, x in places.between.items()}

    def put(place: float) -> dict[str, Sample]:
        return {name: moved_between(x, limits[name], place) for name, x in trained.items()}

    def within(samples: Samples) -> bool:
        return bool((alignment.limit_decisions(samples, limits) == "within").all(axis=None))

    inside, sides = put(0.5), alignment.limit_decisions(trained, limits)
    past = [within(inside | {k: x}) for k, x in put(1.1).items()]
    on_law = [within(inside | {k: x}) for k, x in put(0.0).items()]
    stand, beyond = (sides == "within").all(axis=1), (sides == "beyond").any(axis=1)
    return Check(
        "BI-between", "between the limits", "Influence lies between head gains squared and added.", within(trained),
        f"mean position within both limits in {stand.sum()} of {len(stand)} trained "
        f"networks, beyond one in {beyond.sum()}",
        "some trained network is not within both limits by Holm's rule",
        {"one of them a tenth beyond added gains, others in between": past,
         "one of them on the law, others in between": on_law},
        f"{(~stand).sum()} of {len(stand)} trained networks are not significantly within both limits",
        {"in_part": bool(stand.any())}, f"{stand.sum()} of {len(stand)} trained networks",
    )  # fmt: skip


def says_where(table: pd.DataFrame) -> bool:
    """Say whether coherence ranks places, and misses them by less than one number for all does."""
    found = alignment.agreement(table, resamples=200)
    return bool(found["low"] > 0 and found["error"] < found["spread"])


def coherence_check(places: Places, rng: np.random.Generator) -> Check:
    """Return the check that coherence says where a network lies."""
    table, said = places.table, alignment.agreement(places.table)
    true_place = table.assign(coherence=table["place"])
    draws = [rng.permutation(true_place["coherence"]) for _ in range(20)]
    raised = true_place.assign(coherence=table["place"] + table["place"].std(ddof=0))
    return Check(
        "BI-between", "coherence says where", "Coherence says where.", says_where(table),
        f"rank correlation {said['spearman']:.2f} [{said['low']:.2f}, {said['high']:.2f}] "
        f"over {len(table)} networks; error {said['error']:.2f}, {said['spread']:.2f} by one number for all",
        "the rank correlation's interval over architectures holds 0, or the error "
        "is no less than that of one place for all",
        {"the places exchanged": [says_where(true_place.assign(coherence=x)) for x in draws],
         "places off by one spread": [says_where(raised)]},
        "sizes of what comes through branches move it as well", {"in_part": bool(said["low"] > 0), "post_hoc": True},
    )  # fmt: skip


def place_checks(small: Small) -> list[Check]:
    """Return the checks of networks between both limits."""
    places, rng = Places(small), np.random.default_rng(0)
    return [u_check(places, rng), between_check(places), coherence_check(places, rng)]

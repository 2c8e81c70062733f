"""Checks of the ladder: what each step from the gradient to the rollout costs in the ten small models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import xarray as xr

from studies.checks import Check
from studies.ladder.evidence import MODELS, Small, distances, profile_of
from studies.ladder.rung_tables import OWN, decisions, rung_profiles
from studies.results import load, of_kind

FAILS_IF = (
    "in some model the rung is further away than layer shares, by Holm's rule, or is "
    "what prompts' own layers give; undecided if it is not closer in every model; "
    "broken, also if it is closer in fewer models"
)
PARTS = {
    "independent": "independent layers",
    "fixed-attention": "fixed attention",
    "vectors": "mean attention",
}
"""Rungs that are set against layer shares, and what the ledger calls them."""

Profiles = Mapping[str, np.ndarray]


def of(small: Small, rung: str, step: int = 0) -> dict[str, np.ndarray]:
    """Return a rung of every model, or that of another one, so many steps on."""
    others = np.roll(MODELS, step)
    return {m: small.of_rungs[str(o)][rung] for m, o in zip(MODELS, others, strict=True)}


def counted(signs: pd.Series) -> str:
    """Say in how many models a prediction is closer, and in how many further away."""
    closer, further = (signs > 0).sum(), (signs < 0).sum()
    return f"closer in {closer} of {len(signs)} models, further in {further}"


def rung_check(small: Small, rung: str) -> Check:
    """Return the check that a rung is closer than layer shares."""
    before = of(small, "b")
    own = {m: rung_profiles(x, OWN)[rung] for m, x in small.rungs.items()}
    signs = decisions(small.rungs, before, of(small, rung), resamples=small.resamples)
    means = {k: distances(of(small, k), small.exact).mean() for k in (rung, "b")}

    def ahead(after: Profiles) -> int:
        """Return in how many models it is nearer; none if all is as it was."""
        if min(np.abs(after[m] - own[m]).sum() for m in MODELS) <= 0.01:
            return 0
        return int((decisions(small.rungs, before, after, resamples=small.resamples) > 0).sum())

    def as_often(after: Profiles) -> bool:
        return bool(ahead(after) >= (signs > 0).sum())

    return Check(
        "X-ladder", PARTS[rung], f"With {PARTS[rung]} the prediction is closer than layer shares.",
        ahead(of(small, rung)) > 0 and not (signs < 0).any(),
        f"mean W1 {means[rung]:.3f}, layer shares {means['b']:.3f}; {counted(signs)}", FAILS_IF,
        {
            "the rung of another model": [as_often(of(small, rung, k)) for k in range(1, len(MODELS))],
            "pairings that keep the prompt": [as_often(own)],
            "gains, squares, in its place": [as_often(of(small, "law"))],
            "gains, sizes, in its place": [as_often(of(small, "aligned"))],
        },
        f"further away than layer shares in {', '.join(signs.index[signs < 0])}",
        {"undecided": bool((signs == 0).any()), "in_part": bool((signs > 0).any()), "post_hoc": True},
        counted(signs),
    )  # fmt: skip


def broken_check(
    small: Small, part: str, said: str, what: str, entries: Mapping[str, xr.Dataset], both: tuple[Profiles, Profiles]
) -> Check:
    """Return the check that an error made on purpose takes the prediction further away."""
    own, broken = both
    exact = {m: profile_of(x["influence_prompts"].values) for m, x in entries.items()}
    mean = [distances(p, exact).mean() for p in both]
    signs = decisions(entries, own, broken, resamples=small.resamples)
    many = int((signs < 0).sum())

    def further(one: Profiles, other: Profiles) -> int:
        return int((decisions(entries, one, other, resamples=small.resamples) < 0).sum())

    return Check(
        "X-ladder", part, said, many == len(signs),
        f"mean W1 {mean[0]:.3f}, with {what} {mean[1]:.3f}; {counted(signs)}",
        f"in some model the profile with {what} is not further from the "
        "measured one, by Holm's rule; broken, if it is further in fewer models",
        {"the two exchanged": [further(broken, own) >= many], "nothing changed": [further(own, own) >= many]},
        f"closer in {', '.join(signs.index[signs > 0]) or 'none'}, undecided in {(signs == 0).sum()}",
        {"in_part": bool(many), "post_hoc": True}, counted(signs),
    )  # fmt: skip


def kept_rows(entries: Mapping[str, xr.Dataset], name: str) -> dict[str, np.ndarray]:
    """Return the profile of a variable that has a row for each prompt, by model."""
    return {m: profile_of(x[f"{name}_prompts"].values) for m, x in entries.items()}


def broken_checks(small: Small) -> list[Check]:
    """Return the checks of three errors: other layers' value maps, exchanged gates, attention one token late."""
    found = []
    errors: dict[str, tuple[str, str, str, str]] = {
        "value maps": ("exchanged", "exchanged", "every layer has the next layer's value maps",
                       "the next layer's maps"),
        "gates": ("permuted", "permuted", "hidden units exchange their gates", "gates that hidden units exchange"),
    }  # fmt: skip
    for part, (kind, name, said, what) in errors.items():
        entries = of_kind(load("ladder"), kind, MODELS)
        both = kept_rows(entries, "own"), kept_rows(entries, name)
        found.append(broken_check(small, part, f"If {said}, the prediction is further away.", what, entries, both))
    own = {m: rung_profiles(x)["positions"] for m, x in small.rungs.items()}
    late = {m: rung_profiles(x)["shifted"] for m, x in small.rungs.items()}
    said = "If attention comes one token late, the prediction is further away."
    late_by = "each query one token back"
    return [*found, broken_check(small, "shifted kernel", said, late_by, small.rungs, (own, late))]


def positions_check(small: Small) -> Check:
    """Return the check that value maps are as near with positional as with mean attention."""
    signs: Callable[[Profiles], pd.Series] = lambda after: (  # noqa: E731 - said of one pair alone
        decisions(small.rungs, of(small, "vectors"), after, resamples=small.resamples)
    )
    lost = signs(of(small, "positions")) < 0
    means = {k: distances(of(small, k), small.exact).mean() for k in ("positions", "vectors")}
    others = [bool((signs(of(small, "positions", k)) < 0).sum() <= lost.sum()) for k in range(1, len(MODELS))]
    return Check(
        "X-ladder", "positions alone", "Value maps are as near with positional as with mean attention.",
        not lost.any(),
        f"mean W1 {means['positions']:.3f}, with mean attention {means['vectors']:.3f}; "
        f"further in {lost.sum()} of {len(lost)} models",
        "in some model they are further than mean attention, by Holm's rule; broken, if they are in more models",
        {"the rung of another model": others},
        "the distance is significantly larger than with mean attention in " + ", ".join(lost.index[lost]),
        {"in_part": bool((~lost).any()), "post_hoc": True},
    )  # fmt: skip


def ladder_checks(small: Small) -> list[Check]:
    """Return the checks of the ladder."""
    return [*(rung_check(small, rung) for rung in PARTS), *broken_checks(small), positions_check(small)]

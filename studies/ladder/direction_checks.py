"""Checks of what directions are needed for: between layers, and where two gradients meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from posbias.comparison.distances import unit
from posbias.comparison.resampling import t_interval
from posbias.measured_kernels import dense, position_kernels
from studies.checks import Check
from studies.ladder.evidence import Small, distances, profile_of
from studies.ladder.joining import JOINS, join_table, joined_profile
from studies.ladder.rung_tables import decisions
from studies.reference import training_seeds
from studies.results import load, seeds_of

SHARES = (0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
"""Shares of a network's width that are kept between layers; 0 is one direction."""

Profiles = Mapping[str, np.ndarray]


def projected(small: Small, share: float) -> dict[str, np.ndarray]:
    """Return the profiles with that share of the directions between layers."""
    k = SHARES.index(share)
    return {m: unit(x["kept"].isel(directions=k).sel(at="layers").values) for m, x in small.turned.items()}


def by_turns(small: Small) -> dict[str, np.ndarray]:
    """Return the profiles with gradients turned at random between layers."""
    return {m: unit(x["turned"].values.sum(0)) for m, x in small.turned.items()}


def exact(small: Small) -> dict[str, np.ndarray]:
    """Return the measured profiles of the prompts on which directions are taken away."""
    return {m: profile_of(x["influence_prompts"].values) for m, x in small.turned.items()}


def loses(signs: pd.Series) -> bool:
    """Say whether some model gets significantly further away, and none significantly nearer."""
    return bool((signs < 0).any() and not (signs > 0).any())


def turn_checks(small: Small) -> list[Check]:
    """Return the checks that the relation between layers, and more than an eighth of directions, are needed."""
    whole, to, how = projected(small, 1), exact(small), {"resamples": small.resamples}
    nothing = decisions(small.turned, whole, whole, **how)
    parts = {
        "random turns between layers": (
            "A prediction from value maps needs the relation between layers.", by_turns(small)),
        "an eighth of the directions": ("It needs more than an eighth of the directions.", projected(small, 1 / 8)),
    }  # fmt: skip
    found, most = [], [distances(whole, to, m).mean() for m in ("W1", "total variation")]
    for part, (said, after) in parts.items():
        signs = decisions(small.turned, whole, after, **how)
        lost = signs < 0
        found.append(Check(
            "X-turn", part, said, loses(signs),
            f"mean W1 {distances(after, to).mean():.3f}, with all directions "
            f"{most[0]:.3f} (total variation {distances(after, to, 'total variation').mean():.3f}, "
            f"{most[1]:.3f}); significantly further in {lost.sum()} of "
            f"{len(lost)} models, undecided in {', '.join(lost.index[~lost])}",
            "no model's distance is significantly larger (Holm), or one's is significantly smaller",
            {
                "all directions": [loses(nothing)],
                "before and after exchanged": [loses(decisions(small.turned, after, whole, **how))],
            },
            "no model gets further away, or one gets nearer", {"undecided": not lost.all(), "post_hoc": True},
            f"significantly further in {lost.sum()} of {len(lost)} models, undecided in the others",
        ))  # fmt: skip
    return found


def joined(small: Small) -> dict[str, dict[str, np.ndarray]]:
    """Return layer shares by model, with sizes added, and with squares added."""
    found: dict[str, dict[str, np.ndarray]] = {name: {} for name in JOINS}
    for m, x in small.judged.items():
        lam = x["lambda_frobenius"].values.astype(float)
        A = dense(position_kernels(x), lam.size, x.sizes["position"])
        for name, power in JOINS.items():
            found[name][m] = joined_profile(A, lam, power=power)
    return found


def brings_nearer(gains: Any, losses: int, rises: int = 0) -> bool:
    """Say whether the mean gain is above 0, no model loses, and total variation rises in none."""
    return bool(t_interval(gains)[0] > 0) and losses == 0 and rises == 0


def join_check(small: Small) -> Check:
    """Return the check that right angles bring layer shares closer."""
    trained = join_table(small.judged, resamples=small.resamples)
    seeds = training_seeds.complete(seeds_of(load("models"), "builtin", list(small.judged)))
    again = training_seeds.split_seeds(join_table(training_seeds.by_seed(seeds), resamples=small.resamples))
    by_seed = again.pivot(index="model", columns="seed", values="gain")
    over_seeds = by_seed.drop("llama-ntk-12", errors="ignore").mean(axis=1)
    gains = trained.query("model != 'llama-ntk-12'")["gain"].to_numpy()
    to = {m: unit(x["influence"].values) for m, x in small.judged.items()}
    moved = {k: distances(p, to, "total variation") for k, p in joined(small).items()}
    rises = (moved["angles"] > moved["sizes"]).sum()
    losses = trained[trained["decided"] < 0]["model"]
    ends, seed_ends = t_interval(gains), t_interval(over_seeds.to_numpy())
    rng = np.random.default_rng(0)
    by_chance = [brings_nearer(gains * signs, 0) for signs in rng.choice([-1, 1], size=(200, gains.size))]
    fewer = rng.integers(gains.size, size=(200, gains.size))
    tenth = [brings_nearer(gains[draw] - 0.9 * gains.mean(), 0) for draw in fewer]
    return Check(
        "X-join", "", "Right angles bring layer shares closer.", brings_nearer(gains, len(losses), rises),
        f"by W1 mean gain of layer shares {gains.mean():.3f} [{ends[0]:.3f}, "
        f"{ends[1]:.3f}] over {gains.size} architectures, of means over seeds "
        f"{over_seeds.mean():.3f} [{seed_ends[0]:.3f}, {seed_ends[1]:.3f}]; closer in "
        f"{(trained['decided'] > 0).sum()} of {len(trained)} models by Holm's rule, further in "
        f"{len(losses)}; total variation rises in {rises}, on average from "
        f"{moved['sizes'].mean():.3f} to {moved['angles'].mean():.3f}",
        "the mean gain in W1 over architectures has an interval that holds 0, a "
        "loss is significant in a model, or total variation rises in one",
        {"the gains' signs drawn at random": by_chance, "a mean gain of a tenth, models drawn again": tenth},
        f"by W1 the rollout gets significantly further away in {', '.join(losses)}, "
        f"by total variation further in {rises} models",
        {"in_part": bool(ends[0] > 0), "post_hoc": True},
        f"by W1 nearer in {(trained['decided'] > 0).sum()} of {len(trained)} models, by total variation further "
        f"in {rises}",
    )  # fmt: skip


def direction_checks(small: Small) -> list[Check]:
    """Return the checks of directions."""
    return [*turn_checks(small), join_check(small)]

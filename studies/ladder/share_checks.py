"""Checks of contributions in the ten small models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd

from posbias.comparison.distances import normalised_wasserstein, spearman, unit
from posbias.comparison.resampling import resampled_profiles
from posbias.measure.corpus import known_units
from studies.checks import Check
from studies.ladder.evidence import MODELS, Small, distances
from studies.ladder.rung_tables import decisions

ROLLOUTS = ("layer-shares", "measured-attention", "token-lambda", "half", "norms")
"""The other rollouts: two of attention, with a λ for each token, Abnar's and Kobayashi's."""
RUNS = 20

Profiles = Mapping[str, np.ndarray]


def of(small: Small, name: str, step: int = 0) -> dict[str, np.ndarray]:
    """Return a prediction of every model, or that of another one, so many steps on."""
    others = np.roll(MODELS, step)
    return {m: small.of_shares[str(o)][name] for m, o in zip(MODELS, others, strict=True)}


@cache
def drawn(small: Small) -> dict[str, np.ndarray]:
    """Return the measured profiles of 100 resamples of the documents."""
    found = {}
    for m, x in small.judged.items():
        found[m] = resampled_profiles(x["influence_prompts"].values, 100, units=known_units(x))
    return found


def in_order(profiles: Profiles, measured: Profiles) -> bool:
    """Say whether rank correlations are above 0 in all models, documents resampled."""
    for m, p in profiles.items():
        if np.quantile([spearman(p, q) for q in measured[m]], 0.025) <= 0:
            return False
    return True


def order_check(small: Small) -> Check:
    """Return the check that contributions and influence correlate in rank."""
    rng, own, measured = np.random.default_rng(0), of(small, "contributions"), drawn(small)
    ranks = distances(own, small.measured, "rank correlation")
    others = [in_order(of(small, "contributions", k), measured) for k in range(1, len(MODELS))]
    shuffled = []
    for _ in range(RUNS):
        mixed = {m: rng.permutation(p) for m, p in own.items()}
        shuffled.append(in_order(mixed, measured))
    return Check(
        "C-models", "order", "Contributions and influence correlate in rank.", in_order(own, measured),
        f"{ranks.min():+.2f} to {ranks.max():+.2f}", "in some model the rank correlation's 95% interval reaches 0",
        {
            "positions shuffled": shuffled,
            "another model's contributions": others,
            "reversed": [in_order({m: p[::-1] for m, p in own.items()}, measured)],
            "layer shares in their place": [in_order(of(small, "layer-shares"), measured)],
        },
        "no order in some model", {},
    )  # fmt: skip


def nearer(small: Small, name: str, step: int = 0, resamples: int | None = None) -> pd.Series:
    """Return by model whether contributions, or another model's, are nearer (1) or further (-1) than a prediction."""
    after = of(small, "contributions", step)
    return decisions(small.judged, of(small, name), after, resamples=resamples or small.resamples)


@cache
def rollout_signs(small: Small) -> pd.DataFrame:
    """Return by model and other rollout whether contributions are nearer."""
    return pd.DataFrame({name: nearer(small, name) for name in ROLLOUTS})


def distance_check(small: Small) -> Check:
    """Return the check that no other rollout is as near."""
    signs = rollout_signs(small)
    best, worse = signs.index[(signs > 0).all(axis=1)], signs.index[(signs < 0).any(axis=1)]
    trials = [nearer(small, x, k, 200) for x in ROLLOUTS[:3] for k in (1, 4)]
    return Check(
        "C-models", "distance", "No other rollout is as near as contributions.", len(best) == len(MODELS),
        f"nearest of all rollouts in {len(best)} of {len(MODELS)} models",
        "in some model another rollout is not further away, by Holm's rule",
        {"another model's contributions": [all(x > 0) for x in trials]},
        f"another rollout is significantly nearer in {', '.join(worse)}", {"in_part": bool(len(best))},
    )  # fmt: skip


def mean_check(small: Small, most: float = 0.01) -> Check:
    """Return the check that mean matrices are enough."""
    own = of(small, "contributions-own")

    def suffices(others: Profiles) -> bool:
        return all(normalised_wasserstein(p, own[m]) < most for m, p in others.items())

    W = pd.DataFrame({k: distances(of(small, k), small.measured) for k in ("contributions", "contributions-own")})
    apart = (W["contributions"] - W["contributions-own"]).abs().max()
    return Check(
        "C-models", "mean matrices", "In the ten small models mean matrices are enough.",
        suffices(of(small, "contributions")), f"W1 differs by at most {apart:.3f}",
        "the product of mean kernels is 0.01 from the mean of products somewhere",
        {
            "another model": [suffices(of(small, "contributions", 1))],
            "distance alone": [suffices(of(small, "distance"))],
        },
        "averaging over prompts moves the profile", {"post_hoc": True},
    )  # fmt: skip


def last_check(small: Small) -> Check:
    """Return the check that contributions give the last token too much."""
    own, measured = of(small, "contributions"), drawn(small)

    def too_recent(profiles: Profiles) -> bool:
        return all(p[-1] > np.quantile(measured[m][:, -1], 0.975) for m, p in profiles.items())

    over = [m for m in MODELS if own[m][-1] > small.measured[m][-1]]
    return Check(
        "C-models", "last token", "In the ten small models contributions give the last token too much.",
        too_recent(own), f"above the measured share in {len(over)} of {len(MODELS)} models",
        "the last token's share is not above the measured 95% interval somewhere",
        {
            "layer shares in their place": [too_recent(of(small, "layer-shares"))],
            "the measured profile": [too_recent(small.measured)],
        },
        "not in " + ", ".join(m for m in MODELS if m not in over), {"in_part": bool(over), "post_hoc": True},
    )  # fmt: skip


def power_check_of(small: Small, most: float = 0.06) -> Check:
    """Return the check that one power, fitted on nine models, repairs the distance in the tenth."""

    def all_near(profiles: Profiles) -> bool:
        return bool((distances(profiles, small.measured) < most).all())

    powered = distances(of(small, "raised"), small.measured)
    root = {m: unit(np.sqrt(p)) for m, p in of(small, "contributions").items()}
    return Check(
        "C-models", "one power", "In the ten small models one power repairs most of the distance.",
        all_near(of(small, "raised")), f"W1 {powered.mean():.3f} on average, {powered.max():.3f} at most",
        "contributions to the mean power of nine models are 0.06 from the tenth",
        {
            "another model's contributions": [all_near(of(small, "raised", k)) for k in range(1, len(MODELS))],
            "a power law by the same rule": [all_near(of(small, "power-others"))],
            "the power 1": [all_near(of(small, "contributions"))],
            "the power 1/2": [all_near(root)],
        },
        "further away in some model", {"post_hoc": True},
    )  # fmt: skip


def model_checks(small: Small) -> list[Check]:
    """Return the checks of contributions in the ten models."""
    return [order_check(small), distance_check(small), mean_check(small), power_check_of(small), last_check(small)]

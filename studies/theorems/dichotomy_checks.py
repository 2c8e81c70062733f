"""The check of the dichotomy token by token, and all checks at infinite depth with the numbers that the page quotes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool
from matplotlib.figure import Figure

from studies.checks import Check
from studies.theorems.bound_checks import PROVED, lemma_checks, rope_check
from studies.theorems.collapse_checks import DELTA, EPSILON, collapse_check, survival_check, survival_proof_check
from studies.theorems.depth import masses_of_moves, masses_off_first, stage_bound, stay_weights
from studies.theorems.depth_draws import DEEP, MIXING, TRIALS, Depths, N, Rollouts, broken

Case = dict[str, np.ndarray]
Rule = Callable[[Case], Bool[np.ndarray, "cases"]]


def between(rollouts: Rollouts, bound: Callable[..., np.ndarray] = stage_bound, order: int = 1) -> bool:
    """Say whether every mass off token 1 is between its diagonal and its stages."""
    for A, mix in rollouts:
        stays, masses = stay_weights(A, mix), masses_off_first(A[::order], mix[::order])
        least = np.cumprod(stays, axis=0)
        if (masses < least - 1e-12).any() or (masses > bound(stays) + 1e-12).any():
            return False
    return True


def criterion(case: Case, limit: float = 1) -> Bool[np.ndarray, "cases"]:
    """Say of each rollout whether all sums are infinite, or a token is emptied onto the first at once."""
    emptied = case["emptied"] & case["to first"]
    return np.asarray(((case["power"] <= limit) | emptied).all(axis=1))


def sorted_right(case: Case, rule: Rule = criterion) -> bool:
    """Say whether exactly the rollouts that the rule names have collapsed."""
    return bool((rule(case) == (case["mass"].max(axis=1) < 0.05)).all())


def draw_powers(rng: np.random.Generator, cases: int = 12, later: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Draw how fast tokens stop leaving themselves, and which are emptied at once."""
    power = rng.choice([0.5, 0.75, 1, 1.5, 2], (cases, later), p=[0.3, 0.2, 0.2, 0.15, 0.15])
    power[:2] = (0.5, 0.75, 2)
    power[2:4] = [(0.75, 0.5, 1), (2, 0.5, 0.5)]
    emptied = np.zeros((cases, later), dtype=bool)
    emptied[:2, 2] = True
    return power, emptied


def draw_sums(rng: np.random.Generator, layers: int = 5000) -> Case:
    """Draw rollouts without a floor of attention, and what is off the first token in the end."""
    power, emptied = draw_powers(rng)
    cases, later = power.shape
    jumps = np.tril(rng.uniform(size=(cases, later, later)), -1)
    jumps /= np.maximum(jumps.sum(axis=2, keepdims=True), 1e-9)
    jumps[1, 2] = 0  # to the first token alone
    to_first = np.broadcast_to(jumps.sum(axis=2) == 0, emptied.shape)
    turns = np.arange(layers)[:, None, None] % later == np.arange(later)
    apart = (power < 1).all(axis=1) & (np.arange(cases) % 2 == 1)
    leaves = np.arange(2, layers + 2)[:, None, None] ** -power
    leaves = np.where(apart[:, None] & ~turns, 0, leaves)
    leaves[0] = np.where(emptied, 1, leaves[0])
    mass = masses_of_moves(leaves, jumps)
    return {"power": power, "emptied": emptied, "to first": to_first, "mass": mass}


def faster(stays: np.ndarray) -> np.ndarray:
    """Return the bound of stages with leaving weights 2% larger."""
    return stage_bound(np.maximum(1 - 1.02 * (1 - stays), 0))


def other_order(stays: np.ndarray) -> np.ndarray:
    """Return the bound with the stages in the opposite order."""
    return stage_bound(stays[:, ::-1])[:, ::-1]


RULES: dict[str, dict[str, Rule]] = {
    "Σλ_t for every token's own sum": {"rule": lambda x: np.ones(12, dtype=bool)},
    "the last token's sum alone": {"rule": lambda x: x["power"][:, -1] <= 1},
    "1/t counted as finite": {"rule": lambda x: criterion(x, limit=0.9)},
    "a vanishing factor as enough": {"rule": lambda x: np.asarray(((x["power"] <= 1) | x["emptied"]).all(axis=1))},
}
BOUNDS: dict[str, dict[str, Any]] = {
    "leaving weights 2% larger in the bound": {"bound": faster},
    "stages in the opposite order": {"bound": other_order},
    "layers multiplied in the opposite order": {"order": -1},
}


def dichotomy_check(depths: Depths) -> Check:
    """Return the check of the dichotomy token by token."""
    sums = [draw_sums(depths.rng) for _ in range(TRIALS)]
    kernels = [x[:3] for x in depths.draws]
    power = broken(sorted_right, sums, RULES) | broken(between, kernels, BOUNDS)
    collapsed = sum(int((x["mass"].max(axis=1) < 0.05).sum()) for x in sums)
    return Check(
        "X-dichotomy", "", "Ours: each token's own sum decides, without the assumptions.",
        between(sum(kernels, [])) and all(map(sorted_right, sums)),
        f"the mass off token 1 of {3 * TRIALS} rollouts is between both sides of the theorem at every depth; of "
        f"{12 * TRIALS} rollouts without a floor of attention {collapsed} collapse, namely those "
        "whose sums are all infinite and those with a token emptied onto token 1 at once; a vanishing factor "
        "alone is not enough",
        "a mass is outside its bounds by more than 1e-12, or a rollout is below "
        "0.05 after 5000 layers without the criterion, or not with it",
        power, "a rollout is outside its bounds or on the wrong side", PROVED,
    )  # fmt: skip


def depth_checks() -> list[Check]:
    """Return every check at infinite depth, in the order in which its cases are drawn."""
    depths = Depths()
    made = [*lemma_checks(depths), survival_check(depths), survival_proof_check(), collapse_check(depths)]
    return [*made, dichotomy_check(depths), rope_check(depths)]


def depth_numbers(masses: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the numbers that the page quotes of collapse."""
    below = masses[f"λ = {MIXING}"] < np.log(0.01)
    return {
        "depth_n": N, "depth_lambda": MIXING, "depth_residual": str(np.argmax(below) + 1),
        "depth_ratio_uniform": DELTA["uniform"] / EPSILON["uniform"],
        "depth_ratio_alibi": DELTA["ALiBi"] / EPSILON["ALiBi"],
    }  # fmt: skip


def draw_dichotomy(masses: dict[str, np.ndarray]) -> Figure:
    """Draw the mass off the first token against depth, for four schedules."""
    fig, ax = plt.subplots(figsize=(6.4, 3.1))
    places = ((3, 3e-4), (200, 3e-3), (DEEP, 0.2), (DEEP, 1.15))
    looks = zip(masses.items(), (":", "-.", "--", "-"), places, strict=True)
    for (name, logs), style, place in looks:
        (line,) = ax.plot(np.arange(1, DEEP + 1), np.exp(np.maximum(logs, -20)), linestyle=style)
        text = name.replace("λ", r"$\lambda$").replace("²", "$^2$")
        side = "left" if place[0] < DEEP else "right"
        ax.text(*place, text, color=str(line.get_color()), ha=side)
    ax.set(xscale="log", yscale="log", ylim=(1e-4, 2), xlabel="depth $T$ (layers)")
    ax.set_ylabel("mass off the first token")
    return fig

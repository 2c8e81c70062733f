"""Checks of troughs before training, and of a tail, an atom and a dead zone, by the law of untrained networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from posbias.rollout.clock import hop_distribution
from posbias.rollout.profiles import u_shape
from posbias.rollout.structured import structured_kernels
from posbias.rollout.untrained import aligned_profile, untrained_profile
from studies.checks import Check
from studies.untrained import limits
from studies.untrained.limit_checks import PROVED, RUNS, SEEDS, Law, Wrong, broken, law_checks, rate_checks

TURN = (np.sqrt(33) - 1) / 4
SHARP = np.log1p(np.exp(TURN) * (TURN + 1) / (2 * TURN - 1))
"""The largest ℓ with one minimum whatever the gains: log 6.216."""


def has_trough(
    rng: np.random.Generator, law: Law = untrained_profile, heard: float = 1.0, layers: int = 4, size: int = 400
) -> bool:
    """Say whether there is a U, however shallow, for layers and heads that differ; one may be uniform."""
    for first in (1e-6, 1.0, 1.0):  # factor of the first heads' slopes
        ell, gains = rng.uniform(0.5, 8.0, (4, 2)), rng.uniform(0.5, 1.5, (4, 2))
        ell[:, 0] *= first
        gains[:, 1] *= heard
        gains[layers:] = 0
        p = law(structured_kernels(4, slope=ell / size), gains, size)
        if not u_shape(p, tolerance=0.0).present:
            return False
    return True


def one_trough(run: int, steepest: float = SHARP, slack: float = 1.0, **wrong: Any) -> bool:
    """Say whether layers and heads that differ have a U, and one minimum under either condition."""
    rng = np.random.default_rng(run)
    for _ in range(3):
        T = int(rng.integers(2, 13))
        odds = rng.dirichlet(np.ones(T)) * rng.uniform(0.1, 40)
        omega = hop_distribution(odds / (1 + odds))
        small = slack * 4 / (2 + np.sqrt(T - 1)) ** 2 * omega[1] / omega[2]
        weak = hop_distribution(small * odds / (1 + small * odds))
        cases = ((rng.uniform(0.2, steepest), omega), (rng.uniform(1, 30), weak))
        if any(len(limits.square_minima(*case)) != 1 for case in cases):
            return False
    return has_trough(rng, **wrong)


def two_layers(run: int, bound: float = 1.0) -> bool:
    """Say whether two layers have one minimum 0.2% below the bound on e^ℓ, and two 0.2% above it."""
    u, rng = TURN, np.random.default_rng(run)
    below, above = (np.log(x * bound * np.exp(SHARP)) for x in (0.998, 1.002))
    low, high = (u * (1 + np.exp(u) / np.expm1(x)) - u**2 for x in (below, above))
    near = [1 / low, 1 / low + 0.01 * rng.uniform(-1, 1), rng.uniform(0.1, 9)]
    one = all(len(limits.square_minima(below, [0, 1, x])) == 1 for x in near)
    any_slope = limits.square_minima(rng.uniform(0.5, 20), [0, 1, 1.909])
    two = limits.square_minima(above, [0, 1, 1 / high])
    return one and len(any_slope) == 1 and len(two) == 2


WRONG: Wrong = {
    "head gains added": {"law": aligned_profile},
    "sloped heads of gain 0": {"heard": 0.0},
    "one layer of positive gain": {"layers": 1},
    "steep slopes: ℓ up to 30 at any gains": {"steepest": 30.0},
    "gains: e₂/e₁ up to 30 times its bound": {"slack": 30.0},
}
BOUNDS: Wrong = {"6 in place of 6.216": {"bound": 6 / 6.2164}, "6.216 half a per cent up": {"bound": 1.005}}


def none_inside(run: int, ell: float = 0.0, count_last: bool = False, size: int = 60) -> bool:
    """Say whether random layers make no U; the last token left out unless it is counted."""
    rng = np.random.default_rng(run)
    T = int(rng.integers(2, 13))
    kernels = structured_kernels(T, slope=ell / size or None)
    p = untrained_profile(kernels, rng.uniform(0.05, 0.3, T), size)
    p = np.append(p, 0.0) if count_last else p
    return not u_shape(p, tolerance=0.0).present


def u_checks() -> list[Check]:
    """Return the checks that by the law ALiBi has a U, and uniform attention none."""
    none = [none_inside(s) for s in SEEDS]
    counted = [none_inside(s, count_last=True) for s in SEEDS]
    power = broken(one_trough, SEEDS, WRONG) | broken(two_layers, SEEDS, BOUNDS)
    return [
        Check(
            "BI-kinetic", "law of untrained networks, ALiBi",
            "Ours: by the law of untrained networks ALiBi makes a U in long prompts.",
            all(one_trough(s) and two_layers(s) for s in SEEDS),
            f"{3 * RUNS} random sets of ALiBi layers have a U at 400 tokens; {6 * RUNS} random "
            "schedules that meet one of the two conditions have one minimum; "
            "two layers have a second minimum if e^ℓ is 0.2% above its bound, and none if it is 0.2% below",
            "one profile has no U, a density under either condition has a second "
            "minimum, or two layers change their minima elsewhere",
            power, "a U is missing, or a minimum too many", PROVED,
        ),
        Check(
            "BI-kinetic", "law of untrained networks, no distance bias: no interior minimum",
            "Ours: by the law of untrained networks uniform attention makes no U.", all(none),
            f"{RUNS - sum(none)} of {RUNS} random schedules of uniform attention have a U; "
            f"if the last token, with its own residual stream, is counted, {RUNS - counted.count(True)} have one",
            "one random schedule has a U, the last token left out",
            {
                "ALiBi, slope × length 3": [none_inside(s, 3.0) for s in SEEDS],
                "ALiBi, slope × length 1/4": [none_inside(s, 0.25) for s in SEEDS],
                "last token counted": counted,
            },
            "one of the schedules has an interior minimum", PROVED,
        ),
    ]  # fmt: skip


def density(x: np.ndarray, c: np.ndarray, r: int, only: int | None = None) -> np.ndarray:
    """Return the density over the atom, uniform attention; only: one number of hops alone."""
    omega = hop_distribution(c**r / (1 + c**r))
    e = omega / omega[0]
    hops = np.arange(1, e.size) if only is None else np.array([only])
    size = np.cumprod(np.append(1.0, np.arange(1, e.size)))[hops - 1]
    terms = e[hops] * ((-np.log(x))[:, None] ** (hops - 1) / size) ** r
    return np.asarray(terms.sum(axis=1) ** (1 / r))


def tail_met(run: int, less: int = 0, share: float = 1.0) -> bool:
    """Say whether the tail is e_T^{1/r} log^{T-1}(1/x)/(T-1)!, and the atom the one stated."""
    rng = np.random.default_rng(run)
    depth = int(rng.integers(3, 7))
    c, far = rng.uniform(0.3, 1.0, depth), np.array([1e-250, 1e-300])
    for r in (1, 2):
        ratio = density(far, c, r) / density(far, c, r, depth - less)
        if abs(ratio[1] - 1) > 0.2 or abs(ratio[0] / ratio[1] - 1) > 0.03:
            return False
    kernels, size = structured_kernels(depth), 4096
    omega = hop_distribution(c**2 / (1 + c**2))
    lasts: dict[Law, float] = {aligned_profile: float(1 / np.prod(1 + c)), untrained_profile: limits.last_share(omega)}
    for law, last in lasts.items():
        if abs(law(kernels, c, size)[-1] / (share * last) - 1) >= 0.005:
            return False
    return True


def lowest(depth: int, r: int, gain: float = 0.5) -> float:
    """Return the lowest density over the atom, all layers equal, with skips."""
    x = np.linspace(0.001, 1, 400)
    return float(density(x, np.full(depth, gain), r).min())


def factorial_zone(level: Callable[[int], float]) -> bool:
    """Say whether a level falls like 1/(T-1)!: within a factor 2 for T = 3 to 10."""
    scaled = [np.prod(np.arange(1.0, T)) * level(T) for T in range(3, 11)]
    return bool(max(scaled) < 2 * min(scaled))


def alone(depth: int) -> float:
    """Return the last power alone at x = 1/e, without skips."""
    return float(density(np.exp([-1.0]), np.ones(depth), 1, depth)[0])


def cesaro_checks() -> list[Check]:
    """Return the checks of tail and atom, and of the dead zone."""
    wrong: Wrong = {"one power of the logarithm less": {"less": 1}, "atom 1% too large": {"share": 1.01}}
    levels = {r: (lowest(4, r), lowest(12, r)) for r in (1, 2)}
    others = [factorial_zone(lambda T: 2.0 ** (1 - T)), factorial_zone(lambda T: alone(T - 1))]
    return [
        Check(
            "BI-cesaro", "tail and atom, in theory",
            "Influence has a logarithmic tail at the start and an atom at the end.", all(tail_met(s) for s in SEEDS),
            f"{RUNS} random schedules of 3 to 6 layers of uniform attention have a tail like log^(T-1), by head gains "
            "added and squared, and the last token's share at 4096 tokens is within 0.5% of the one stated",
            "the tail is not e_T^(1/r) log^(T-1)/(T-1)! to 20% at x = 1e-300, or the "
            "last token's share is 0.5% off",
            broken(tail_met, SEEDS, wrong),
            "a tail or an atom is missed", PROVED,
        ),
        Check(
            "BI-cesaro", "dead zone, in theory", "Between them is a dead zone of order $1/(T-1)!$.",
            factorial_zone(lambda T: lowest(T, 1)) or factorial_zone(lambda T: lowest(T, 2)),
            "at 4 and 12 layers with gains of 0.5 the lowest density is "
            f"{levels[1][0]:.1f} and {levels[1][1]:.1f} times the atom by head gains added, and "
            f"{levels[2][0]:.1f} and {levels[2][1]:.1f} times by head gains squared",
            "the lowest density, times (T-1)!, changes by more than a factor 2 from 3 "
            "to 10 layers, in sizes and in squares",
            {"a half for each layer, or one layer less": others},
            "with skips one hop suffices, so the density is nowhere below "
            "(Σ c_t^r)^(1/r) times the atom; the claim is true of the last power alone",
            {"in_part": factorial_zone(alone)},
        ),
    ]  # fmt: skip


def untrained_checks() -> list[Check]:
    """Return every check of the law of untrained networks in the limit."""
    return [*u_checks(), *law_checks(), *rate_checks(), *cesaro_checks()]

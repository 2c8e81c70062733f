"""Checks of Theorem 5.5: with finite total mixing every token survives, with infinite total mixing all collapses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from posbias.rollout import masks, schedules
from posbias.rollout.clock import hop_distribution
from posbias.rollout.influence import rollout_matrix
from posbias.rollout.kernels import attention_kernel
from studies.checks import Check
from studies.theorems.bound_checks import PROVED
from studies.theorems.depth import log_survival_bound, masses_off_first, stairs
from studies.theorems.depth_draws import (
    CONSTANT,
    DEEP,
    DEPTH,
    FIXED,
    HARMONIC,
    MIXING,
    SLOPE,
    SUMMABLE,
    TRIALS,
    C,
    Depths,
    N,
    Rollouts,
    broken,
    collapse_bounds,
    draw_rollouts,
    fixed_collapse,
)
from studies.theorems.forces import rollout_history
from studies.theorems.networks import run_residual_network

ENDS = np.linspace(0.2, 0.9, TRIALS)
"""Values of c."""
Bound = Callable[[np.ndarray], np.ndarray]
EPSILON = {name: float(A[1:, 0].min()) for name, A in FIXED.items()}
DELTA = {name: float(1 - np.diag(A)[1:].max()) for name, A in FIXED.items()}
"""What a token gives to the first one, and to all earlier ones, at least."""


def survives(rollouts: Rollouts, bound: Bound = log_survival_bound) -> bool:
    """Say whether every token of every rollout, multiplied out, keeps what is promised."""
    for A, mix in rollouts:
        promised = np.exp(bound(mix)[-1])
        if (np.diag(rollout_matrix(A, mix)) < promised * (1 - 1e-9)).any():
            return False
    return True


def meets_limit(c: float, layers: int = 4000, factor: float = 1.0) -> bool:
    """Say whether a token that gives itself no attention ends at Euler's product."""
    P = rollout_matrix(stairs(1.0, 4), schedules.power_decay(layers, c, 2.0))
    return bool(abs(P[-1, -1] / np.sinc(np.sqrt(factor * c)) - 1) < 2 * c / layers)


def survival_check(depths: Depths) -> Check:
    """Return the check of Theorem 5.5 (i)."""
    uniform = np.log1p(-SUMMABLE * (1 - FIXED["uniform"][-1, -1])).sum()
    net = depths.nets["with ALiBi"]
    network = run_residual_network(net.X, net.W_qk, net.W_v, SUMMABLE[:DEPTH], SLOPE).kernels
    rollouts = [(A, SUMMABLE[:200]) for A in FIXED.values()] + sum(depths.draws, [])
    rollouts += [(network, SUMMABLE[:DEPTH]), *draw_rollouts(depths.rng, mask=masks.full())]
    rollouts.append((np.roll(np.eye(8), 1, axis=0), SUMMABLE[:7]))
    power = {
        "every λ_t 2% smaller in the bound": [
            survives(x, lambda mix: log_survival_bound(0.98 * mix)) for x in depths.draws
        ],
        "the last layer left out": [survives(x, lambda mix: log_survival_bound(mix[:-1])) for x in depths.draws],
        "c 1% larger in the limit": [meets_limit(x, factor=1.01) for x in ENDS],
    }
    return Check(
        "RA-T5.5i", "statement", "Theorem 5.5 (i): with finite total mixing every token survives.",
        survives(rollouts) and all(map(meets_limit, ENDS)),
        f"each token keeps at least ∏(1-λ_t) in {len(rollouts)} rollouts, with and without a mask; for "
        f"λ_t = c/t² this product tends to sin(π√c)/(π√c); after {DEEP} layers of uniform attention with c = {C} "
        f"the last token keeps {np.exp(uniform):.4f}, where the product is "
        f"{np.exp(log_survival_bound(SUMMABLE)[-1]):.4f}",
        "a token keeps less than ∏(1-λ_t), or misses Euler's product by 2c/T",
        power, "a token keeps less than the bound", PROVED,
    )  # fmt: skip


def positive(mixings: list[np.ndarray], bound: Bound = log_survival_bound) -> bool:
    """Say whether ∏(1-λ_t) is positive, and kept by stairs, for schedules of finite sum."""
    cases = [(np.stack([stairs(1.0, 4)] * len(x)), x) for x in mixings]
    return survives(cases, bound) and all(bool(np.isfinite(bound(x)[-1])) for x in mixings)


def survival_proof_check() -> Check:
    """Return the check that the printed proof of Theorem 5.5 (i) names all that it uses."""
    edge = SUMMABLE.copy()
    edge[0] = 1.0  # the first layer keeps nothing
    kept = np.log1p(-edge * (1 - FIXED["uniform"][-1, -1])).sum()
    of_finite_sum = [schedules.power_decay(300, x, 2.0) for x in ENDS]
    less = [positive([x], lambda mix: log_survival_bound(0.98 * mix)) for x in of_finite_sum]
    return Check(
        "RA-T5.5i", "printed proof", "The printed proof of Theorem 5.5 (i) names all that it uses.",
        positive([*of_finite_sum, edge[:300]]),
        f"the product ∏(1-λ_t) is positive for {TRIALS} schedules c/t² with all λ_t < 1; if λ_1 = 1, it is "
        f"0, while the last token keeps {np.exp(kept):.4f} under uniform attention and 0 "
        "under hard attention",
        "∏(1-λ_t) is 0 for a schedule of finite sum, or more than a token keeps",
        {"all λ_t < 1, but 2% smaller in the bound": less},
        "with one λ_t = 1 the product is 0 and proves nothing; the statement "
        "then needs Lemma 5.4 (ii)", {"in_part": True},
    )  # fmt: skip


def collapses(rollouts: Rollouts, epsilon: float = 1.0, delta: float = 1.0, fewer: int = 0) -> bool:
    """Say whether masses off token 1 are below both bounds, their letters multiplied."""
    for A, mix in rollouts:
        off = 1 - rollout_history(A, mix)[1:, 1:, 0]
        to_first = epsilon * A[:, 1:, 0].min(axis=1)
        moves = delta * (1 - np.diagonal(A, axis1=1, axis2=2)[:, 1:]).min() * mix
        few = np.cumsum(hop_distribution(np.minimum(moves, 1)))
        by_moves = few[np.maximum(np.arange(A.shape[1] - 1) - fewer, 0)]
        held = off <= np.cumprod(1 - np.minimum(to_first * mix, 1))[:, None] + 1e-12
        if not (held.all() and (off[-1] <= by_moves + 1e-12).all()):
            return False
    return True


def networks_collapse(depths: Depths) -> bool:
    """Say whether the masses of both networks are below the bounds from their kernels and from their weights."""
    held = True
    for name, run in depths.runs.items():
        lambdas = depths.nets[name].lambda_
        value = masses_off_first(run.kernels, lambdas).max(axis=1)
        from_kernels = np.cumprod(1 - lambdas * run.kernels[:, 1:, 0].min(axis=1))
        from_weights = np.cumprod(1 - lambdas * depths.nets[name].bounds()[1])
        held &= bool((value <= from_kernels + 1e-12).all() and (from_kernels <= from_weights + 1e-12).all())
    return held


def deep_collapse_holds(mass: dict[str, dict[str, np.ndarray]]) -> bool:
    """Say whether three kernels keep the bounds with ε and δ through 100,000 layers."""
    bounds = {"c/t": collapse_bounds(HARMONIC, EPSILON), "constant": collapse_bounds(CONSTANT, EPSILON)}
    few, after = np.arange(N - 1), np.arange(1, DEEP + 1)[:, None]  # moves, layers
    for name in FIXED:
        counted = logsumexp(binom.logpmf(few, after, DELTA[name] * MIXING), axis=1)
        held = [mass[s][name] <= bounds[s][name] + 1e-9 for s in mass]
        held.append(mass["constant"][name] <= counted + 1e-9)
        if not np.all(held):
            return False
    return True


def collapse_check(depths: Depths) -> Check:
    """Return the check of Theorem 5.5 (ii)."""
    mass = fixed_collapse()
    even = attention_kernel(0.3 * depths.rng.normal(size=(TRIALS, 60, 5, 5)), masks.full())
    unmasked = [[(A, depths.rng.uniform(0.3, 0.9, 60))] for A in even]
    draws = depths.draws
    wrong: dict[str, dict[str, Any]] = {
        "ε 2% larger": {"epsilon": 1.02},
        "δ 2% larger": {"delta": 1.02},
        "i - 3 moves for i - 2": {"fewer": 1},
    }
    power = broken(collapses, draws, wrong)
    power["kernels without a mask"] = [collapses(x) for x in unmasked]
    bound = np.exp(collapse_bounds(HARMONIC, EPSILON)["uniform"][-1])
    return Check(
        "RA-T5.5ii", "", "Theorem 5.5 (ii): with infinite total mixing influence collapses.",
        collapses(sum(draws, [])) and networks_collapse(depths) and deep_collapse_holds(mass),
        f"in {len(draws) * len(draws[0])} small rollouts, three kernels to {DEEP} layers "
        "and two networks the mass off token 1 is below both bounds, ∏(1-ελ_t) and Pr(N ≤ i-2); with the mixing "
        f"c/t and uniform attention it is {np.exp(mass['c/t']['uniform'][-1]):.3f}, where the first bound is "
        f"{bound:.2f}, because attention to all earlier tokens, which sets the rate, is "
        f"δ = {DELTA['uniform']:.2f} and attention to the first token ε = {EPSILON['uniform']:.3f} "
        f"(with ALiBi δ = {DELTA['ALiBi']:.2f} and ε = {EPSILON['ALiBi']:.0e})",
        "the mass off the first token exceeds a bound by more than 1e-12, or its logarithm by 1e-9",
        power, "the mass off the first token exceeds its bound", PROVED,
    )  # fmt: skip

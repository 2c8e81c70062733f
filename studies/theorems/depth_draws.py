"""Networks and rollouts for the theorems at infinite depth, drawn in turn from one generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from posbias.rollout import masks, schedules
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.masks import Mask
from posbias.rollout.structured import structured_kernels
from studies.theorems.depth import direct, log_collapse_bound, log_mass_off_first, stairs
from studies.theorems.networks import Network, NetworkRun, opposed_network, random_network

N, D, DEPTH, DEEP = 32, 16, 128, 100_000
"""Tokens; width of a state and layers of the random network; layers of kernels that do not change with depth."""
C, MIXING, SLOPE, HEADS, TRIALS = 0.9, 0.1, 0.25, 8, 20
"""Of c/t and c/t²; constant mixing; slope of one ALiBi head; heads of the mean; runs of each check."""
Rollouts = list[tuple[np.ndarray, np.ndarray]]
Runs = list[tuple[Network, NetworkRun]]

SUMMABLE, HARMONIC = schedules.power_decay(DEEP, C, 2.0), schedules.power_decay(DEEP, C, 1.0)
CONSTANT = schedules.constant(DEEP, MIXING)
FIXED = {
    "uniform": structured_kernels(T=1).dense(0, N),
    "ALiBi": structured_kernels(T=1, slope=SLOPE).dense(0, N),
    "head average": structured_kernels(T=1, slope=alibi_slopes(HEADS)).dense(0, N),
}
"""Kernels that all layers share."""


def attaining(rng: np.random.Generator, layers: int = 8) -> Runs:
    """Draw two networks that attain the bounds of Lemma 5.4, and a random one."""
    a, mix = 1 + rng.uniform(0.2, 1, layers), rng.uniform(0.2, 0.9, layers)
    nets = [opposed_network(6, a, mix, logit=rng.uniform(1.2, 2))]
    nets.append(opposed_network(2, a, mix, logit=rng.uniform(1, 2), slope=1.5))
    nets.append(random_network(6, 4, a, mix, rng, logit_norm=3))
    return [(net, net.run()) for net in nets]


def draw_rollouts(rng: np.random.Generator, n: int = 5, T: int = 12, mask: Mask | None = None) -> Rollouts:
    """Draw random kernels, two that attain the bounds of collapse, and one that leaves a token at once."""
    logits = 4 * rng.normal(size=(2, T, n, n))
    stacks = [attention_kernel(logits[0], mask or masks.causal())]
    stacks.append(np.stack([stairs(x, n) for x in rng.uniform(0.3, 1, T)]))
    stacks.append(np.stack([direct(x, n) for x in rng.uniform(0.3, 1, T)]))
    stacks.append(np.stack([stairs(1.0, n)] * T))
    return [(A, rng.uniform(0, 0.8, T)) for A in stacks]


def broken(
    check: Callable[..., bool], cases: Sequence[Any], wrong: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[bool]]:
    """Say for each thing that is broken of which cases a check passes."""
    return {what: passes(check, cases, **how) for what, how in wrong.items()}


def passes(check: Callable[..., bool], cases: Sequence[Any], **how: Any) -> list[bool]:
    """Say of which cases a check passes."""
    return [bool(check(x, **how)) for x in cases]


@dataclass
class Depths:
    """Hold what the checks share: two networks of 128 layers, small ones, and small rollouts."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nets: dict[str, Network] = field(default_factory=dict)
    runs: dict[str, NetworkRun] = field(default_factory=dict)
    hard: list[Runs] = field(default_factory=list)
    draws: list[Rollouts] = field(default_factory=list)

    def __post_init__(self) -> None:
        lambdas, stretch = schedules.constant(DEPTH, MIXING), 1 + 1.0 / np.arange(1, DEPTH + 1) ** 2
        drawn = random_network(N, D, stretch, lambdas, self.rng)
        parts = (2.0 * drawn.X, drawn.W_qk, drawn.W_v, lambdas)
        self.nets = {"without ALiBi": Network(*parts), "with ALiBi": Network(*parts, SLOPE)}
        self.runs = {name: net.run() for name, net in self.nets.items()}
        self.hard = [attaining(self.rng) for _ in range(TRIALS)]
        self.draws = [draw_rollouts(self.rng) for _ in range(TRIALS)]

    @property
    def both(self) -> Runs:
        """Return the two large networks with their runs."""
        return [(self.nets[name], self.runs[name]) for name in self.nets]


def off_first() -> dict[str, np.ndarray]:
    """Return by schedule the logarithm of the mass off the first token at each depth, with uniform attention."""
    collapse = fixed_collapse()
    return {
        "λ = 1": log_mass_off_first(FIXED["uniform"], schedules.constant(DEEP, 1.0)),
        f"λ = {MIXING}": collapse["constant"]["uniform"],
        f"λ = {C}/t": collapse["c/t"]["uniform"],
        f"λ = {C}/t²": log_mass_off_first(FIXED["uniform"], SUMMABLE),
    }


@cache
def fixed_collapse() -> dict[str, dict[str, np.ndarray]]:
    """Return by schedule and kernel the logarithm of the mass off the first token, for both sums that are infinite."""
    found = {}
    for s, mixing in {"c/t": HARMONIC, "constant": CONSTANT}.items():
        found[s] = {name: log_mass_off_first(A, mixing) for name, A in FIXED.items()}
    return found


def collapse_bounds(mixing: np.ndarray, of_kernel: dict[str, float]) -> dict[str, np.ndarray]:
    """Return by kernel the logarithm of Π (1 - x λ_t) at each depth, for a number x of each kernel."""
    return {name: log_collapse_bound(mixing, x) for name, x in of_kernel.items()}

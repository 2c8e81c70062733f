"""A network that meets the assumptions of Wu et al., under several masks, and cases on which bounds are tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.rollout import masks, schedules
from posbias.rollout.kernels import attention_kernel
from studies.theorems import graphs
from studies.theorems.depth import attention_floor, log_collapse_bound, log_mass_off_first, log_survival_bound
from studies.theorems.forces import rollout_history
from studies.theorems.networks import (
    BoundedWeights,
    NetworkRun,
    bounded_weights,
    opposed_network,
    random_states,
    run_residual_network,
)

N, WIDTH, T = 32, 8, 128
"""Tokens, width of a state and layers of the example network."""
NORM, CONDITION = 3.0, 1.5
"""Norm of every query and key map (assumption A1), and bound on products of value maps (A2)."""
WINDOWS, PREFIXES = (2, 3, 5, 9, 32), (1, 2, 4, 8)
DEEP = 4000
"""Layers of networks that attend evenly."""
RESIDUAL, SUMMABLE = 0.2, 0.9
"""A constant residual mixing, and c of the schedule c/t²."""
TRIALS = 20
"""Runs of each check on what it should reject."""

WorstCase = tuple[int, int, float, int, Float[np.ndarray, "T n"]]
"""Tokens, width of window or prefix, ε, first key, and the most that each key can keep, by depth."""


@dataclass(frozen=True, eq=False)
class Example:
    """Hold the example network; what it does under each mask is worked out once."""

    weights: BoundedWeights
    X: Float[np.ndarray, "n d"]

    @cached_property
    def allowed(self) -> dict[str, Bool[np.ndarray, "n n"]]:
        """The graphs of all masks, by name."""
        kinds = {"causal": masks.causal()}
        kinds |= {f"window {w}": masks.sliding_window(w) for w in WINDOWS}
        kinds |= {f"prefix {K}": masks.prefix(K) for K in PREFIXES}
        documents = graphs.packed_documents([N // 4, N // 4, N - 2 * (N // 4)])
        return {name: mask.matrix(N) for name, mask in kinds.items()} | {"documents": documents}

    def run(self, lambda_: Float[np.ndarray, "T"], graph: Bool[np.ndarray, "n n"] | None = None) -> NetworkRun:
        """Run the network with a residual mixing, under the causal mask unless given."""
        return run_residual_network(self.X, self.weights.W_qk, self.weights.W_v, lambda_, mask=graph)

    @cached_property
    def runs(self) -> dict[str, NetworkRun]:
        """What it does under each mask, without residual connections."""
        return {name: self.run(np.ones(T), graph) for name, graph in self.allowed.items()}

    @property
    def epsilon(self) -> dict[str, float]:
        """Its smallest attention weight under each mask."""
        return {name: float(run.floors.min()) for name, run in self.runs.items()}

    @cached_property
    def history(self) -> dict[str, Float[np.ndarray, "T n n"]]:
        """Predicted influence after each layer, by mask."""
        return {name: rollout_history(run.kernels, np.ones(T))[1:] for name, run in self.runs.items()}

    @property
    def value(self) -> dict[str, Float[np.ndarray, "T n"]]:
        """The largest predicted influence of each key on any query, by mask and depth."""
        return {name: P.max(axis=1) for name, P in self.history.items()}

    @property
    def promised(self) -> float:
        """The smallest weight that Lemma A.1 allows."""
        return attention_floor(N, CONDITION**2 * NORM**2 / np.sqrt(WIDTH))

    def large(self, kind: str, width: int, first: int) -> WorstCase:
        """Return what the network does under a mask as a case beside the worst ones."""
        return N, width, self.epsilon[kind], first, self.value[kind]


def load_example() -> Example:
    """Draw the example network."""
    rng = np.random.default_rng(0)
    weights = bounded_weights(T, WIDTH, NORM, CONDITION, rng)
    return Example(weights, random_states(N, WIDTH, 1.0, rng))


def worst_case(n: int, mask: masks.Mask, width: int, epsilon: float, first: int) -> WorstCase:
    """Return the most that every key can keep, by depth, if weights have a lower bound."""
    return n, width, epsilon, first, graphs.extreme_influence(mask.matrix(n), epsilon, 24).max(axis=1)


def worst_windows(n: int, u: float) -> list[WorstCase]:
    """Return the worst cases of all windows; ε is a share u of the most that there is room for."""
    return [worst_case(n, masks.sliding_window(w), w, u / w, 2) for w in range(2, n + 1)]


def worst_prefixes(n: int, u: float) -> list[WorstCase]:
    """Return the worst cases of all prefixes; that of one token is the causal mask."""
    return [worst_case(n, masks.prefix(K), K, u / n, K + 1) for K in range(1, n)]


def jump_kernel(n: int, w: int, epsilon: float) -> Float[np.ndarray, "n n"]:
    """Return the attention that takes the longest step of a window with weight ε, and stays otherwise.

    >>> jump_kernel(3, 2, 0.25).tolist()
    [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.0, 0.25, 0.75]]
    """
    A = (1 - epsilon) * np.eye(n)
    A[np.arange(n), np.maximum(np.arange(n) - (w - 1), 0)] += epsilon
    return A


@dataclass(frozen=True)
class Cases:
    """Hold small cases, drawn at random: ``near`` is ε as a share of the most that there is room for."""

    sizes: list[int]
    near: list[float]
    windows: list[tuple[Float[np.ndarray, "T n n"], int]]  # Kernels, and layers from the first to the last token
    jumps: list[float]
    steps: list[float]
    prefixes: list[tuple[Float[np.ndarray, "T n n"], int]]  # Kernels, and tokens of the prefix


def draw_cases(rng: np.random.Generator) -> Cases:
    """Draw all small cases."""
    sizes, near = rng.integers(5, 8, TRIALS).tolist(), rng.uniform(0.95, 1, TRIALS).tolist()
    windows, prefixes = [], []
    for _ in range(TRIALS):
        kernels = attention_kernel(rng.normal(size=(24, 6, 6)), masks.sliding_window(3))
        windows.append((kernels, graphs.window_hops(6, 3)))
    jumps, steps = (rng.uniform(0.1, 0.4, TRIALS).tolist() for _ in range(2))
    for _ in range(TRIALS):
        prefixes.append((attention_kernel(rng.normal(size=(8, 5, 5)), masks.prefix(3)), 3))
    return Cases(sizes, near, windows, jumps, steps, prefixes)


@dataclass(frozen=True)
class Even:
    """Hold how even attention under each window collapses: log of what is off token 1, and layers until 1% is."""

    kernels: dict[int, Float[np.ndarray, "n n"]]
    logs: dict[int, Float[np.ndarray, "T"]]

    @property
    def delay(self) -> dict[int, int]:
        """Layers until token 1 holds 99% of the predicted influence on the last token."""
        return {w: int(np.argmax(x < np.log(0.01))) + 1 for w, x in self.logs.items()}

    @property
    def late(self) -> dict[int, float]:
        """The factor per layer over the deeper half."""
        half = DEEP // 2
        return {w: float(np.exp((x[-1] - x[half]) / (DEEP - 1 - half))) for w, x in self.logs.items()}


def even_attention() -> Even:
    """Let every window attend evenly."""
    kernels = {w: graphs.uniform_attention(masks.sliding_window(w).matrix(N)) for w in WINDOWS}
    return Even(kernels, {w: log_mass_off_first(A, np.ones(DEEP)) for w, A in kernels.items()})


def delays_at(hops: int) -> list[int]:
    """Return the layers until 99% is on token 1, at several lengths with so many layers from first to last token."""
    found = []
    for n in (16, 32, 64, 128, 256):
        w = next(w for w in range(2, n) if graphs.window_hops(n, w) == hops)
        A = graphs.uniform_attention(masks.sliding_window(w).matrix(n))
        found.append(int(np.argmax(log_mass_off_first(A, np.ones(100)) < np.log(0.01))) + 1)
    return found


def rate_of_key(example: Example, j: int) -> float:
    """Return the factor per layer of the largest predicted influence of key j, over the deeper half."""
    v, half = example.value["causal"][:, j - 1], T // 2
    return float((v[-1] / v[half]) ** (1 / (T - 1 - half)))


def residual_courses(example: Example, j: int) -> dict[str, tuple[Any, Any, Any]]:
    """Return for each mixing the largest predicted influence of key j by depth, and its lower and upper bound."""
    mixing = {"1": np.ones(T), "constant": schedules.constant(T, RESIDUAL)}
    mixing |= {"summable": schedules.power_decay(T, SUMMABLE, 2.0)}
    found = {}
    for name, lambda_ in mixing.items():
        run = example.run(lambda_)
        P = rollout_history(run.kernels, lambda_)[1:]
        upper = np.exp(log_collapse_bound(lambda_, (j - 1) * float(run.floors.min())))
        found[name] = P[:, :, j - 1].max(axis=1), np.exp(log_survival_bound(lambda_)), upper
    return found


def shrinking_floor() -> tuple[float, float]:
    """Return the weight that V alone would promise in Lemma A.1, and one of a network whose value maps shrink."""
    network = opposed_network(N, [1e-3], [1.0], logit=10**2 / np.sqrt(WIDTH))
    return attention_floor(N, 1e-6 * 10**2 / np.sqrt(WIDTH)), float(network.run().floors[0])


Bound = Callable[[int, int, int, float, int], Any]
"""A logarithm of a bound on a key's predicted influence for 1 to T layers, from T, n, width, ε and the key."""

"""RoPE against the mask: layers, networks and walks on which Wu et al.'s lemma 4.6 and theorem 4.7 are tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.rollout import masks
from posbias.rollout.influence import influence_history
from posbias.rollout.kernels import attention_kernel
from studies.rotation import rope_logits
from studies.theorems import encodings as e
from studies.theorems import intervals
from studies.theorems.decay import N_LONG, N, T
from studies.theorems.networks import run_residual_network, sector_network

STRENGTH = 9.0
"""Logit of a query with a key in its own direction."""
WIDTHS = ("d = 2", "d = 8")
DEPTHS = np.array([1, 2, 4, 8, 16, 32])
THETA = np.pi / N_LONG
"""Angle per token of one pair of features that turns by half a circle over the prompt."""
SINGLE = STRENGTH / 2 * THETA**2
"""a of exp(-a x²), the parabola of the cosine in one layer."""

Kernels = Float[np.ndarray, "T n n"]
Box = tuple[Any, Any, Any, Any]
"""Angles per token, smallest and largest products of lengths, and angles before rotation, of each pair of features."""


@dataclass(frozen=True, eq=False)
class Turned:
    """Hold kernels of networks by width, random layers with their constants, and layers that attain the bounds."""

    constants: dict[str, e.RopeConstants]
    kernels: dict[str, Kernels]
    ranges: dict[str, list[Box]]
    layers: list[tuple[Any, Any, Any]]  # Queries, keys and angles, within the angle condition
    fast: list[tuple[Any, Any, Any]]  # Beyond it
    extreme: list[tuple[Kernels, Box]]
    stays: list[tuple[Kernels, list[Box]]]
    angles: dict[int, float]  # Largest angle over lemma I.3's bound, by width

    @cached_property
    def found(self) -> list[e.RopeConstants]:
        """The constants of the random layers."""
        return [e.rope_constants(*layer) for layer in self.layers]

    @cached_property
    def drawn(self) -> list[Float[np.ndarray, "n n"]]:
        """The kernels of the random layers."""
        return [attention_kernel(rope_logits(*layer), masks.causal()) for layer in self.layers]

    @property
    def slim(self) -> list[int]:
        """Which random layers have one pair of features."""
        return [k for k, (_, _, theta) in enumerate(self.layers) if theta.size == 1]

    @cached_property
    def limits(self) -> dict[str, list[tuple[Any, Any]]]:
        """Bounds on every layer of the networks, all keys counted."""
        found = {}
        for name, layers in self.ranges.items():
            found[name] = [intervals.attention_intervals(*intervals.rope_logit_intervals(N, *box)) for box in layers]
        return found

    @cached_property
    def deep_limits(self) -> dict[str, Any]:
        """Upper bounds on rollouts of the networks, by depth."""
        found = {}
        for name, layers in self.limits.items():
            low, high = map(np.stack, zip(*layers, strict=True))
            found[name] = intervals.interval_rollouts(low, high)[1]
        return found

    @cached_property
    def cases(self) -> list[tuple[Kernels, Box]]:
        """Layers to hold between the bounds: extreme ones, some beyond the condition and within it, and networks."""
        found = list(self.extreme)
        for Q, K, theta in self.fast + self.layers[:50]:
            A = attention_kernel(rope_logits(Q, K, theta), masks.causal())
            found.append((A, (theta, *intervals.pair_ranges(Q, K))))
        for name, A in self.kernels.items():
            found += zip(A, self.ranges[name], strict=True)
        return found


def draw_network(rng: np.random.Generator, theta: Any) -> tuple[e.RopeConstants, Kernels, list[Box]]:
    """Draw a network whose pairs of features turn by certain angles; wider ones than the condition has are refused."""
    X, W_qk, W_v = sector_network(N, theta.size, T, 0.05, STRENGTH / 2, rng)
    run = run_residual_network(X, W_qk, W_v, np.ones(T), theta=theta)
    queries = run.states @ W_qk / np.sqrt(2 * theta.size)
    ranges = [(theta, *intervals.pair_ranges(q, k)) for q, k in zip(queries, run.states, strict=True)]
    return e.rope_constants(queries, run.states, theta), run.kernels, ranges


def draw_layer(rng: np.random.Generator, condition: bool = True) -> tuple[Any, Any, Any]:
    """Draw queries, keys and angles, within the angle condition or beyond it."""
    size, least = int(rng.integers(1, 9)), 0.5 * np.pi / (N - 1)
    theta = (least * np.sort(rng.uniform(0.1, 1, 8)))[-size:]
    theta = theta if condition else rng.uniform(0.01, 3, size)
    stretch = 1 + 0.2 * rng.random((2, N, size))
    z = stretch * np.exp(1j * rng.uniform(-1, 1, (2, N, size)) * 0.3 / size)
    pairs = np.stack([z.real, z.imag], axis=-1).reshape(2, N, 2 * size)
    Q, K = np.sqrt(STRENGTH / size) / 1.2 * pairs
    return Q, K, theta


def draw_extreme(rng: np.random.Generator) -> tuple[Kernels, Box]:
    """Draw a layer whose last query attends to one key as much as it can."""
    size = int(rng.integers(1, 5))
    theta, one = rng.uniform(0.1, 0.3, size), np.ones(size)
    box = theta, one, rng.uniform(1.1, 1.5) * one, rng.uniform(0.1, 0.5, size)
    logits = rope_logits(*intervals.extreme_layer(8, *box, key=int(rng.integers(8))), theta)
    return attention_kernel(logits, masks.causal())[-1:], box


def draw_stay(rng: np.random.Generator) -> tuple[Kernels, list[Box]]:
    """Draw four layers that keep as much on each query as their ranges allow."""
    layers, kernels, apart = [], [], np.abs(intervals.distances(8))
    for _ in range(4):
        box = draw_extreme(rng)[1]
        low, high = intervals.rope_logit_intervals(8, *box)
        kernels.append(attention_kernel(np.where(apart == 0, high[0], low[apart]), masks.causal()))
        layers.append(box)
    return np.stack(kernels), layers


def draw_angles(rng: np.random.Generator) -> dict[int, float]:
    """Return the largest angle of random pairs of features over the bound of lemma I.3, by width."""
    found = {}
    for width in (4, 8, 32):
        q, k = rng.standard_normal((2, 20_000, width // 2, 2))
        k = q + rng.uniform(0, 1, (20_000, 1, 1)) * k
        each, bound = intervals.pair_angles(q, k)
        found[width] = float((each / bound).max())
    return found


def draw_turned(rng: np.random.Generator) -> Turned:
    """Draw all networks and layers."""
    base, networks = 0.6 * np.pi / (N - 1), {}
    for name, theta in zip(WIDTHS, (np.array([base]), base * np.arange(1, 5) / 4), strict=True):
        networks[name] = draw_network(rng, theta)
    constants = {name: x[0] for name, x in networks.items()}
    kernels = {name: x[1] for name, x in networks.items()}
    ranges = {name: x[2] for name, x in networks.items()}
    layers = [draw_layer(rng) for _ in range(200)]
    fast = [draw_layer(rng, condition=False) for _ in range(50)]
    extreme = [draw_extreme(rng) for _ in range(40)]
    stays = [draw_stay(rng) for _ in range(20)]
    return Turned(constants, kernels, ranges, layers, fast, extreme, stays, draw_angles(rng))


@dataclass(frozen=True)
class Walks:
    """Hold rollouts of one pair of features on 512 tokens: the kernel, and profiles by depth and distance."""

    A: Float[np.ndarray, "n n"]
    profiles: Float[np.ndarray, "T n"]

    @property
    def hop(self) -> float:
        """The mean step of one layer."""
        return float(self.A[-1, ::-1] @ np.arange(N_LONG))

    @property
    def peak_at(self) -> Any:
        """Distance of the peak by depth, counted from layer 1."""
        return self.profiles.argmax(axis=1)

    @property
    def layers(self) -> Any:
        """The depths, from 2 on, at which the first token does not have the peak."""
        return np.arange(2, 25)[self.peak_at[1:] < N_LONG - 1]


def roll_out() -> Walks:
    """Roll out one pair of features without content."""
    still = np.sqrt(STRENGTH) * np.tile([1.0, 0.0], (N_LONG, 1))
    A = attention_kernel(rope_logits(still, still, [THETA]), masks.causal())
    return Walks(A, influence_history(A, np.ones(24))[1:, ::-1])


def formula_peak(t: int, c: float) -> int:
    """Return the distance at which the number of walks times exp(-c x²) is largest."""
    x = np.arange(N_LONG)
    return int((e.log_walks(t, x) - c * x**2).argmax())


def walk_logs() -> tuple[Any, Any]:
    """Return distances, and logs of sums over walks of Gaussian steps, for 1 to 32 layers."""
    x = np.arange(N_LONG)
    return x[1:], np.log(e.walk_sums(np.exp(-SINGLE * x**2.0), DEPTHS[-1])[:, 1:])


def fitted_exponent(layers: int) -> float:
    """Return the constant that fits sums over walks best, as a multiple of that of one layer."""
    x, sums = walk_logs()
    y = sums[layers - 1] - e.log_walks(layers - 1, x)
    return float(-(y @ x**2.0) / (x**2.0 @ x**2.0) / SINGLE)


def medians(turned: Turned) -> dict[str, list[float]]:
    """Return for each layer of the networks the median of both upper bounds over attention."""
    seen = intervals.distances(N) >= 0
    x = intervals.distances(N)[seen]
    found: dict[str, list[float]] = {"own": [], "full": []}
    for name, A in turned.kernels.items():
        own = turned.constants[name].bounds(x)[1]
        for kernel, (_, most) in zip(A, turned.limits[name], strict=True):
            found["own"].append(float(np.median(own / kernel[seen])))
            found["full"].append(float(np.median(most[seen] / kernel[seen])))
    return found


def deep_medians(turned: Turned) -> pd.Series:
    """Return the largest median over networks of both upper bounds over the rollout, at all layers."""
    seen, found = intervals.distances(N) >= 0, {}
    for name, A in turned.kernels.items():
        P = np.linalg.multi_dot(A[::-1])[seen]
        old = np.exp(turned.constants[name].log_bounds(T - 1, intervals.distances(N)[seen])[1])
        found[name] = {"all keys": np.median(turned.deep_limits[name][T - 1][seen] / P), "C_max^T": np.median(old / P)}
    return pd.DataFrame(found).T.max()


def gaussian_holds(kernels: Any, constants: Any, **factors: float) -> bool:
    """Say whether kernels are within the Gaussian bounds of lemma 4.6 or I.1, constants changed."""
    seen = intervals.distances(N) >= 0
    x = intervals.distances(N)[seen]
    for A, c in zip(kernels, constants, strict=True):
        changed = {name: getattr(c, name) * f for name, f in factors.items()}
        low, high = replace(c, **changed).bounds(x)
        if (A[seen] < low * (1 - 1e-12)).any() or (A[seen] > high * (1 + 1e-12)).any():
            return False
    return True

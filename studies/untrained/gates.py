"""Random networks of attention and ReLU layers: what an MLP adds to the Gram matrix of the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

import posbias as pb
from posbias.rollout.untrained import untrained_profile

RIGHT, ALIKE = "right: ½ on the diagonal, ¼ off it", "½ on, ½ off"
KINDS = {
    RIGHT: (0.5, 0.25),
    "½ on, 0.35 off": (0.5, 0.35),
    ALIKE: (0.5, 0.5),
    "¼ on, ¼ off": (0.25, 0.25),
    "no MLP": (0.0, 0.0),
}
"""Factors of G on the diagonal and off it; the first is that of ReLU."""
WIDTHS = (16, 64, 192)
TOKENS, DEPTH, GAIN, NETWORKS = 24, 6, 0.7, 48
ENOUGH = 0.005
"""Distance under which a law is said to hold."""

Matrix = Float[np.ndarray, "m k"]


@dataclass(frozen=True)
class GatedLayer:
    """Hold a layer's maps, the factors of the norms before attention and MLP, and which units are open."""

    M: Matrix
    W_in: Matrix
    W_out: Matrix
    before: Float[np.ndarray, "n"]
    inside: Float[np.ndarray, "n"]
    gate: Bool[np.ndarray, "n f"]


def gated_network(run: int, d: int) -> tuple[Matrix, list[GatedLayer], Matrix]:
    """Return uniform attention, the layers of an untrained network, and directions at its output."""
    rng = np.random.default_rng(run)
    A, x = pb.structured_kernels(1).dense(0, TOKENS), rng.standard_normal((TOKENS, d))
    layers = []
    for _ in range(DEPTH):
        M = GAIN / np.sqrt(d) * rng.standard_normal((d, d))
        W_in = rng.standard_normal((4 * d, d)) / np.sqrt(d)
        W_out = rng.standard_normal((d, 4 * d)) / np.sqrt(4 * d)
        before = 1 / np.sqrt((x**2).mean(axis=1))
        x = x + A @ (before[:, None] * x) @ M.T
        inside = 1 / np.sqrt((x**2).mean(axis=1))
        h = inside[:, None] * x @ W_in.T
        x = x + np.maximum(h, 0) @ W_out.T
        layers.append(GatedLayer(M, W_in, W_out, before, inside, h > 0))
    return A, layers, rng.standard_normal((8, d))


def gate_profiles(run: int, d: int, factors: Sequence[tuple[float, float]]) -> Float[np.ndarray, "k n"]:
    """Return the measured profile, then the law's for factors on the diagonal and off it."""
    A, layers, b = gated_network(run, d)
    g = np.zeros((len(b), TOKENS, d))
    g[:, -1] = b
    for x in layers[::-1]:
        g = g + x.inside[:, None] * ((g @ x.W_out * x.gate) @ x.W_in)
        g = g + x.before[:, None] * (A.T @ g @ x.M)
    p = np.sqrt((g**2).sum(axis=(0, 2)))
    scales, gains = np.array([x.before for x in layers]), np.full(DEPTH, GAIN)
    grams, found = [np.outer(x.inside, x.inside) for x in layers], [p / p.sum()]
    for on, off in factors:
        steps = [(off + (on - off) * np.eye(TOKENS)) * gram for gram in grams]
        found.append(untrained_profile(A, gains, scales=scales, steps=steps))
    return np.array(found)


def gate_distances(run: int, d: int) -> Float[np.ndarray, "k"]:
    """Return W₁ of profiles that are means over networks, for every kind of factor."""
    pick = range(NETWORKS * run, NETWORKS * (run + 1))
    each = [gate_profiles(k, d, list(KINDS.values())) for k in pick]
    p, *laws = np.mean(each, axis=0)
    return np.array([pb.normalised_wasserstein(p, law) for law in laws])


def gate_table() -> pd.DataFrame:
    """Return W₁ by kind of factor and width."""
    columns = {f"width {d}": gate_distances(0, d) for d in WIDTHS}
    return pd.DataFrame(columns, index=pd.Index(KINDS, name="factors of G in the law"))

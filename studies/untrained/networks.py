"""Networks small enough that a mean over their weights is known: what the law of untrained networks needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

import posbias as pb
from posbias.rollout import masks
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.untrained import aligned_profile, untrained_profile

RUNS = range(20)
"""Random networks on which a check is run, and on which each of its broken forms is."""
LAYERS, HEADS, TOKENS, DIM = 3, 2, 5, 4
"""Sizes for which one can run through all signs."""

Profile = Float[np.ndarray, "n"]


def all_signs(mean: float) -> tuple[Float[np.ndarray, "draws T H"], Float[np.ndarray, "draws"]]:
    """Return every choice of signs of all heads, and the probability of each if signs have a mean."""
    every = LAYERS * HEADS
    signs = 1 - 2 * (np.arange(2**every)[:, None] >> np.arange(every) & 1)
    return signs.reshape(-1, LAYERS, HEADS), ((1 + mean * signs) / 2).prod(axis=1)


def signed_network(
    run: int, mean: float = 0.0, tied: bool = False, dependent: bool = False, stretch: float = 0.0, mu: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return random kernels and gains, the maps ±c U of all random signs, the signs' weights, and a direction.

    ``tied`` gives all layers one map, ``dependent`` both heads one; ``stretch`` makes columns uneven, and ``mu`` is the
    share of the identity in each map.
    """
    rng = np.random.default_rng(run)
    A = attention_kernel(2 * rng.standard_normal((LAYERS, HEADS, TOKENS, TOKENS)), masks.causal())
    c = rng.uniform(0.5, 1.5, (LAYERS, HEADS))
    U = np.linalg.qr(rng.standard_normal((LAYERS, HEADS, DIM, DIM)))[0]
    signs, weights = all_signs(mean)
    if tied:
        signs, U = np.repeat(signs[:, :1], LAYERS, 1), np.repeat(U[:1], LAYERS, 0)
    if dependent:
        signs, U = np.repeat(signs[..., :1], HEADS, 2), np.repeat(U[:, :1], HEADS, 1)
    U = U * np.sqrt(1 + stretch * np.array([1, 1, -1, -1]))
    rotated = signs[..., None, None] * U
    maps = c[..., None, None] * (mu * np.eye(DIM) + np.sqrt(1 - mu**2) * rotated)
    return A, c, maps, weights, rng.standard_normal(DIM)


def mean_squares(
    A: Float[np.ndarray, "T H n n"],
    maps: Float[np.ndarray, "draws T H d d"],
    weights: Float[np.ndarray, "draws"],
    b: Float[np.ndarray, "d"],
) -> Float[np.ndarray, "n"]:
    """Return the weighted mean of ‖g_j‖² over draws of the maps."""
    g = np.zeros((len(maps), A.shape[-1], len(b)))
    g[:, -1] = b
    for t in reversed(range(A.shape[0])):
        pulled = np.einsum("hij,sid->shjd", A[t], g)
        g = g + np.einsum("shjd,shde->sje", pulled, maps[:, t])
    return np.asarray(weights @ (g**2).sum(axis=2))


def off_law(run: int, law: Any = untrained_profile, **broken: Any) -> tuple[float, float]:
    """Return how far the law is from the mean over all signs: the largest difference of shares, and W₁."""
    A, c, *others = signed_network(run, **broken)
    p, q = np.sqrt(mean_squares(A, *others)), law(A, c)
    p = p / p.sum()
    return float(np.abs(p - q).max()), float(pb.normalised_wasserstein(p, q))


def law_met(run: int, **how: Any) -> bool:
    """Say whether the profile over all random signs is the law's, to 1e-9."""
    return off_law(run, **how)[0] < 1e-9


def single_paths(A: Float[np.ndarray, "T H n n"], c: Float[np.ndarray, "T H"]) -> Profile:
    """Return squares of single paths: sizes are not added within a set of layers either."""
    v = np.eye(A.shape[-1])[-1]
    for A_t, c_t in zip(A[::-1], c[::-1], strict=True):
        v = v + np.einsum("h,hij,i->j", c_t**2, A_t**2, v)
    return np.asarray(np.sqrt(v) / np.sqrt(v).sum())


def between(A: Float[np.ndarray, "T H n n"], c: Float[np.ndarray, "T H"], mu: float) -> Profile:
    """Return the law between the limits, for maps of which a share ``mu`` is common to all."""
    G = np.zeros(A.shape[-2:])
    G[-1, -1] = 1.0
    for A_t, c_t in zip(A[::-1], c[::-1], strict=True):
        mean = mu * np.einsum("h,hij->ij", c_t, A_t)
        squares = np.einsum("h,hij,ik,hkl->jl", c_t**2 * (1 - mu**2), A_t, G, A_t)
        G = G + mean.T @ G + G @ mean + mean.T @ G @ mean + squares
    return np.asarray(np.sqrt(np.diag(G)) / np.sqrt(np.diag(G)).sum())


BROKEN: Mapping[str, Mapping[str, Any]] = {
    "law: sizes added throughout": {"law": aligned_profile},
    "law: single paths squared": {"law": single_paths},
    "law: c in place of c²": {"law": lambda A, c: untrained_profile(A, np.sqrt(c))},
    "law: gains 1% too large": {"law": lambda A, c: untrained_profile(A, 1.01 * c)},
    "network: one map for all layers": {"tied": True},
    "network: one map for both heads": {"dependent": True},
    "network: signs of mean 0.1": {"mean": 0.1},
    "network: M Mᵀ uneven by 20%": {"stretch": 0.2},
}
"""What the law should not be met by: other laws, and networks that break one of its hypotheses."""
EFFECTS = {
    "one map for all layers": "sets of equally many layers add up before squaring",
    "one map for both heads": "the two heads act as one",
    "signs of mean 0.1": "cross terms appear",
    "M Mᵀ uneven by 20%": "the gain depends on the direction",
}


def violations() -> pd.DataFrame:
    """Return the law's distance where a hypothesis fails, a mean over runs."""
    rows = {}
    for name, why in EFFECTS.items():
        found = [off_law(run, **BROKEN[f"network: {name}"])[1] for run in RUNS]
        rows[f"{name}: {why}"] = np.mean(found)
    return pd.DataFrame({"law's distance": rows}).rename_axis("violation, and its effect")

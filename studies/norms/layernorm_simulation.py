"""Recency probability: which of two earlier keys an untrained network prefers, by Monte Carlo over random tokens.

The network has identity projections, so that a layer only ever takes inner products and weighted means of its
inputs. Nothing changes if the inputs are rotated, and n of them span n directions at most: the simulation draws
their coordinates in such a basis, n numbers a token instead of d, and costs the same for every width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

Norm = Literal["none", "layernorm", "rmsnorm"]
"""What stands before attention: nothing, or a normalisation without gain or bias."""
Residual = Literal["none", "pre", "post"]
"""What a layer returns of normalised states u: A u, x + A u (pre-norm), or u + A u (the sum is normalised next)."""


@dataclass(frozen=True)
class RecencyEstimate:
    """Hold the recency probability of each layer with its Monte-Carlo error, and the mean logits."""

    probability: Float[np.ndarray, "layers"]
    error: Float[np.ndarray, "layers"]
    mean_logits: Float[np.ndarray, "layers n n"]
    sequences: int


def layer_logits(
    X: Float[np.ndarray, "... n d"],
    layers: int,
    *,
    norm: Norm = "layernorm",
    residual: Residual = "none",
    uniform: bool = False,
) -> Float[np.ndarray, "layers ... n n"]:
    """Return S = u uᵀ / √d at every layer of the network x ← A u (+ x), A = softmax(S) on j ≤ i.

    Source: LayerNorm paper's set-up, as its authors' published notebook has it.

    >>> layer_logits(np.eye(2), 1, norm="none")[0]
    array([[0.70710678, 0.        ],
           [0.        , 0.70710678]])
    """
    d = X.shape[-1]
    if norm == "layernorm":  # the mean is linear in the features and A mixes tokens: once is enough
        X = X - X.mean(axis=-1, keepdims=True)
    return np.stack(list(_layers(X, d, layers, norm != "none", residual, uniform)))


def recency_share(S: Float[np.ndarray, "... n n"]) -> Float[np.ndarray, "..."]:
    """Return the share of triples k < j < i with S_ij > S_ik; a tie counts as not greater.

    >>> recency_share(np.array([[0.0, 0, 0], [0, 0, 0], [1, 2, 9]]))
    array(1.)
    """
    n = S.shape[-1]
    moved = np.ascontiguousarray(np.moveaxis(S.reshape(-1, n, n), 0, -1))  # comparisons then run along sequences
    greater = np.zeros(moved.shape[-1], dtype=np.int64)
    for i in range(2, n):
        for j in range(1, i):
            greater += (moved[i, j] > moved[i, :j]).sum(axis=0, dtype=np.uint16)
    return (greater / (n * (n - 1) * (n - 2) / 6)).reshape(S.shape[:-2])


def simulate_recency(
    sequences: int,
    *,
    d: int,
    alpha: float,
    n: int = 10,
    layers: int = 4,
    norm: Norm = "layernorm",
    residual: Residual = "none",
    rms: float | None = None,
    seed: int = 0,
    batch: int = 1024,
    dtype: type = np.float32,
) -> RecencyEstimate:
    """Estimate P(S_ij > S_ik), k < j < i, at every layer for tokens √α · shared + √(1-α) · own, both Gaussian.

    Source: LayerNorm paper's simulations, tokens as its authors' published notebook draws them; their coordinates by
    Bartlett's decomposition.
    """
    size = 1 / np.sqrt(1 - alpha) if rms is None else rms
    rng = np.random.default_rng(seed)
    common = np.linalg.cholesky(alpha + (1 - alpha) * np.eye(n)) * size / np.sqrt(d)
    directions = d - (norm == "layernorm")
    total, squares, mean = np.zeros(layers), np.zeros(layers), np.zeros((layers, n, n))
    for start in range(0, sequences, batch):
        own = _coordinates(rng, min(batch, sequences - start), n, directions, dtype)
        for t, S in enumerate(_layers(common.astype(dtype) @ own, d, layers, norm != "none", residual)):
            share = recency_share(S)
            total[t] += share.sum()
            squares[t] += (share**2).sum()
            mean[t] += S.sum(axis=0, dtype=np.float64)
    probability = total / sequences
    spread = np.maximum(squares / sequences - probability**2, 0) / (sequences - 1)
    return RecencyEstimate(probability, np.sqrt(spread), mean / sequences, sequences)


def _layers(
    X: np.ndarray, d: int, layers: int, normalise: bool, residual: Residual, uniform: bool = False
) -> Iterator[np.ndarray]:
    """Yield the logits of each layer; X may be in any basis, d is the width that scales."""
    n, scale = X.shape[-2], X.dtype.type(np.sqrt(d))
    allowed = np.tri(n, dtype=X.dtype)
    future = np.where(allowed == 1, 0, -np.inf).astype(X.dtype)
    for _ in range(layers):
        u = X * (scale / np.sqrt(np.einsum("...k,...k->...", X, X))[..., None]) if normalise else X
        S = u @ np.swapaxes(u, -1, -2) / scale
        yield S
        if uniform:
            A = np.broadcast_to(allowed, S.shape).copy()
        elif normalise:  # no logit exceeds one's own, √d
            A = np.exp(S - scale) * allowed
        else:
            A = S + future
            A = np.exp(A - A.max(axis=-1, keepdims=True))
        A /= np.einsum("...k->...", A)[..., None]
        base = {"none": 0, "pre": X, "post": u}[residual]
        X = base + A @ u


def _coordinates(rng: np.random.Generator, batch: int, n: int, directions: int, dtype: type) -> np.ndarray:
    """Draw n standard Gaussian vectors in ``directions`` dimensions, in coordinates of the basis that QR gives them.

    Bartlett's decomposition: the lower triangle is normal, the diagonal chi with directions, directions - 1, …
    degrees of freedom, all independent.
    """
    T: np.ndarray = np.zeros((batch, n, n), dtype=dtype)
    rows, columns = np.tril_indices(n, -1)
    T[:, rows, columns] = rng.standard_normal((batch, rows.size), dtype=dtype)
    for i in range(n):
        T[:, i, i] = np.sqrt(2 * rng.standard_gamma((directions - i) / 2, batch, dtype=dtype))
    return T

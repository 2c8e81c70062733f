"""Kernels from both sides: X ↦ Σ_h w_h A_hᵀ X A_h, in O(n²) a head where the kernels are structured and causal.

A column of X goes through a kernel whose weights fall geometrically with the distance by one running sum from the last
token to the first, y[j] = u[j] + q y[j + 1]. Columns go through it all at once, then rows. A window of w tokens costs
O(n² w): a difference of two running sums would be quicker and can fall below 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.errors import Numbers
from posbias.rollout import biased
from posbias.rollout.biased import BiasedKernels
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import content_logits, position_logits
from posbias.rollout.position_bias import LogBias, NoBias, PositionBias
from posbias.rollout.structured import STEEPEST, StructuredKernels

Kernels = StructuredKernels | BiasedKernels | np.ndarray
KEPT = 1024
"""Most tokens of which kernels that are written out are kept from layer to layer."""


def two_sided(kernels: Kernels, t: int, X: Float[np.ndarray, "n n"], weights: Numbers) -> Float[np.ndarray, "n n"]:
    """Return Σ_h w_h A_hᵀ X A_h over the heads of layer ``t``.

    Heads whose kernels are equal are taken once.

    >>> A = np.array([[[[1.0, 0.0], [0.5, 0.5]]]])
    >>> two_sided(A, 0, np.diag([0.0, 1.0]), [1.0]).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    out = np.zeros_like(X)
    for A, w in _distinct(kernels, t, len(X), np.asarray(weights, dtype=float)):
        out += w * A.pushed(A.pushed(X).T).T
    return out


def pushed(
    kernels: Kernels, t: int, v: Float[np.ndarray, "n *columns"], weights: Numbers
) -> Float[np.ndarray, "n *columns"]:
    """Return Σ_h w_h A_hᵀ v over the heads of layer ``t``, v a vector or columns; arguments as in :func:`two_sided`.

    >>> pushed(np.array([[[[1.0, 0.0], [0.5, 0.5]]]]), 0, np.array([0.0, 1.0]), [2.0]).tolist()
    [1.0, 1.0]
    """
    heads = _distinct(kernels, t, len(v), np.asarray(weights, dtype=float))
    columns = v.reshape(len(v), -1)
    return np.asarray(sum(w * A.pushed(columns) for A, w in heads)).reshape(v.shape)


class _Matrix:
    """A kernel written out, sparse where a window leaves most of it empty."""

    def __init__(self, A: Any) -> None:
        self.A = A

    def pushed(self, X: np.ndarray) -> np.ndarray:
        """Return AᵀX."""
        return np.asarray(self.A.T @ X)


class _Triangular:
    """The kernel of a head with another bias, written out: half of a product is known to be nothing."""

    def __init__(self, bias: PositionBias, diagonal: float, n: int) -> None:
        self.upper = biased.dense_kernel(bias, diagonal, n).T

    def pushed(self, X: np.ndarray) -> np.ndarray:
        """Return AᵀX."""
        from scipy.linalg.blas import dtrmm

        return np.asarray(dtrmm(1.0, self.upper, X))


@lru_cache(maxsize=32)
def _kept(bias: PositionBias, diagonal: float, n: int) -> _Triangular:
    """Return a kernel that other layers are likely to have too."""
    return _Triangular(bias, diagonal, n)


class _Biased:
    """The kernel of a head with no bias, or log j, and diagonal content."""

    def __init__(self, bias: PositionBias, diagonal: float) -> None:
        self.bias, self.diagonal = bias, diagonal

    def pushed(self, X: np.ndarray) -> np.ndarray:
        """Return AᵀX."""
        return biased.pushed(self.bias, self.diagonal, X)


class _Geometric:
    """A causal kernel with weight q^k at distance k > 0 and another on the query itself."""

    def __init__(self, n: int, slope: float, diagonal: float) -> None:
        top = max(diagonal, -slope)
        self.own, self.near = np.exp(diagonal - top), np.exp(-slope - top)
        self.q = np.exp(-min(slope, STEEPEST))
        self.sums = self.own + self.near * np.append(0.0, np.cumsum(self.q ** np.arange(n - 1)))
        self.sums[0] = np.inf  # the first row gives everything to itself, below

    def pushed(self, X: np.ndarray) -> np.ndarray:
        """Return AᵀX."""
        from scipy.signal import lfilter

        u = X / self.sums[:, None]
        later = lfilter([1.0], [1.0, -self.q], u[::-1], axis=0)[::-1]
        out = self.own * u
        out[:-1] += self.near * later[1:]
        out[0] += X[0]
        return np.asarray(out)


Head = _Matrix | _Triangular | _Geometric | _Biased


def _distinct(kernels: Kernels, t: int, n: int, weights: np.ndarray) -> list[tuple[Head, float]]:
    """Return the different kernels of a layer, each with the sum of its heads' weights."""
    if isinstance(kernels, np.ndarray):
        return [(_Matrix(A), float(w)) for A, w in zip(kernels[t], weights, strict=True)]
    if isinstance(kernels, BiasedKernels):
        return [(_biased(n, *head), w) for head, w in kernels.heads(t, weights).items()]
    slopes, diagonal, _ = kernels.layer(t)
    heads, which = np.unique(np.stack([slopes, diagonal]), axis=1, return_inverse=True)
    total = np.bincount(which.ravel(), weights, heads.shape[1])
    return [(_structured(kernels, n, *head), float(w)) for head, w in zip(heads.T.tolist(), total, strict=True)]


def _biased(n: int, bias: PositionBias, diagonal: float) -> Head:
    if isinstance(bias, NoBias | LogBias):
        return _Biased(bias, diagonal)
    return (_kept if n <= KEPT else _Triangular)(bias, diagonal, n)


def _structured(kernels: StructuredKernels, n: int, slope: float, diagonal: float) -> _Matrix | _Geometric:
    from scipy.sparse import csr_array

    if kernels.mask.kind == "causal":
        return _Geometric(n, slope, diagonal)
    A = attention_kernel(position_logits(n, slope) + content_logits(n, 0.0, diagonal), kernels.mask)
    return _Matrix(csr_array(A) if kernels.mask.kind == "window" else A)

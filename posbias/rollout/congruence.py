"""Kernels from both sides: X ↦ Σ_h w_h A_hᵀ X A_h, in O(n²) a head where the kernels are structured.

A column of X goes through a kernel whose weights fall geometrically with the distance by one running sum from the last
token to the first, y[j] = u[j] + q y[j + 1]. Columns go through it all at once, then rows.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import checks
from posbias.checks import Numbers
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import content_logits, position_logits
from posbias.rollout.structured import STEEPEST, StructuredKernels

Kernels = StructuredKernels | np.ndarray


def congruence(kernels: Kernels, t: int, X: Float[np.ndarray, "n n"], weights: Numbers) -> Float[np.ndarray, "n n"]:
    """Return Σ_h w_h A_hᵀ X A_h over the heads of layer ``t``.

    Heads whose kernels are equal are taken once.

    Parameters
    ----------
    kernels
        Structured, or an array (T, H, n, n).
    t
        Layer, 0-based.
    X
        A square matrix over positions.
    weights
        H numbers.

    >>> A = np.array([[[[1.0, 0.0], [0.5, 0.5]]]])
    >>> congruence(A, 0, np.diag([0.0, 1.0]), [1.0]).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    out = np.zeros_like(X)
    for A, w in _distinct(kernels, t, len(X), checks.finite_array("weights", weights, ndim=(1,))):
        out += w * A.pushed(A.pushed(X).T).T
    return out


def pushed(
    kernels: Kernels, t: int, v: Float[np.ndarray, "n *columns"], weights: Numbers
) -> Float[np.ndarray, "n *columns"]:
    """Return Σ_h w_h A_hᵀ v over the heads of layer ``t``, v a vector or columns; arguments as in :func:`congruence`.

    >>> pushed(np.array([[[[1.0, 0.0], [0.5, 0.5]]]]), 0, np.array([0.0, 1.0]), [2.0]).tolist()
    [1.0, 1.0]
    """
    heads = _distinct(kernels, t, len(v), checks.finite_array("weights", weights, ndim=(1,)))
    columns = v.reshape(len(v), -1)
    return np.asarray(sum(w * A.pushed(columns) for A, w in heads)).reshape(v.shape)


class _Dense:
    """A kernel written out."""

    def __init__(self, A: np.ndarray) -> None:
        self.A = A

    def pushed(self, X: np.ndarray) -> np.ndarray:
        """Return AᵀX."""
        return np.asarray(self.A.T @ X)


class _Geometric:
    """A causal or windowed kernel with weight q^k at distance k > 0 and another on the query itself."""

    def __init__(self, n: int, slope: float, diagonal: float, reach: int) -> None:
        top = max(diagonal, -slope)
        self.own, self.near = np.exp(diagonal - top), np.exp(-slope - top)
        self.q, self.reach = np.exp(-min(slope, STEEPEST)), reach
        before = np.append(0.0, np.cumsum(self.q ** np.arange(n)))[np.minimum(np.arange(n), reach)]
        self.sums = self.own + self.near * before
        self.sums[before == 0] = np.inf  # such a row gives everything to itself, below

    def pushed(self, X: np.ndarray) -> np.ndarray:
        """Return AᵀX."""
        from scipy.signal import lfilter

        u = X / self.sums[:, None]
        later = lfilter([1.0], [1.0, -self.q], u[::-1], axis=0)[::-1]
        out = self.own * u
        out[:-1] += self.near * later[1:]
        if self.reach < len(X) - 1:
            out[: -self.reach - 1] -= self.near * self.q**self.reach * later[self.reach + 1 :]
        alone = np.isinf(self.sums)
        out[alone] += X[alone]
        return np.asarray(out)


def _distinct(kernels: Kernels, t: int, n: int, weights: np.ndarray) -> list[tuple[_Dense | _Geometric, float]]:
    """Return the different kernels of a layer, each with the sum of its heads' weights."""
    if isinstance(kernels, np.ndarray):
        return [(_Dense(A), float(w)) for A, w in zip(kernels[t], weights, strict=True)]
    slopes, diagonal, _ = kernels.layer(t)
    heads, which = np.unique(np.stack([slopes, diagonal]), axis=1, return_inverse=True)
    total = np.bincount(which.ravel(), weights, heads.shape[1])
    return [(_structured(kernels, n, *head), float(w)) for head, w in zip(heads.T.tolist(), total, strict=True)]


def _structured(kernels: StructuredKernels, n: int, slope: float, diagonal: float) -> _Dense | _Geometric:
    kind = kernels.mask.kind
    if kind in ("causal", "window"):
        return _Geometric(n, slope, diagonal, kernels.mask.width - 1 if kind == "window" else n)
    logits = position_logits(n, slope) + content_logits(n, 0.0, diagonal)
    return _Dense(attention_kernel(logits, kernels.mask))

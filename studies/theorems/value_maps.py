"""Heads with a value map each: what the average of their kernels keeps of a layer, and what it loses."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors


def value_influence(
    A: Float[np.ndarray, "T H n n"], W: Float[np.ndarray, "layers heads d d"], *, row: int = -1
) -> Float[np.ndarray, "n"]:
    """Return ‖∂x_row / ∂x_j‖_F, summing to 1, of the network x_i ← x_i + Σ_h Σ_j A^h[i, j] W^h x_j.

    Parameters
    ----------
    A
        Attention kernel of every layer and head, first layer first; held fixed.
    W
        Value-output maps: what a head does to the state it brings.
    row
        The position whose sources are asked for.

    Raises
    ------
    ValueError
        If the shapes do not agree, or a kernel is not row-stochastic.

    Source: ours, for the multi-head extension of the residual-aware paper (appendix B).

    >>> A = np.array([[[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]]]])
    >>> value_influence(A, np.ones((1, 2, 1, 1)))
    array([0.5, 0.5])
    """
    A = _kernels(A)
    T, H, n = A.shape[:3]
    W = errors.finite_array("W", W, ndim=(4,))
    d = W.shape[-1]
    if W.shape != (T, H, d, d):
        raise errors.invalid("W", f"a square map for each of {T} × {H} layers and heads", f"shape {W.shape}")
    G = np.zeros((n, d, d))
    G[errors.index("row", row, n)] = np.eye(d)
    for t in reversed(range(T)):
        G = G + sum(np.tensordot(A[t, h], G, axes=(0, 0)) @ W[t, h] for h in range(H))
    norms = np.linalg.norm(G, axis=(1, 2))
    return norms / norms.sum()


def _kernels(A: Float[np.ndarray, "T H n n"]) -> np.ndarray:
    A = errors.finite_array("A", A, ndim=(4,))
    errors.stochastic_kernel("A", A.reshape(-1, *A.shape[-2:]))
    return A

"""Heads with a value map each: what the average of their kernels keeps of a layer, and what it loses."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import checks
from posbias.checks import Numbers


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
    W = checks.finite_array("W", W, ndim=(4,))
    d = W.shape[-1]
    if W.shape != (T, H, d, d):
        raise checks.refuse("W", f"a square map for each of {T} × {H} layers and heads", f"shape {W.shape}")
    G = np.zeros((n, d, d))
    G[checks.index("row", row, n)] = np.eye(d)
    for t in reversed(range(T)):
        G = G + sum(np.tensordot(A[t, h], G, axes=(0, 0)) @ W[t, h] for h in range(H))
    norms = np.linalg.norm(G, axis=(1, 2))
    return norms / norms.sum()


def independent_influence(A: Float[np.ndarray, "T H n n"], sizes: Numbers, *, row: int = -1) -> Float[np.ndarray, "n"]:
    """Return the root mean square of ‖∂x_row / ∂x_j‖_F, summing to 1, for independent value maps of mean zero.

    M_T = e_row e_rowᵀ, M_{t-1} = M_t + Σ_h v_h² A_t^hᵀ M_t A_t^h, and the squares stand on the diagonal of M_0.

    Parameters
    ----------
    A
        Attention kernel of every layer and head, first layer first. One map for all heads of a layer is one head with
        their mean kernel.
    sizes
        v ≥ 0 for every layer and head: E[W Wᵀ] = v² I.
    row
        The position whose sources are asked for.

    Raises
    ------
    ValueError
        If the shapes do not agree, a kernel is not row-stochastic or a size is negative.

    Source: ours, for the multi-head extension of the residual-aware paper (appendix B).

    >>> heads = np.array([[[[1.0, 0.0], [0.6, 0.4]], [[1.0, 0.0], [0.0, 1.0]]]])
    >>> squares = np.array([0.36, 1 + 0.16 + 1])  # the last token's own state goes on top
    >>> independent_influence(heads, np.ones((1, 2))) - np.sqrt(squares) / np.sqrt(squares).sum()
    array([0., 0.])
    """
    A = _kernels(A)
    T, H, n = A.shape[:3]
    v = checks.finite_array("sizes", sizes, ndim=(2,))
    if v.shape != (T, H) or (v < 0).any():
        raise checks.refuse("sizes", f"{T} × {H} values of at least 0", f"shape {v.shape} or values below")
    M = np.zeros((n, n))
    at = checks.index("row", row, n)
    M[at, at] = 1.0
    for t in reversed(range(T)):
        M = M + sum(v[t, h] ** 2 * A[t, h].T @ M @ A[t, h] for h in range(H))
    norms = np.sqrt(np.diag(M))
    return norms / norms.sum()


def _kernels(A: Float[np.ndarray, "T H n n"]) -> np.ndarray:
    A = checks.finite_array("A", A, ndim=(4,))
    checks.stochastic_kernel("A", A.reshape(-1, *A.shape[-2:]))
    return A

"""Attention as selector and aggregator: an attention network's output as a sum over paths, and its derivative.

Heads add their outputs, layer t computes (1 - λ_t) X + λ_t Σ_h A_th X W_th; λ_t = 1 is a network without residual
connections. A path takes one head in every layer, or the residual connection.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from jaxtyping import Bool, Complex, Float

from posbias import errors
from posbias.errors import Numbers

States = Float[np.ndarray, "n d"] | Complex[np.ndarray, "n d"]
Maps = Float[np.ndarray, "T H d d"]
STEP = 1e-30
"""Imaginary step of the derivative: it enters only to first order, and nothing is subtracted."""


def run_heads(
    X: States, W_qk: Maps, W_v: Maps, lambda_: Numbers, allowed: Bool[np.ndarray, "n n"]
) -> tuple[States, Float[np.ndarray, "T H n n"] | Complex[np.ndarray, "T H n n"]]:
    """Run X ← (1 - λ_t) X + λ_t Σ_h A_th X W_th with A_th = softmax(X W_qk,th Xᵀ / √d), and return states and kernels.

    Parameters
    ----------
    X
        Input states; complex ones are carried through as they are.
    W_qk, W_v
        Products of query and key maps, and value maps (with the head's part of the output map), for each layer and
        head.
    lambda_
        Residual mixing, T values in [0, 1].
    allowed
        The graph, (query, key).

    Raises
    ------
    ValueError
        If λ leaves [0, 1] or has another length than the maps.

    Source: Wu et al. 2025, equation 1, with heads and residual connections.

    >>> X, one = np.array([[1.0], [3.0]]), np.ones((1, 1, 1, 1))
    >>> run_heads(X, 0 * one, one, [1.0], np.tri(2, dtype=bool))[0].ravel().tolist()
    [1.0, 2.0]
    """
    schedule, kernels = errors.mixing_coefficients("lambda_", lambda_, T=len(W_v)), []
    for W_logits, W_values, mixing in zip(W_qk, W_v, schedule, strict=True):
        logits = X @ W_logits @ X.T / np.sqrt(X.shape[1])
        top = np.where(allowed, logits.real, -np.inf).max(axis=-1, keepdims=True)
        weights = np.where(allowed, np.exp(np.where(allowed, logits - top, 0)), 0)
        A = weights / weights.sum(axis=-1, keepdims=True)
        X = (1 - mixing) * X + mixing * (A @ X @ W_values).sum(axis=0)
        kernels.append(A)
    return X, np.stack(kernels)


def path_sum(kernels: Float[np.ndarray, "T H n n"], W_v: Maps, lambda_: Numbers, X: States) -> States:
    """Return Σ over paths of (kernels along it) X (value maps along it): equation 4, one term for each path.

    A path has weight λ_t for a head of layer t and 1 - λ_t for the residual connection, which changes nothing. There
    are (H + 1)^T paths; those of weight 0 are left out.

    Source: Wu et al. 2025, equation 4, which is the case of one head and λ = 1.

    >>> A = np.array([[[[1.0, 0.0], [0.5, 0.5]]]])
    >>> path_sum(A, np.ones((1, 1, 1, 1)), [0.5], np.array([[1.0], [3.0]])).ravel().tolist()
    [1.0, 2.5]
    """
    T, H, n, _ = kernels.shape
    schedule, d = errors.mixing_coefficients("lambda_", lambda_, T=T), X.shape[1]
    total = np.zeros_like(X)
    for path in product(range(H + 1), repeat=T):  # H stands for the residual connection
        weight, P, W = 1.0, np.eye(n), np.eye(d)
        for t, head in enumerate(path):
            weight *= 1 - schedule[t] if head == H else schedule[t]
            if head < H and weight:
                P, W = kernels[t, head] @ P, W @ W_v[t, head]
        if weight:
            total = total + weight * P @ X @ W
    return total


def product_of_averages(kernels: Float[np.ndarray, "T H n n"], W_v: Maps, lambda_: Numbers, X: States) -> States:
    """Return P X W: the rollout of the mean kernels times the product of the summed value maps, as if one path did.

    Exact for one head and λ = 1 alone.

    >>> A = np.array([[[[1.0, 0.0], [0.5, 0.5]]]])
    >>> product_of_averages(A, np.ones((1, 1, 1, 1)), [1.0], np.array([[1.0], [3.0]])).ravel().tolist()
    [1.0, 2.0]
    """
    schedule = errors.mixing_coefficients("lambda_", lambda_, T=len(kernels))
    for A, W, mixing in zip(kernels.mean(axis=1), W_v.sum(axis=1), schedule, strict=True):
        X = ((1 - mixing) * X + mixing * A @ X) @ W
    return X


def output_derivative(
    X: Float[np.ndarray, "n d"], W_qk: Maps, W_v: Maps, lambda_: Numbers, allowed: Bool[np.ndarray, "n n"]
) -> Float[np.ndarray, "n d n d"]:
    """Return ∂ output[i, b] / ∂ X[j, a] as an array (j, a, i, b), kernels following the input.

    Source: complex-step differentiation; exact to rounding, since the network is analytic in its input.

    >>> one = np.ones((1, 1, 1, 1))
    >>> output_derivative(np.zeros((2, 1)), one, one, [1.0], np.tri(2, dtype=bool))[:, 0, 1, 0].tolist()
    [0.5, 0.5]
    """
    n, d = X.shape
    slopes = np.empty((n, d, n, d))
    for j, a in np.ndindex(n, d):
        moved = X.astype(complex)
        moved[j, a] += 1j * STEP
        slopes[j, a] = run_heads(moved, W_qk, W_v, lambda_, allowed)[0].imag / STEP
    return slopes


def value_derivative(
    kernels: Float[np.ndarray, "T H n n"], W_v: Maps, lambda_: Numbers
) -> Float[np.ndarray, "n d n d"]:
    """Return the same derivative with the kernels held fixed: what equation 4 attributes to each input token.

    For one head and λ = 1 its block (j, i) is P[i, j] times the product of the value maps.

    >>> value_derivative(np.array([[[[1.0, 0.0], [0.5, 0.5]]]]), np.full((1, 1, 1, 1), 3.0), [1.0])[:, 0, 1, 0].tolist()
    [1.5, 1.5]
    """
    n, d = kernels.shape[-1], W_v.shape[-1]
    schedule, slopes = errors.mixing_coefficients("lambda_", lambda_, T=len(kernels)), np.eye(n * d).reshape(n, d, n, d)
    for A, W, mixing in zip(kernels, W_v, schedule, strict=True):
        through = np.einsum("hik,jakc,hcb->jaib", A, slopes, W, optimize=True)
        slopes = (1 - mixing) * slopes + mixing * through
    return slopes

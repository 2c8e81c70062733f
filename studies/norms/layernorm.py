"""LayerNorm and recency in closed form: tokens with one common cosine through causal attention.

Tokens e_1 … e_n of norm ρ and pairwise cosine α give first-layer logits β = ρ²/√d on the diagonal and αβ off it.
Everything below depends on them through α and the ratio g = exp(-(1-α)β) of the weight on another token to the
weight on oneself: g = 1 is uniform attention, g → 0 attention to oneself alone.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def weight_ratio(alpha: float, beta: float) -> float:
    """Return g = exp(-(1-α) β): the weight on another token over the weight on oneself, in layer 1.

    >>> weight_ratio(0.5, 0.0)
    1.0
    """
    return float(np.exp(-(1 - alpha) * beta))


def row_weights(n: int, g: float) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return a_j = 1/(1 + (j-1) g) and b_j = g a_j: the weight of token j on itself, and on each earlier token.

    >>> row_weights(2, 0.25)
    (array([1. , 0.8]), array([0.25, 0.2 ]))
    """
    own = 1 / (1 + np.arange(n) * g)
    return own, g * own


def row_concentration(n: int, g: float, lambda_: float = 1.0) -> Float[np.ndarray, "n"]:
    """Return Σ_k R_jk² = (1-λ)² + 2 λ(1-λ) a_j + λ² q_j, q_j = (1 + (j-1) g²) / (1 + (j-1) g)².

    The squared row norms of R = (1-λ) I + λ A: 1 for the first token, strictly falling with j if λ > 0.

    >>> row_concentration(2, 1.0).tolist()
    [1.0, 0.5]
    """
    own, _ = row_weights(n, g)
    earlier = np.arange(n)
    q = (1 + earlier * g**2) / (1 + earlier * g) ** 2
    return (1 - lambda_) ** 2 + 2 * lambda_ * (1 - lambda_) * own + lambda_**2 * q


def inverse_norms(n: int, alpha: float, g: float, lambda_: float = 1.0) -> Float[np.ndarray, "n"]:
    """Return h(j) = 1/‖out_j‖ = ((1-α) Σ_k R_jk² + α)^(-1/2) for tokens of norm 1: rising with j.

    Source: LayerNorm paper's h(j); the derivation is this book's.

    >>> inverse_norms(4, 0.0, 1.0).round(4).tolist()
    [1.0, 1.4142, 1.7321, 2.0]
    """
    return 1 / np.sqrt((1 - alpha) * row_concentration(n, g, lambda_) + alpha)


def second_layer_logits(
    n: int, alpha: float, g: float, lambda_: float = 1.0, *, scale: float = 1.0, normalised: bool = True
) -> Float[np.ndarray, "n n"]:
    """Return S_ij = scale · ((1-α) λ b_i + α) h(i) h(j) for j < i; without normalisation, without the h.

    The matrix is symmetric, with ‖out_i‖² (times h²) on its diagonal.

    >>> second_layer_logits(3, 0.0, 1.0, normalised=False)[2, :2].round(4).tolist()
    [0.3333, 0.3333]
    >>> second_layer_logits(3, 0.0, 1.0)[2, :2].round(4).tolist()
    [0.5774, 0.8165]
    """
    h = inverse_norms(n, alpha, g, lambda_)
    off = (1 - alpha) * lambda_ * row_weights(n, g)[1] + alpha
    i, j = np.indices((n, n))
    S = off[np.maximum(i, j)]
    np.fill_diagonal(S, 1 / h**2)
    return scale * (S * np.outer(h, h) if normalised else S)


def exact_tokens(n: int, d: int, alpha: float) -> Float[np.ndarray, "n d"]:
    """Return n tokens of norm 1 and feature mean 0 whose pairwise cosines are α to rounding.

    >>> X = exact_tokens(2, 3, 0.5)
    >>> (X @ X.T).round(12).tolist(), bool(abs(X.mean(axis=1)).max() < 1e-12)
    ([[1.0, 0.5], [0.5, 1.0]], True)
    """
    # cosine waves: orthonormal, each of mean 0
    basis = np.cos(np.pi * (np.arange(d) + 0.5) * np.arange(1, n + 1)[:, None] / d) * np.sqrt(2 / d)
    return np.linalg.cholesky(alpha + (1 - alpha) * np.eye(n)) @ basis

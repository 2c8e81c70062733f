"""LayerNorm and recency in closed form: tokens with one common cosine through causal attention.

Tokens e_1 … e_n of norm ρ and pairwise cosine α give first-layer logits β = ρ²/√d on the diagonal and αβ off it.
Everything below depends on them through α and the ratio g = exp(-(1-α)β) of the weight on another token to the
weight on oneself: g = 1 is uniform attention, g → 0 attention to oneself alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.errors import Numbers
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.masks import causal

MIXED = 160
"""Terms of a series with ratio 3/4, beyond which it is below the rounding of doubles."""


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


def uniform_depth_cosine(log_ratio: Numbers, t: int) -> Float[np.ndarray, "..."]:
    """Return M_t(u) = lim cos(x_i, x_j) after t layers of uniform causal attention, u = |log(i/j)|, norm in between.

    The network normalises every state before it averages, x_i ← (1/i) Σ_{j≤i} x_j/‖x_j‖, from orthogonal tokens.
    M_1 = exp(-u/2), and M_(t+1) is proportional to the convolution of M_t with ½ exp(-|u|). Transforms are then
    A B^(t-1), A = (1/4 + ω²)^-1 and B = (1 + ω²)^-1; as A = Σ_k (3/4)^k B^(k+1), M_t is a positive mixture of Matérn
    functions, which is summed. M_t falls strictly with u, ever more slowly from layer to layer.

    Source: this book's.

    >>> u = np.log(4.0)
    >>> [float(uniform_depth_cosine(u, t).round(3)) for t in (1, 2, 3)]
    [0.5, 0.75, 0.842]
    """
    u = np.asarray(np.abs(np.asarray(log_ratio, dtype=np.float64)))
    here, at_0 = _powers(u, t + MIXED - 1), _powers(np.zeros(()), t + MIXED - 1)
    weights = 0.75 ** np.arange(MIXED)
    total, total_0 = (np.tensordot(weights, x[t - 1 :], 1) for x in (here, at_0))
    return np.asarray(total / total_0)


def _powers(u: Float[np.ndarray, "..."], count: int) -> Float[np.ndarray, "count ..."]:
    """Return the functions whose transforms are (1 + ω²)^-m, m = 1 … count: exp(-u) times polynomials of u ≥ 0."""
    found = [np.exp(-u) / 2, (1 + u) * np.exp(-u) / 4]
    for m in range(2, count):  # the recurrence of Bessel functions K_(m - 1/2)
        found.append((2 * m - 1) / (2 * m) * found[-1] + u**2 / (4 * m * (m - 1)) * found[-2])
    return np.stack(found[:count])


def exact_tokens(n: int, d: int, alpha: float) -> Float[np.ndarray, "n d"]:
    """Return n tokens of norm 1 and feature mean 0 whose pairwise cosines are α to rounding.

    >>> X = exact_tokens(2, 3, 0.5)
    >>> (X @ X.T).round(12).tolist(), bool(abs(X.mean(axis=1)).max() < 1e-12)
    ([[1.0, 0.5], [0.5, 1.0]], True)
    """
    # cosine waves: orthonormal, each of mean 0
    basis = np.cos(np.pi * (np.arange(d) + 0.5) * np.arange(1, n + 1)[:, None] / d) * np.sqrt(2 / d)
    return np.linalg.cholesky(alpha + (1 - alpha) * np.eye(n)) @ basis


@dataclass(frozen=True)
class StreamMixing:
    """Hold how the layers of a pre-norm network really mix its inputs, and what a rollout would use."""

    attention: Float[np.ndarray, "T n n"]
    exact: Float[np.ndarray, "T n n"]
    lambda_: Float[np.ndarray, "T"]


def stream_mixing(X: Float[np.ndarray, "n d"], layers: int) -> StreamMixing:
    """Run x ← x + A u, u = √d x/‖x‖, and return R̃_ij ∝ s_i δ_ij + √d A_ij h_j with h_j = s_j/‖x_j‖.

    s_j is the total weight with which inputs entered x_j. Feature means are taken away first, so that this is
    LayerNorm.
    """
    T, (n, d) = layers, X.shape
    X = X - X.mean(axis=1, keepdims=True)
    weight, attention, exact, lambda_ = np.ones(n), np.empty((T, n, n)), np.empty((T, n, n)), np.empty(T)
    for t in range(T):
        norms = np.linalg.norm(X, axis=1)
        u = np.sqrt(d) * X / norms[:, None]
        A = attention_kernel(u @ u.T / np.sqrt(d), causal())
        R = np.diag(weight) + np.sqrt(d) * A * (weight / norms)
        a = A @ u
        lambda_[t] = np.linalg.norm(a) / (np.linalg.norm(a) + np.linalg.norm(X))
        weight = R.sum(axis=1)
        attention[t], exact[t], X = A, R / weight[:, None], X + a
    return StreamMixing(attention, exact, lambda_)

"""Infinite depth: what survives on a token, what is left off the first one, and kernels that attain the bounds.

Depths here go to 10⁵ layers, where masses leave the range of a double: logarithms are kept of them. ``later`` counts
the tokens 2..n. A token *leaves* itself in layer t with weight λ_t (1 - A_t[i, i]) and *stays* with the rest; its mass
off the first token is u_t[i] = 1 - P_i1 after t layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

Values = Sequence | np.ndarray
"""One number for each layer."""


def log_survival_bound(lambda_: Values) -> Float[np.ndarray, "T"]:
    """Return log Π_{s ≤ t} (1 - λ_s) for every depth t: a lower bound on log P_ii.

    It stays finite as T grows exactly when Σλ_t does (and no λ_t is 1).

    Source: residual-aware paper, theorem 5.5 (i).

    >>> np.exp(log_survival_bound([0.5, 0.5])).tolist()
    [0.5, 0.25]
    """
    with np.errstate(divide="ignore"):
        return np.cumsum(np.log1p(-np.asarray(lambda_, dtype=float)))


def log_collapse_bound(lambda_: Values, epsilon: float) -> Float[np.ndarray, "T"]:
    """Return log Π_{s ≤ t} (1 - ε λ_s) for every depth t: an upper bound on the log mass off the first token.

    Source: residual-aware paper, theorem 5.5 (ii); since log(1 - x) ≤ -x it implies the rate exp(-ε Σλ).

    >>> np.exp(log_collapse_bound([1.0, 1.0], 0.5)).tolist()
    [0.5, 0.25]
    """
    with np.errstate(divide="ignore"):
        return np.cumsum(np.log1p(-epsilon * np.asarray(lambda_, dtype=float)))


def log_mass_off_first(A: Float[np.ndarray, "n n"], lambda_: Values, *, row: int = -1) -> Float[np.ndarray, "T"]:
    """Return log Σ_{j ≥ 2} P_ij after every depth, for one causal kernel A in all layers.

    Under a causal mask the positions after the first are closed: the mass there is carried by the lower right
    block alone and is renormalised at each layer, so that it may fall far below the smallest double.

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> np.exp(log_mass_off_first(A, [1.0, 1.0])).tolist()
    [0.5, 0.25]
    """
    later = np.eye(len(A))[row, 1:]
    kept, block = np.zeros(len(lambda_)), A[1:, 1:]
    for t, mixing in enumerate(np.asarray(lambda_).tolist()):
        later = (1 - mixing) * later + mixing * (later @ block)
        kept[t] = mass = np.add.reduce(later)
        if mass == 0:
            break
        later /= mass
    with np.errstate(divide="ignore"):
        return np.log(kept).cumsum()


def masses_off_first(kernels: Float[np.ndarray, "T n n"], lambda_: Values) -> Float[np.ndarray, "T later"]:
    """Return the mass off the first token in rows 2..n of R_t … R_1, for every depth t = 1..T.

    Column 1 feeds nothing to later columns, so the masses of all rows follow one recursion through rows and columns
    2..n. Where all layers share a kernel and masses become tiny, :func:`log_mass_off_first` goes further.

    >>> masses_off_first(np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2), [1.0, 0.5]).tolist()
    [[0.5], [0.375]]
    """
    T, n, _ = kernels.shape
    mass, history = np.ones(n - 1), np.empty((T, n - 1))
    for t, mixing in enumerate(lambda_):
        mass = (1 - mixing) * mass + mixing * (kernels[t, 1:, 1:] @ mass)
        history[t] = mass
    return history


def state_bound(x0: float, value_norms: Values, lambda_: Values) -> float:
    """Return C = x0 Π_t (1 + λ_t (‖W_t‖ - 1)₊): no token's state ever exceeds this norm.

    A row-stochastic kernel does not raise the largest row norm, so that layer t multiplies it by at most
    1 - λ_t + λ_t ‖W_t‖. Bounded over all depths when Σ λ_t (‖W_t‖ - 1)₊ is finite.

    Source: residual-aware paper, lemma 5.4 (i), for the normalised update x ← (1 - λ) x + λ A x W.

    >>> state_bound(2.0, [1.5, 0.5], [0.5, 0.5])
    2.5
    """
    return float(x0 * np.prod(1 + np.asarray(lambda_) * np.maximum(np.asarray(value_norms) - 1, 0)))


def attention_floor(n: int, logit_bound: float, position_range: float = 0.0) -> float:
    """Return ε = exp(-(2 B + b)) / n: no allowed attention weight is ever smaller.

    B ≥ |content logit|, by Cauchy-Schwarz C² ‖W_QK‖ / √d with C from :func:`state_bound`; b is the largest difference
    of position logits within a row.

    Source: residual-aware paper, lemma 5.4 (ii).

    >>> attention_floor(4, 0.0)
    0.25
    """
    return float(np.exp(-(2 * logit_bound + position_range)) / n)


def sharp_attention_floor(n: int, logit_bound: float, position_range: float = 0.0) -> float:
    """Return 1 / (1 + (n - 1) exp(2 B + b)): the smallest weight that logits of this range can give to one of n keys.

    :func:`attention_floor` is smaller by less than a factor n / (n - 1).

    Source: ours; attained where one key has the lowest logit and all others have the highest.

    >>> round(sharp_attention_floor(2, 0.5 * np.log(3.0)), 12)
    0.25
    """
    if n == 1:
        return 1.0
    return float(np.exp(-np.logaddexp(0.0, np.log(n - 1) + 2 * logit_bound + position_range)))


def stay_weights(kernels: Float[np.ndarray, "T n n"], lambda_: Values) -> Float[np.ndarray, "T later"]:
    """Return R_t[i, i] = 1 - λ_t (1 - A_t[i, i]) of the tokens 2..n in every layer.

    >>> stay_weights(np.array([[[1.0, 0.0], [0.5, 0.5]]]), [0.5]).tolist()
    [[0.75]]
    """
    own = np.diagonal(kernels, axis1=1, axis2=2)[:, 1:]
    return np.asarray(1 - np.asarray(lambda_)[:, None] * (1 - own))


def stage_bound(stays: Float[np.ndarray, "T later"]) -> Float[np.ndarray, "T later"]:
    """Return the least Σ_{j=2..i} Π_{S_{j-1} < t ≤ S_j} R_t[j, j] over 0 = S_1 ≤ … ≤ S_i = T, for each depth T and i.

    It bounds the mass off the first token of every causal rollout with these diagonals: layers are divided into stages,
    and in stage j token j draws on tokens that have collapsed already. Never above 1.

    ``best[s]`` is the least sum for the tokens before i with their stages ended at s ≤ t, ``product[s]`` the stage of i
    from s to t: T² numbers for each token.

    Source: ours, the induction of the dichotomy made quantitative.

    >>> stage_bound(np.array([[0.5, 0.5]] * 2)).tolist()
    [[0.5, 1.0], [0.25, 1.0]]
    >>> stage_bound(np.array([[0.1, 1.0], [1.0, 0.1]])).round(3).tolist()
    [[0.1, 1.0], [0.1, 0.2]]
    """
    T, later = stays.shape
    bound, best = np.empty((T, later)), np.concatenate([[0.0], np.full(T, np.inf)])
    for i in range(later):
        product, reached = np.ones(T + 1), np.ones(T + 1)
        for t in range(T):
            product[: t + 1] *= stays[t, i]
            reached[t + 1] = min(1.0, float((best[: t + 1] + product[: t + 1]).min()))
        bound[:, i] = reached[1:]
        best = reached
    return bound


def masses_of_moves(
    leaves: Float[np.ndarray, "T cases later"], jumps: Float[np.ndarray, "cases later later"]
) -> Float[np.ndarray, "cases later"]:
    """Return u_T of many rollouts at once, in each of which a token always leaves itself for the same keys.

    >>> masses_of_moves(np.full((2, 1, 2), 0.5), np.array([[[0.0, 0.0], [1.0, 0.0]]])).tolist()
    [[0.25, 0.75]]
    """
    u = np.ones(leaves.shape[1:])
    for leave in leaves:
        u = (1 - leave) * u + leave * (jumps @ u[..., None])[..., 0]
    return u


def stairs(delta: float, n: int) -> Float[np.ndarray, "n n"]:
    """Return the kernel that moves one place down with probability δ and stays otherwise.

    Of all causal kernels with 1 - A[i, i] ≥ δ for i ≥ 2 it leaves most mass off the first token, at every depth.

    Source: ours, the equality case of the count of moves.

    >>> stairs(0.25, 3)
    array([[1.  , 0.  , 0.  ],
           [0.25, 0.75, 0.  ],
           [0.  , 0.25, 0.75]])
    """
    A = np.diag(np.full(n, 1 - delta)) + np.diag(np.full(n - 1, delta), -1)
    A[0, 0] = 1.0
    return A


def direct(epsilon: float, n: int) -> Float[np.ndarray, "n n"]:
    """Return the kernel that moves to the first token with probability ε and stays otherwise.

    It attains the bound Π (1 - ε λ_t) on the mass off the first token.

    Source: the equality case of theorem 5.5 (ii) of the residual-aware paper.

    >>> direct(0.25, 3)
    array([[1.  , 0.  , 0.  ],
           [0.25, 0.75, 0.  ],
           [0.25, 0.  , 0.75]])
    """
    A = (1 - epsilon) * np.eye(n)
    A[:, 0] += epsilon
    return A

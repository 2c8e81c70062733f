"""Infinite depth: bounds on what survives on a token, and on what is left off the first one.

Depths here go to 10⁵ layers, where masses leave the range of a double: everything is kept as a logarithm.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers


def log_survival_bound(lambda_: Numbers) -> Float[np.ndarray, "T"]:
    """Return log Π_{s ≤ t} (1 - λ_s) for every depth t: a lower bound on log P_ii.

    It stays finite as T grows exactly when Σλ_t does (and no λ_t is 1).

    Source: residual-aware paper, theorem 5.5 (i).

    >>> np.exp(log_survival_bound([0.5, 0.5])).tolist()
    [0.5, 0.25]
    """
    with np.errstate(divide="ignore"):
        return np.cumsum(np.log1p(-errors.mixing_coefficients("lambda_", lambda_)))


def log_collapse_bound(lambda_: Numbers, epsilon: float) -> Float[np.ndarray, "T"]:
    """Return log Π_{s ≤ t} (1 - ε λ_s) for every depth t: an upper bound on the log mass off the first token.

    Parameters
    ----------
    lambda_
        Residual mixing, in [0, 1].
    epsilon
        Lower bound on the attention that every token pays to the first, in (0, 1].

    Source: residual-aware paper, theorem 5.5 (ii); since log(1 - x) ≤ -x it implies the rate exp(-ε Σλ).

    >>> np.exp(log_collapse_bound([1.0, 1.0], 0.5)).tolist()
    [0.5, 0.25]
    """
    epsilon = float(errors.finite_array("epsilon", epsilon, ndim=(0,)))
    if not 0 < epsilon <= 1:
        raise errors.invalid("epsilon", "a number in (0, 1]", epsilon)
    with np.errstate(divide="ignore"):
        return np.cumsum(np.log1p(-epsilon * errors.mixing_coefficients("lambda_", lambda_)))


def log_mass_off_first(A: Float[np.ndarray, "n n"], lambda_: Numbers, *, row: int = -1) -> Float[np.ndarray, "T"]:
    """Return log Σ_{j ≥ 2} P_ij after every depth, for one causal kernel A in all layers.

    Under a causal mask the positions after the first are closed: the mass there is carried by the lower right
    block alone and is renormalised at each layer, so that it may fall far below the smallest double.

    Raises
    ------
    ValueError
        If A is not a row-stochastic causal kernel, or λ leaves [0, 1].

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> np.exp(log_mass_off_first(A, [1.0, 1.0])).tolist()
    [0.5, 0.25]
    """
    A = errors.stochastic_kernel("A", A)
    if A.ndim != 2 or np.triu(A, 1).any():
        raise errors.invalid("A", "one causal (lower-triangular) kernel", f"shape {A.shape} with weight on later keys")
    schedule = errors.mixing_coefficients("lambda_", lambda_)
    row = errors.index("row", row, len(A))
    later = np.eye(len(A))[row, 1:]
    logs, total = np.full(schedule.size, -np.inf), 0.0
    if row == 0:
        return logs
    for t, mixing in enumerate(schedule):
        later = (1 - mixing) * later + mixing * (later @ A[1:, 1:])
        mass = later.sum()
        if mass == 0:
            break
        total += np.log(mass)
        later /= mass
        logs[t] = total
    return logs


def masses_off_first(kernels: Float[np.ndarray, "T n n"], lambda_: Numbers) -> Float[np.ndarray, "T later"]:
    """Return the mass off the first token in rows 2..n of R_t … R_1, for every depth t = 1..T.

    Parameters
    ----------
    kernels
        Causal row-stochastic kernels, first layer first.
    lambda_
        Residual mixing, T values in [0, 1].

    Raises
    ------
    ValueError
        If a kernel is not row-stochastic and causal, or λ leaves [0, 1] or has another length.

    Notes
    -----
    Column 1 feeds nothing to later columns, so the masses of all rows follow one recursion through rows and columns
    2..n. Where all layers share a kernel and masses become tiny, :func:`log_mass_off_first` goes further.

    >>> masses_off_first(np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2), [1.0, 0.5]).tolist()
    [[0.5], [0.375]]
    """
    A = errors.stochastic_kernel("kernels", kernels)
    if np.triu(A, 1).any():
        raise errors.invalid("kernels", "causal (lower-triangular) kernels", "weight on later keys")
    mass, history = np.ones(A.shape[-1] - 1), np.empty((len(A), A.shape[-1] - 1))
    for t, mixing in enumerate(errors.mixing_coefficients("lambda_", lambda_, T=len(A))):
        mass = (1 - mixing) * mass + mixing * (A[t, 1:, 1:] @ mass)
        history[t] = mass
    return history


def state_bound(x0: float, value_norms: Numbers, lambda_: Numbers) -> float:
    """Return C = x0 Π_t (1 + λ_t (‖W_t‖ - 1)₊): no token's state ever exceeds this norm.

    Parameters
    ----------
    x0
        Largest norm of an input token's state.
    value_norms
        Operator norms ‖W_t‖ of the value maps, one for each layer.
    lambda_
        Residual mixing in [0, 1].

    Notes
    -----
    A row-stochastic kernel does not raise the largest row norm, so that layer t multiplies it by at most
    1 - λ_t + λ_t ‖W_t‖. Bounded over all depths when Σ λ_t (‖W_t‖ - 1)₊ is finite.

    Source: residual-aware paper, lemma 5.4 (i), for the normalised update x ← (1 - λ) x + λ A x W.

    >>> state_bound(2.0, [1.5, 0.5], [0.5, 0.5])
    2.5
    """
    norms = errors.finite_array("value_norms", value_norms, ndim=(1,))
    schedule = errors.mixing_coefficients("lambda_", lambda_, T=norms.size)
    return float(x0 * np.prod(1 + schedule * np.maximum(norms - 1, 0)))


def attention_floor(n: int, logit_bound: float, position_range: float = 0.0) -> float:
    """Return ε = exp(-(2 B + b)) / n: no allowed attention weight is ever smaller.

    Parameters
    ----------
    n
        Number of tokens.
    logit_bound
        B ≥ |content logit|: by Cauchy-Schwarz C² ‖W_QK‖ / √d with C from :func:`state_bound`.
    position_range
        b: the largest difference of position logits within a row.

    Source: residual-aware paper, lemma 5.4 (ii).

    >>> attention_floor(4, 0.0)
    0.25
    """
    return float(np.exp(-(2 * logit_bound + position_range)) / errors.positive_integer("n", n))


def sharp_attention_floor(n: int, logit_bound: float, position_range: float = 0.0) -> float:
    """Return 1 / (1 + (n - 1) exp(2 B + b)): the smallest weight that logits of this range can give to one of n keys.

    Arguments as in :func:`attention_floor`, which is smaller by less than a factor n / (n - 1).

    Source: ours; attained where one key has the lowest logit and all others have the highest.

    >>> round(sharp_attention_floor(2, 0.5 * np.log(3.0)), 12)
    0.25
    """
    others = errors.positive_integer("n", n) - 1
    return float(np.exp(-np.logaddexp(0.0, np.log(others) + 2 * logit_bound + position_range))) if others else 1.0

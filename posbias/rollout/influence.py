"""Rollout: the product P = R_T … R_1 of residual kernels, and the rows of it that matter.

Kernels come as :class:`~posbias.rollout.structured.StructuredKernels`, as
:class:`~posbias.rollout.biased.BiasedKernels`, as :class:`~posbias.rollout.token_bins.BinKernels`, or as an array
(n, n), the same in every layer, or (T, n, n). A row of P is carried through the layers from the last to the first; the
matrix P is formed only by :func:`rollout_matrix`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.biased import BiasedKernels
from posbias.rollout.clock import hop_distribution
from posbias.rollout.structured import StructuredKernels
from posbias.rollout.token_bins import BinKernels

Kernels = StructuredKernels | BiasedKernels | BinKernels | np.ndarray
NEGLIGIBLE = 1e-17  # total probability of the hop counts that are left out


def influence_profile(
    kernels: Kernels | Sequence, lambda_: Numbers, n: int | None = None, *, row: int = -1
) -> Float[np.ndarray, "n"]:
    """Return one row of P = R_T … R_1, R_t = (1 - λ_t) I + λ_t A_t: the influence profile.

    It is a probability vector over input positions.

    Parameters
    ----------
    kernels
        Structured kernels (then ``n`` is needed), one row-stochastic (n, n) kernel for all layers,
        or a stack (T, n, n), first layer first.
    lambda_
        Residual mixing, T values in [0, 1], first layer first.
    n
        Number of tokens; taken from the array when kernels are dense.
    row
        The position whose sources are asked for; the last one unless given.

    Raises
    ------
    ValueError
        For kernels that are not row-stochastic, λ outside [0, 1] or of another length, n < 1.

    Notes
    -----
    The path is chosen by the kernels: structured ones never form an n×n matrix, and where all layers share
    one kernel the profile is Σ_k w_k e A^k with w the distribution of the number of hops, which needs only
    the hops that have weight.

    Source: residual-aware paper, section 3 ("Cumulative rollout").

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> influence_profile(A, [0.2, 0.4])
    array([0.28, 0.72])
    """
    kernels, lambda_, n = _checked(kernels, lambda_, n)
    v = _unit(n, row)
    if _shared(kernels):
        weights = hop_distribution(lambda_)
        keep = int(np.searchsorted(np.cumsum(weights[::-1]), NEGLIGIBLE))
        total = np.zeros(n)
        for k, w in enumerate(weights[: weights.size - keep]):
            v = _pull(kernels, v, 0) if k else v
            total += w * v
        return total
    for t in range(lambda_.size - 1, -1, -1):
        v = _through(kernels, v, lambda_, t)
    return v


def influence_history(
    kernels: Kernels | Sequence, lambda_: Numbers, n: int | None = None, *, row: int = -1
) -> Float[np.ndarray, "depths n"]:
    """Return the row of P_t = R_t … R_1 for every depth t = 0..T; depth 0 is the row itself.

    Arguments and errors as in :func:`influence_profile`. Costs T²/2 products unless all layers share a kernel.

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> influence_history(A, [0.2, 0.4])
    array([[0.  , 1.  ],
           [0.1 , 0.9 ],
           [0.28, 0.72]])
    """
    kernels, lambda_, n = _checked(kernels, lambda_, n)
    history = np.empty((lambda_.size + 1, n))
    history[0] = _unit(n, row)
    for depth in range(1, lambda_.size + 1):
        if _shared(kernels):  # equal kernels commute, so that the new layer may act first
            history[depth] = _through(kernels, history[depth - 1], lambda_, depth - 1)
            continue
        v = history[0]
        for t in range(depth - 1, -1, -1):
            v = _through(kernels, v, lambda_, t)
        history[depth] = v
    return history


def influence_by_hops(
    kernels: Kernels | Sequence, lambda_: Numbers, n: int | None = None, *, row: int = -1
) -> Float[np.ndarray, "hops n"]:
    """Return the row of P split by the number of attention hops: its k-th part is the coefficient of z^k.

    The coefficient is that of ∏_t ((1 - λ_t) I + z λ_t A_t), so that the parts add up to the influence profile,
    and the k-th one sums to the probability of k hops (:func:`~posbias.rollout.clock.hop_distribution`).

    Arguments and errors as in :func:`influence_profile`. Costs T²/2 products.

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> influence_by_hops(A, [0.2, 0.4])
    array([[0.  , 0.48],
           [0.22, 0.22],
           [0.06, 0.02]])
    """
    kernels, lambda_, n = _checked(kernels, lambda_, n)
    parts = np.zeros((lambda_.size + 1, n))
    parts[0] = _unit(n, row)
    for t in range(lambda_.size - 1, -1, -1):
        for k in range(lambda_.size - t, 0, -1):
            parts[k] = (1 - lambda_[t]) * parts[k] + lambda_[t] * _pull(kernels, parts[k - 1], t)
        parts[0] *= 1 - lambda_[t]
    return parts


def rollout_matrix(kernels: Kernels | Sequence, lambda_: Numbers, n: int | None = None) -> Float[np.ndarray, "n n"]:
    """Return the whole matrix P = R_T … R_1 by dense products: O(T n³) work, the oracle of the rest.

    Arguments and errors as in :func:`influence_profile`.
    """
    kernels, lambda_, n = _checked(kernels, lambda_, n)
    P = np.eye(n)
    for t, mixing in enumerate(lambda_):
        A = kernels[min(t, len(kernels) - 1)] if isinstance(kernels, np.ndarray) else kernels.dense(t, n)
        P = (1 - mixing) * P + mixing * (A @ P)
    return P


def rollout_history(kernels: Float[np.ndarray, "T n n"], lambda_: Numbers) -> Float[np.ndarray, "depths n n"]:
    """Return P_t = R_t … R_1 for every depth t = 0..T, from one kernel for each layer; depth 0 is the identity.

    Arguments and errors as in :func:`influence_profile`. Holds (T + 1) n² numbers.

    >>> A = np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    >>> rollout_history(A, [1.0, 1.0])[:, 1].tolist()
    [[0.0, 1.0], [0.5, 0.5], [0.75, 0.25]]
    """
    A = errors.stochastic_kernel("kernels", kernels)
    if A.ndim != 3:
        raise errors.invalid("kernels", "a stack (T, n, n), one kernel for each layer", f"shape {A.shape}")
    schedule = errors.mixing_coefficients("lambda_", lambda_, T=len(A))
    history = np.empty((len(A) + 1, *A.shape[1:]))
    history[0] = np.eye(A.shape[-1])
    for t, mixing in enumerate(schedule):
        history[t + 1] = (1 - mixing) * history[t] + mixing * (A[t] @ history[t])
    return history


def _checked(kernels: Kernels | Sequence, lambda_: Numbers, n: int | None) -> tuple[Kernels, np.ndarray, int]:
    """Return kernels (dense ones as a stack), schedule and n after checking that they fit together."""
    if isinstance(kernels, BinKernels):
        if n not in (None, kernels.bins.n):
            raise errors.invalid("n", f"{kernels.bins.n}, the size of the kernels", n)
        return kernels, errors.mixing_coefficients("lambda_", lambda_, T=kernels.T), kernels.bins.n
    if isinstance(kernels, StructuredKernels | BiasedKernels):
        return kernels, errors.mixing_coefficients("lambda_", lambda_, T=kernels.T), errors.positive_integer("n", n)
    A = errors.stochastic_kernel("kernels", kernels)
    A = A[None] if A.ndim == 2 else A
    lambda_ = errors.mixing_coefficients("lambda_", lambda_, T=None if len(A) == 1 else len(A))
    if n is not None and n != A.shape[-1]:
        raise errors.invalid("n", f"{A.shape[-1]}, the size of the kernels", n)
    return A, lambda_, A.shape[-1]


def _shared(kernels: Kernels) -> bool:
    return len(kernels) == 1 if isinstance(kernels, np.ndarray) else kernels.same_in_every_layer


def _unit(n: int, row: int) -> np.ndarray:
    v = np.zeros(n)
    v[errors.index("row", row, n)] = 1.0
    return v


def _pull(kernels: Kernels, v: np.ndarray, t: int) -> np.ndarray:
    if isinstance(kernels, np.ndarray):
        return v @ kernels[min(t, len(kernels) - 1)]
    return kernels.pull(v, t)


def _through(kernels: Kernels, v: np.ndarray, lambda_: np.ndarray, t: int) -> np.ndarray:
    """Return v R_t."""
    return v if lambda_[t] == 0 else (1 - lambda_[t]) * v + lambda_[t] * _pull(kernels, v, t)

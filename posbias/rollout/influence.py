"""Rollout: the product P = R_T … R_1 of residual kernels, and the rows of it that matter, without the whole matrix."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.clock import hop_distribution
from posbias.rollout.layers import Layers, WrittenOut

Kernels = Layers | np.ndarray
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

    Notes
    -----
    Structured kernels never form an n×n matrix. Where all layers share one kernel the profile is Σ_k w_k e A^k with w
    the distribution of the number of hops, which needs only the hops that have weight.

    Source: residual-aware paper, section 3 ("Cumulative rollout").

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> influence_profile(A, [0.2, 0.4])
    array([0.28, 0.72])
    """
    layers, lambda_, n = _checked(kernels, lambda_, n)
    v = _unit(n, row)
    if layers.same_in_every_layer:
        A = layers.kernel(0, n)
        weights = hop_distribution(lambda_)
        keep = int(np.searchsorted(np.cumsum(weights[::-1]), NEGLIGIBLE))
        total = np.zeros(n)
        for k, w in enumerate(weights[: weights.size - keep]):
            v = A.rmatvec(v) if k else v
            total += w * v
        return total
    for t in reversed(np.flatnonzero(lambda_)):
        v = _through(layers.kernel(t, n), v, lambda_[t])
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
    layers, lambda_, n = _checked(kernels, lambda_, n)
    history = np.empty((lambda_.size + 1, n))
    history[0] = _unit(n, row)
    A = [layers.kernel(t, n) for t in range(1 if layers.same_in_every_layer else lambda_.size)]
    for depth in range(1, lambda_.size + 1):
        if layers.same_in_every_layer:  # equal kernels commute, so that the new layer may act first
            history[depth] = _through(A[0], history[depth - 1], lambda_[depth - 1])
            continue
        v = history[0]
        for t in range(depth - 1, -1, -1):
            v = _through(A[t], v, lambda_[t])
        history[depth] = v
    return history


def rollout_matrix(kernels: Kernels | Sequence, lambda_: Numbers, n: int | None = None) -> Float[np.ndarray, "n n"]:
    """Return the whole matrix P = R_T … R_1 by dense products: O(T n³) work, the oracle of the rest.

    Arguments and errors as in :func:`influence_profile`.
    """
    layers, lambda_, n = _checked(kernels, lambda_, n)
    P = np.eye(n)
    for t, mixing in enumerate(lambda_):
        P = (1 - mixing) * P + mixing * (layers.dense(t, n) @ P)
    return P


def _checked(kernels: Kernels | Sequence, lambda_: Numbers, n: int | None) -> tuple[Layers, np.ndarray, int]:
    """Return kernels, schedule and n after checking that they fit together."""
    layers = kernels if isinstance(kernels, Layers) else WrittenOut(kernels)
    return layers, errors.mixing_coefficients("lambda_", lambda_, T=layers.T), layers.tokens(n)


def _unit(n: int, row: int) -> np.ndarray:
    v = np.zeros(n)
    v[errors.index("row", row, n)] = 1.0
    return v


def _through(A: Any, v: np.ndarray, mixing: float) -> np.ndarray:
    """Return v R."""
    return np.asarray((1 - mixing) * v + mixing * A.rmatvec(v)) if mixing else v

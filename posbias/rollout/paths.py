"""How the paths of a rollout combine: as sizes, as vectors without order, or with a loss at every hop.

A rollout adds the weights of all paths from one position to another. In a network each path carries a vector. If
the vectors of K paths of one size s point the same way, their sum has size K s; if their directions are unrelated,
√K s. The functions here split a rollout by attention hops and combine the paths of one hop count in either way.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers


def paths_by_hops(
    A: Float[np.ndarray, "T n n"], lambda_: Numbers, power: float = 2.0, *, row: int = -1
) -> Float[np.ndarray, "hops n"]:
    """Return (Σ w^p)^{1/p} over the paths with k hops from the row to each position, for k = 0..T.

    Parameters
    ----------
    A
        Attention kernels, first layer first.
    lambda_
        Residual mixing, T values in [0, 1]. The weight w of a path is its product of λ_t A_t[i, j] and 1 - λ_t.
    power
        p ≥ 1. 1 adds sizes and gives :func:`~posbias.rollout.influence.influence_by_hops`; 2 adds squares, as the
        expected squared size of a sum of vectors with unrelated directions does.
    row
        The position whose sources are asked for.

    Raises
    ------
    ValueError
        For kernels that are not row-stochastic, λ outside [0, 1] or not T of them, and a power below 1.

    Source: this project.

    >>> A = np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    >>> paths_by_hops(A, [0.5, 0.5]).round(3)
    array([[0.   , 0.25 ],
           [0.177, 0.177],
           [0.14 , 0.062]])
    """
    A = errors.stochastic_kernel("A", A)
    lambda_ = errors.mixing_coefficients("lambda_", lambda_, T=len(A))
    if not np.isfinite(power) or power < 1:
        raise errors.invalid("power", "a number of at least 1", power)
    T, n = A.shape[:2]
    parts = np.zeros((T + 1, n))
    parts[0, errors.index("row", row, n)] = 1.0
    for t in range(T - 1, -1, -1):
        stay, hop, kernel = (1 - lambda_[t]) ** power, lambda_[t] ** power, A[t] ** power
        moved = parts[: T - t] @ kernel
        parts *= stay
        parts[1 : T - t + 1] += hop * moved
    return parts ** (1 / power)


def recombined(weights: Float[np.ndarray, "hops"], parts: Float[np.ndarray, "hops n"]) -> Float[np.ndarray, "n"]:
    """Return p = Σ_k w_k · parts_k / Σ_j parts_kj: each hop's shape with a weight of its own, normalised.

    >>> recombined(np.array([1.0, 1.0]), np.array([[0.0, 2.0], [3.0, 1.0]]))
    array([0.375, 0.625])
    """
    totals = parts.sum(1)
    there = totals > 0
    p = (weights[there] / totals[there]) @ parts[there]
    return p / p.sum()


def damped_profile(parts: Float[np.ndarray, "hops n"], rho: float) -> Float[np.ndarray, "n"]:
    """Return p ∝ P_0 + P_1 + Σ_{k ≥ 2} ρ^{k-1} P_k: a rollout in which hops beyond the first lose coherence.

    Source: this project. Contributions along paths of several attention hops are vectors that partly cancel, where
    a rollout adds their sizes.

    >>> damped_profile(np.array([[0.0, 0.5], [0.25, 0.0], [0.25, 0.0]]), 0.0).round(3).tolist()
    [0.333, 0.667]
    """
    if not np.isfinite(rho) or rho < 0:
        raise errors.invalid("rho", "a number of at least 0", rho)
    weights = np.array([1.0, *(rho**k for k in range(len(parts) - 1))])
    p = weights @ parts
    return p / p.sum()

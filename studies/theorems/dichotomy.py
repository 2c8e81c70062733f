"""When a causal rollout collapses on its first token: how often each token leaves itself, and nothing else.

``later`` counts the tokens 2..n. A token *leaves* itself in layer t with weight λ_t (1 - A_t[i, i]) and *stays* with
the rest; its mass off the first token is u_t[i] = 1 - P_i1 after t layers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers


def stay_weights(kernels: Float[np.ndarray, "T n n"], lambda_: Numbers) -> Float[np.ndarray, "T later"]:
    """Return R_t[i, i] = 1 - λ_t (1 - A_t[i, i]) of the tokens 2..n in every layer.

    Raises
    ------
    ValueError
        If a kernel is not row-stochastic, or λ leaves [0, 1] or has another length.

    >>> stay_weights(np.array([[[1.0, 0.0], [0.5, 0.5]]]), [0.5]).tolist()
    [[0.75]]
    """
    A = errors.stochastic_kernel("kernels", kernels)
    schedule = errors.mixing_coefficients("lambda_", lambda_, T=len(A))
    return np.asarray(1 - schedule[:, None] * (1 - np.diagonal(A, axis1=1, axis2=2)[:, 1:]))


def stage_bound(stays: Float[np.ndarray, "T later"]) -> Float[np.ndarray, "T later"]:
    """Return the least Σ_{j=2..i} Π_{S_{j-1} < t ≤ S_j} R_t[j, j] over 0 = S_1 ≤ … ≤ S_i = T, for each depth T and i.

    It bounds the mass off the first token of every causal rollout with these diagonals: layers are divided into stages,
    and in stage j token j draws on tokens that have collapsed already. Never above 1.

    Parameters
    ----------
    stays
        R_t[i, i] of the tokens 2..n, in [0, 1].

    Raises
    ------
    ValueError
        If a number is outside [0, 1].

    Notes
    -----
    ``best[s]`` is the least sum for the tokens before i with their stages ended at s ≤ t, ``product[s]`` the stage of i
    from s to t: T² numbers for each token.

    Source: ours, the induction of the dichotomy made quantitative.

    >>> stage_bound(np.array([[0.5, 0.5]] * 2)).tolist()
    [[0.5, 1.0], [0.25, 1.0]]
    >>> stage_bound(np.array([[0.1, 1.0], [1.0, 0.1]])).round(3).tolist()
    [[0.1, 1.0], [0.1, 0.2]]
    """
    R = errors.finite_array("stays", stays, ndim=(2,))
    if (R < 0).any() or (R > 1).any():
        raise errors.invalid("stays", "weights in [0, 1]", float(R.flat[np.abs(R - 0.5).argmax()]))
    T, later = R.shape
    bound, best = np.empty((T, later)), np.concatenate([[0.0], np.full(T, np.inf)])
    for i in range(later):
        product, reached = np.ones(T + 1), np.ones(T + 1)
        for t in range(T):
            product[: t + 1] *= R[t, i]
            reached[t + 1] = min(1.0, float((best[: t + 1] + product[: t + 1]).min()))
        bound[:, i] = reached[1:]
        best = reached
    return bound


def masses_of_moves(
    leaves: Float[np.ndarray, "T cases later"], jumps: Float[np.ndarray, "cases later later"]
) -> Float[np.ndarray, "cases later"]:
    """Return u_T of many rollouts at once, in each of which a token always leaves itself for the same keys.

    Parameters
    ----------
    leaves
        λ_t (1 - A_t[i, i]) of the tokens 2..n, in [0, 1].
    jumps
        How the weight that leaves token i is divided among the earlier tokens 2..i-1; what is missing to 1 goes to the
        first token.

    Raises
    ------
    ValueError
        If a weight is outside [0, 1], or a jump does not lead to an earlier token.

    >>> masses_of_moves(np.full((2, 1, 2), 0.5), np.array([[[0.0, 0.0], [1.0, 0.0]]])).tolist()
    [[0.25, 0.75]]
    """
    moves = errors.finite_array("leaves", leaves, ndim=(3,))
    to = errors.finite_array("jumps", jumps, ndim=(3,))
    for field, values in (("leaves", moves), ("jumps", to)):
        if (values < 0).any() or (values > 1).any():
            raise errors.invalid(field, "weights in [0, 1]", float(values.flat[np.abs(values - 0.5).argmax()]))
    if np.triu(to).any() or (to.sum(axis=2) > 1 + 1e-9).any():
        raise errors.invalid("jumps", "weights on earlier tokens that sum to at most 1", float(to.sum(axis=2).max()))
    u = np.ones(moves.shape[1:])
    for leave in moves:
        u = (1 - leave) * u + leave * (to @ u[..., None])[..., 0]
    return u

"""How large and how small a rollout can be when every kernel lies between two: a bound that never exceeds 1."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors


def interval_rollouts(
    low: Float[np.ndarray, "T n n"], high: Float[np.ndarray, "T n n"]
) -> tuple[Float[np.ndarray, "T n n"], Float[np.ndarray, "T n n"]]:
    """Return bounds on P_T[i, j] = (A_T … A_1)[i, j] for T = 1, 2, …, if low_t ≤ A_t ≤ high_t and rows sum to 1.

    With p_t the column j of the bound, p_{t+1}[i] is the largest (or smallest) Σ_k a_k p_t[k] over all rows a between
    low[i] and high[i] that sum to 1: a linear program that filling the largest values first solves. By induction it
    bounds every product, and kernels between the two attain it, others for every pair.

    Parameters
    ----------
    low, high
        Entrywise bounds on each layer's kernel, as from
        :func:`studies.theorems.logit_intervals.attention_intervals`.

    Raises
    ------
    ValueError
        If in some layer no kernel lies between them.

    Source: ours; the greedy step is Dantzig's for the fractional knapsack.

    >>> low, high = np.array([[1.0, 0.0], [0.3, 0.3]]), np.array([[1.0, 0.0], [0.7, 0.7]])
    >>> [x[1, 1].round(3).tolist() for x in interval_rollouts(np.stack([low, low]), np.stack([high, high]))]
    [[0.51, 0.09], [0.91, 0.49]]
    """
    low, high = (errors.finite_array(name, x, ndim=(3,)) for name, x in (("low", low), ("high", high)))
    spare = 1 - low.sum(2)
    if (low > high * (1 + 1e-12)).any() or (spare < -1e-9).any() or (high.sum(2) < 1 - 1e-9).any():
        raise errors.invalid("low, high", "bounds with a kernel between them in every layer", "bounds without")
    room = np.maximum(high - low, 0)
    least, most = np.empty((2, *low.shape))
    for j in range(low.shape[1]):
        small = large = np.eye(low.shape[1])[j]
        for t, layer in enumerate(zip(low, room, spare, strict=True)):
            small, large = _extreme(*layer, small, 1), _extreme(*layer, large, -1)
            least[t, :, j], most[t, :, j] = small, large
    return least, most


def _extreme(low: np.ndarray, room: np.ndarray, spare: np.ndarray, values: np.ndarray, sign: int) -> np.ndarray:
    """Return the smallest (sign 1) or largest (-1) Σ_k a_k values_k for every row."""
    order = np.argsort(sign * values, kind="stable")
    filled = np.cumsum(room[:, order], axis=1)
    taken = np.clip(np.minimum(filled, spare[:, None]), 0, None)
    extra = np.diff(taken, axis=1, prepend=0.0)
    return np.asarray(low @ values + extra @ values[order])

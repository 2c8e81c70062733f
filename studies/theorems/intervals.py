"""Attention and rollouts between two kernels: what can be when each logit lies in an interval set by its distance.

The denominator has all keys in it, so that the upper bound stays below 1, and both bounds are attained.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from posbias.errors import Numbers


def distances(n: int) -> Int[np.ndarray, "n n"]:
    """Return x = i - j for every query i and key j; negative for later keys.

    >>> distances(2)
    array([[ 0, -1],
           [ 1,  0]])
    """
    return np.subtract.outer(np.arange(n), np.arange(n))


def pair_angles(
    q: Float[np.ndarray, "*cases pairs 2"], k: Float[np.ndarray, "*cases pairs 2"]
) -> tuple[Float[np.ndarray, "*cases"], Float[np.ndarray, "*cases"]]:
    """Return (Σ_l φ_l²)^½ and its bound (π/2) (β_q β_k)^(-½) φ, in radians.

    Source: Wu et al. 2025, lemma I.3 and assumption A3.

    >>> q, k = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> [round(float(angle), 3) for angle in pair_angles(q, k)]
    [1.571, 2.326]
    """
    norm_q, norm_k = np.linalg.norm(q, axis=-1), np.linalg.norm(k, axis=-1)
    whole_q, whole_k = np.linalg.norm(norm_q, axis=-1), np.linalg.norm(norm_k, axis=-1)
    shares = norm_q.min(axis=-1) / whole_q * (norm_k.min(axis=-1) / whole_k)
    whole = np.arccos(np.clip((q * k).sum(axis=(-2, -1)) / whole_q / whole_k, -1, 1))
    each = np.arccos(np.clip((q * k).sum(axis=-1) / norm_q / norm_k, -1, 1))
    return np.asarray(np.linalg.norm(each, axis=-1)), np.asarray(np.pi / 2 * whole / np.sqrt(shares))


def cosine_range(low: Numbers, high: Numbers) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Return the smallest and the largest cosine of the angles from ``low`` to ``high``.

    >>> [x.round(3).tolist() for x in cosine_range([0.0, 3.0], [1.0, 6.5])]
    [[0.54, -1.0], [1.0, 1.0]]
    """
    low, high = np.asarray(low), np.asarray(high)
    ends, full = (np.cos(low), np.cos(high)), 2 * np.pi
    whole = np.ceil(low / full) * full <= high
    half = np.ceil((low - np.pi) / full) * full + np.pi <= high
    return np.where(half, -1.0, np.minimum(*ends)), np.where(whole, 1.0, np.maximum(*ends))


def rope_logit_intervals(
    n: int,
    theta: Float[np.ndarray, "pairs"],
    smallest: Float[np.ndarray, "pairs"],
    largest: Float[np.ndarray, "pairs"],
    phi: Float[np.ndarray, "pairs"],
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return L(x) ≤ logit ≤ U(x) at distances 0..n-1 for RoPE: sums over pairs of features of g cos ψ.

    ψ_l lies within φ_l of xθ_l; g_l is the product of the norms of query and key in pair l. No condition on the angles
    is needed: the range of the cosine over an interval is known whatever the interval.

    Source: ours, for lemmas 4.6 and I.1 of Wu et al. 2025.

    >>> one = np.ones(1)
    >>> [x.round(3).tolist() for x in rope_logit_intervals(2, 0.5 * one, one, 2 * one, 0.1 * one)]
    [[0.995, 0.825], [2.0, 1.842]]
    """
    turned = np.arange(n)[:, None] * theta
    least, most = cosine_range(turned - phi, turned + phi)
    low = np.where(least < 0, largest, smallest) * least
    high = np.where(most < 0, smallest, largest) * most
    return low.sum(1), high.sum(1)


def pair_ranges(
    q: Float[np.ndarray, "*layers n d"], k: Float[np.ndarray, "*layers n d"]
) -> tuple[Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
    """Return smallest and largest g_l and largest φ_l of queries and keys: what :func:`rope_logit_intervals` wants.

    Leading axes (layers) are covered together, φ over keys j ≤ i. A softmax temperature goes into q.

    >>> [x.round(2).tolist() for x in pair_ranges(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]]))]
    [[2.0], [2.0], [1.57]]
    """
    pairs_q, pairs_k = (x.reshape(*x.shape[:-1], -1, 2) for x in (q, k))
    norm_q, norm_k = (np.linalg.norm(x, axis=-1) for x in (pairs_q, pairs_k))
    seen = np.tri(q.shape[-2], dtype=bool)
    g = np.einsum("...il,...jl->...ijl", norm_q, norm_k)[..., seen, :]
    inner = np.einsum("...ild,...jld->...ijl", pairs_q, pairs_k)[..., seen, :]
    phi = np.arccos(np.clip(inner / g, -1, 1))
    over = tuple(range(g.ndim - 1))
    return g.min(over), g.max(over), phi.max(over)


def extreme_layer(
    n: int,
    theta: Float[np.ndarray, "pairs"],
    smallest: Float[np.ndarray, "pairs"],
    largest: Float[np.ndarray, "pairs"],
    phi: Float[np.ndarray, "pairs"],
    key: int,
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
    """Return queries and keys, before rotation, with which the last query attends to one key as much as it can.

    The key's pairs turn towards the query by up to φ_l and have the larger product of norms (the smaller where the
    cosine is negative); all other keys turn away.

    >>> Q, K = extreme_layer(2, np.ones(1), np.ones(1), 2 * np.ones(1), np.array([0.5]), 0)
    >>> np.angle(K[:, 0] + 1j * K[:, 1]).round(3).tolist(), np.linalg.norm(K, axis=1).round(3).tolist()
    ([0.5, -0.5], [2.0, 1.0])
    """
    turned = np.arange(n)[::-1, None] * np.asarray(theta)
    angle, norm = -np.broadcast_to(phi, turned.shape).copy(), np.empty(turned.shape)
    angle[key] = np.minimum(phi, turned[key])
    cosine = np.cos(turned - angle)
    norm[:] = np.where(cosine < 0, largest, smallest)
    norm[key] = np.where(cosine[key] < 0, smallest, largest)
    queries = np.tile([1.0, 0.0], (n, turned.shape[1]))
    keys = np.stack([norm * np.cos(angle), norm * np.sin(angle)], axis=-1)
    return queries, keys.reshape(n, -1)


def attention_intervals(
    low: Float[np.ndarray, "n"], high: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"]]:
    """Return the smallest and the largest A[i, j] of a causal layer whose logits at distance y lie in [L(y), U(y)].

    With x = i - j and y over the distances 0..i-1 of all keys of query i (counted from 1),

        1 / (1 + Σ_{y≠x} e^(U(y) - L(x))) ≤ A[i, j] ≤ 1 / (1 + Σ_{y≠x} e^(L(y) - U(x))).

    Each bound is attained, by logits at the ends of their intervals, and the upper one is below 1 but for the first
    query.

    Source: ours.

    >>> [x.round(3).tolist() for x in attention_intervals(np.zeros(2), np.log([2.0, 2.0]))]
    [[[1.0, 0.0], [0.333, 0.333]], [[1.0, 0.0], [0.667, 0.667]]]
    """
    x = distances(low.size)
    seen, top = x >= 0, high.max()
    bottom, upper = np.exp(low - top), np.exp(high - top)

    def share(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return e^one(x) over itself plus the others' e^other(y), y ≠ x."""
        rest = np.where(seen, np.cumsum(other)[:, None] - other[x * seen], 0)
        return np.where(seen, one[x * seen] / (one[x * seen] + np.maximum(rest, 0)), 0)

    return share(bottom, upper), share(upper, bottom)


def interval_rollouts(
    low: Float[np.ndarray, "T n n"], high: Float[np.ndarray, "T n n"]
) -> tuple[Float[np.ndarray, "T n n"], Float[np.ndarray, "T n n"]]:
    """Return bounds on P_T[i, j] = (A_T … A_1)[i, j] for T = 1, 2, …, if low_t ≤ A_t ≤ high_t and rows sum to 1.

    With p_t the column j of the bound, p_{t+1}[i] is the largest (or smallest) Σ_k a_k p_t[k] over all rows a between
    low[i] and high[i] that sum to 1: a linear program that filling the largest values first solves. By induction it
    bounds every product, and kernels between the two attain it, others for every pair.

    Source: ours; the greedy step is Dantzig's for the fractional knapsack.

    >>> low, high = np.array([[1.0, 0.0], [0.3, 0.3]]), np.array([[1.0, 0.0], [0.7, 0.7]])
    >>> [x[1, 1].round(3).tolist() for x in interval_rollouts(np.stack([low, low]), np.stack([high, high]))]
    [[0.51, 0.09], [0.91, 0.49]]
    """
    spare = 1 - low.sum(2)
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

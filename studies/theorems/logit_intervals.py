"""Attention between two kernels: what the softmax can do when each logit lies in an interval set by its distance.

The denominator has all keys in it, so that the upper bound stays below 1, and both bounds are attained.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from studies.theorems.by_distance import distances


def cosine_range(low: Numbers, high: Numbers) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Return the smallest and the largest cosine of the angles from ``low`` to ``high``.

    Parameters
    ----------
    low, high
        Ends of the intervals, in radians, low ≤ high.

    Raises
    ------
    ValueError
        If a low end is above the high one.

    >>> [x.round(3).tolist() for x in cosine_range([0.0, 3.0], [1.0, 6.5])]
    [[0.54, -1.0], [1.0, 1.0]]
    """
    a, b = (errors.finite_array(name, x, ndim=(0, 1, 2)) for name, x in (("low", low), ("high", high)))
    if (a > b).any():
        raise errors.invalid("low", "angles of at most high", "larger ones")
    ends = np.cos(a), np.cos(b)
    full = 2 * np.pi
    whole = np.ceil(a / full) * full <= b
    half = (np.ceil((a - np.pi) / full) * full + np.pi) <= b
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

    Parameters
    ----------
    n
        Tokens.
    theta
        Angles per token.
    smallest, largest
        Ends of the interval that g_l lies in, > 0.
    phi
        Largest angle between a query and a key in pair l before rotation, ≥ 0.

    Raises
    ------
    ValueError
        If a norm is not positive, an interval is empty or an angle negative.

    Source: ours, for lemmas 4.6 and I.1 of Wu et al. 2025.

    >>> one = np.ones(1)
    >>> [x.round(3).tolist() for x in rope_logit_intervals(2, 0.5 * one, one, 2 * one, 0.1 * one)]
    [[0.995, 0.825], [2.0, 1.842]]
    """
    theta, phi = (errors.finite_array(name, x, ndim=(1,)) for name, x in (("theta", theta), ("phi", phi)))
    if (np.asarray(smallest) <= 0).any() or (np.asarray(largest) < smallest).any():
        raise errors.invalid("smallest, largest", "0 < smallest ≤ largest", "others")
    if (phi < 0).any():
        raise errors.invalid("phi", "angles ≥ 0", float(phi.min()))
    turned = np.arange(errors.positive_integer("n", n))[:, None] * theta
    least, most = cosine_range(turned - phi, turned + phi)
    low = np.where(least < 0, largest, smallest) * least
    high = np.where(most < 0, smallest, largest) * most
    return low.sum(1), high.sum(1)


def pair_ranges(
    q: Float[np.ndarray, "*layers n d"], k: Float[np.ndarray, "*layers n d"]
) -> tuple[Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
    """Return smallest and largest g_l and largest φ_l of queries and keys: what :func:`rope_logit_intervals` wants.

    Parameters
    ----------
    q, k
        Queries and keys before rotation; leading axes (layers) are covered together, φ over keys j ≤ i. A softmax
        temperature goes into q.

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

    Parameters
    ----------
    n, theta, smallest, largest, phi
        As for :func:`rope_logit_intervals`; (n - 1) θ_l + φ_l ≤ π for every pair.
    key
        From 0.

    Raises
    ------
    ValueError
        If an angle can be beyond π.

    >>> Q, K = extreme_layer(2, np.ones(1), np.ones(1), 2 * np.ones(1), np.array([0.5]), 0)
    >>> np.angle(K[:, 0] + 1j * K[:, 1]).round(3).tolist(), np.linalg.norm(K, axis=1).round(3).tolist()
    ([0.5, -0.5], [2.0, 1.0])
    """
    turned = (np.arange(n)[::-1])[:, None] * np.asarray(theta)
    if (turned + phi > np.pi).any():
        raise errors.invalid("theta, phi", "(n - 1) θ + φ ≤ π for every pair", "larger angles")
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

    Parameters
    ----------
    low, high
        L and U at distances 0..n-1: :func:`rope_logit_intervals`; for a decay mask -mx and -mx + r.

    Raises
    ------
    ValueError
        If L is above U somewhere.

    Source: ours.

    >>> [x.round(3).tolist() for x in attention_intervals(np.zeros(2), np.log([2.0, 2.0]))]
    [[[1.0, 0.0], [0.333, 0.333]], [[1.0, 0.0], [0.667, 0.667]]]
    """
    low, high = (errors.finite_array(name, x, ndim=(1,)) for name, x in (("low", low), ("high", high)))
    if low.shape != high.shape or (low > high).any():
        raise errors.invalid("low, high", "as many numbers each, low ≤ high", "others")
    x = distances(low.size)
    seen, top = x >= 0, high.max()
    bottom, upper = np.exp(low - top), np.exp(high - top)

    def share(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return e^one(x) over itself plus the others' e^other(y), y ≠ x."""
        rest = np.where(seen, np.cumsum(other)[:, None] - other[x * seen], 0)
        return np.where(seen, one[x * seen] / (one[x * seen] + np.maximum(rest, 0)), 0)

    return share(bottom, upper), share(upper, bottom)

"""The most and the least influence that a key can have on a graph whose edges all have at least a given weight."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from posbias import errors


def extreme_influence(
    allowed: Bool[np.ndarray, "n n"], epsilon: float, T: int, which: Literal["largest", "smallest"] = "largest"
) -> Float[np.ndarray, "T n n"]:
    """Return max (or min) of P_t[i, j] over all kernels with at least ε on every edge, for every depth t = 1..T.

    Parameters
    ----------
    allowed
        The graph, (query, key): kernels are zero off it.
    epsilon
        Least weight of an edge, > 0 and at most one over the most keys that a query has.
    T
        Number of layers; each has a kernel of its own.
    which
        ``largest`` or ``smallest``.

    Raises
    ------
    ValueError
        If a query has no key, T < 1, or ε is too large for the graph.

    Notes
    -----
    Column j of P_t is A_t times column j of P_{t-1}: rows choose independently, and the best row puts ε on each of its
    edges and the rest on the key that has most (least) of j. So no bound that uses ε alone can be below the largest
    influence, and a formula that is nowhere below it is true.

    Source: ours (value iteration).

    >>> extreme_influence(np.tri(2, dtype=bool), 0.25, 2)[:, 1].tolist()
    [[0.75, 0.75], [0.9375, 0.5625]]
    """
    degree = allowed.sum(axis=1)
    if not degree.all():
        raise errors.invalid("allowed", "a key for every query", f"none for query {int(degree.argmin())}")
    if not 0 < epsilon <= 1 / degree.max() * (1 + 1e-12):
        raise errors.invalid("epsilon", f"a number in (0, 1/{int(degree.max())}]", epsilon)
    free = np.maximum(1 - degree * epsilon, 0.0)[:, None]
    pick, outside = (np.max, -np.inf) if which == "largest" else (np.min, np.inf)
    P, history = np.eye(len(allowed)), np.empty((errors.positive_integer("T", T), *allowed.shape))
    for t in range(T):
        chosen = pick(np.where(allowed[:, :, None], P[None], outside), axis=1)  # query, key j
        P = epsilon * (allowed @ P) + free * chosen
        history[t] = P
    return history

"""Edges cut out of the causal graph: by hand, and at random."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool

from posbias import errors


def causal_without(n: int, edges: Iterable[tuple[int, int]] = ()) -> Bool[np.ndarray, "n n"]:
    """Return the causal graph on n tokens without the given edges.

    Parameters
    ----------
    n
        Tokens.
    edges
        Pairs (key, query) with 1 ≤ key < query ≤ n, counted from 1.

    Raises
    ------
    ValueError
        If an edge is a self-loop or not in the causal graph.

    >>> causal_without(3, [(1, 3)]).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    graph = np.tri(errors.positive_integer("n", n), dtype=bool)
    for key, query in edges:
        if not 1 <= key < query <= n:
            raise errors.invalid("edges", f"pairs (key, query) with 1 ≤ key < query ≤ {n}", (key, query))
        graph[query - 1, key - 1] = False
    return graph


def random_cuts(n: int, q: float, rng: np.random.Generator) -> Bool[np.ndarray, "n n"]:
    """Draw a causal graph in which every edge between different tokens is cut independently with probability q.

    Parameters
    ----------
    n
        Tokens.
    q
        Share of edges cut, in [0, 1].
    rng
        Where the cuts come from.

    >>> random_cuts(2, 1.0, np.random.default_rng(0)).astype(int)
    array([[1, 0],
           [0, 1]])
    """
    share = float(errors.finite_array("q", q, ndim=(0,)))
    if not 0 <= share <= 1:
        raise errors.invalid("q", "a share in [0, 1]", share)
    kept = rng.random((errors.positive_integer("n", n), n)) >= share
    return np.tri(n, dtype=bool) & (kept | np.eye(n, dtype=bool))

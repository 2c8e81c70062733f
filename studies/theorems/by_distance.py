"""Kernels by distance: what all queries and layers have in common at each distance from query to key."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from posbias import errors


def distances(n: int) -> Int[np.ndarray, "n n"]:
    """Return x = i - j for every query i and key j; negative for later keys.

    >>> distances(2)
    array([[ 0, -1],
           [ 1,  0]])
    """
    positions = np.arange(errors.positive_integer("n", n))
    return np.subtract.outer(positions, positions)


def envelope(
    kernels: Float[np.ndarray, "T n n"], *, first_query: int = 0
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return the smallest and the largest weight at each distance 0..n-1, over layers and queries.

    Parameters
    ----------
    kernels
        Causal kernels.
    first_query
        Queries before this one, counted from 0, are left out; at distances where none is left all are taken that exist.

    >>> A = np.array([[[1.0, 0.0], [0.25, 0.75]]])
    >>> [weights.tolist() for weights in envelope(A)]
    [[0.75, 0.25], [1.0, 0.25]]
    """
    n = kernels.shape[-1]
    first = errors.index("first_query", first_query, n)
    low, high = np.empty((2, n))
    for x in range(n):
        along = np.diagonal(kernels, -x, axis1=1, axis2=2)[:, max(0, first - x) :]
        low[x], high[x] = along.min(), along.max()
    return low, high

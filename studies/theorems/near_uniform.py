"""Attention near uniform: how far rollouts are from powers of uniform attention on the same graph."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from posbias import errors
from posbias.rollout.influence import rollout_history


def uniform_attention(allowed: Bool[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return the kernel that attends evenly to all allowed keys.

    Raises
    ------
    ValueError
        If a query has no allowed key.

    >>> uniform_attention(np.tri(2, dtype=bool))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    count = allowed.sum(axis=1, keepdims=True)
    if not count.all():
        raise errors.invalid("allowed", "a key for every query", f"none for query {int(count.argmin())}")
    return np.asarray(allowed / count)


def logit_ranges(kernels: Float[np.ndarray, "T n n"], allowed: Bool[np.ndarray, "n n"]) -> Float[np.ndarray, "T"]:
    """Return s_t for every layer: the largest difference of two logits on edges of one row.

    Parameters
    ----------
    kernels
        Attention kernels out of a softmax, positive on the allowed keys.
    allowed
        The graph, (query, key).

    >>> logit_ranges(np.array([[[1.0, 0.0], [0.2, 0.8]]]), np.tri(2, dtype=bool)).round(3).tolist()
    [1.386]
    """
    logs = np.log(np.where(allowed, kernels, 1.0))
    largest = np.where(allowed, logs, -np.inf).max(axis=2)
    smallest = np.where(allowed, logs, np.inf).min(axis=2)
    return np.asarray((largest - smallest).max(axis=1))


def log_distance_from_uniform(
    history: Float[np.ndarray, "T n n"], allowed: Bool[np.ndarray, "n n"]
) -> Float[np.ndarray, "T"]:
    """Return max |log P_t[i, j] / U^t[i, j]| for every depth t, over the pairs that t layers connect.

    Parameters
    ----------
    history
        Rollouts P_1, P_2, …
    allowed
        The graph on which U is uniform attention.

    Source: ours; at most the sum of the logit ranges of the layers.

    >>> U = uniform_attention(np.tri(2, dtype=bool))
    >>> log_distance_from_uniform(np.stack([U, U @ U]), np.tri(2, dtype=bool)).tolist()
    [0.0, 0.0]
    """
    T = len(history)
    even = rollout_history(np.stack([uniform_attention(allowed)] * T), np.ones(T))[1:]
    apart = np.empty(T)
    for t in range(T):
        reached = even[t] > 0
        apart[t] = np.abs(np.log(history[t][reached] / even[t][reached])).max()
    return apart

"""Angles of pairs of features against the angle of the whole: lemma I.3 of Wu et al."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def pair_angles(
    q: Float[np.ndarray, "*cases pairs 2"], k: Float[np.ndarray, "*cases pairs 2"]
) -> tuple[Float[np.ndarray, "*cases"], Float[np.ndarray, "*cases"]]:
    """Return (Σ_l φ_l²)^½ and its bound (π/2) (β_q β_k)^(-½) φ, in radians.

    Parameters
    ----------
    q, k
        Queries and keys by pairs of features, no pair zero. φ is the angle of whole vectors, φ_l that of pair l, and β
        the smallest share of a vector's norm that a pair has.

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

"""Attention kernels: logits and a mask through a softmax, heads mixed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from posbias import errors
from posbias.rollout.masks import Mask


def attention_kernel(
    logits: Float[np.ndarray, "... n n"] | Sequence, mask: Mask | Bool[np.ndarray, "n n"] | Sequence
) -> Float[np.ndarray, "... n n"]:
    """Return A = softmax of the logits over the keys that the mask allows, row by row.

    Parameters
    ----------
    logits
        Finite attention logits, (…, query, key); any size: each row's largest is taken off first.
    mask
        Allowed keys: a mask, or a boolean (query, key) matrix in which every query has at least one key.

    >>> from posbias.rollout import masks
    >>> attention_kernel(np.zeros((3, 3)), masks.causal()).round(2)
    array([[1.  , 0.  , 0.  ],
           [0.5 , 0.5 , 0.  ],
           [0.33, 0.33, 0.33]])
    """
    logits = np.asarray(logits)
    if logits.ndim < 2 or logits.shape[-2] != logits.shape[-1]:
        raise errors.invalid("logits", "a square (…, n, n) array", f"shape {logits.shape}")
    if not np.isfinite(logits).all():
        raise errors.invalid("logits", "finite numbers (the mask is given apart)", "NaN or Inf")
    n = logits.shape[-1]
    allowed = mask.matrix(n) if isinstance(mask, Mask) else np.asarray(mask, dtype=bool)
    if allowed.shape != (n, n):
        raise errors.invalid("mask", f"a mask, or a boolean matrix of shape ({n}, {n})", f"shape {allowed.shape}")
    if not allowed.any(axis=1).all():
        raise errors.invalid("mask", "a key for every query", f"none for query {int(allowed.any(axis=1).argmin())}")
    masked = np.where(allowed, logits, -np.inf)
    weights = np.exp(masked - masked.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def head_weights(weights: Float[np.ndarray, "H"] | Sequence | None, H: int) -> Float[np.ndarray, "H"]:
    """Return head weights that sum to 1: uniform for None, otherwise the given ones normalised."""
    if weights is None:
        return np.full(H, 1.0 / H)
    w = errors.finite_array("head_weights", weights, ndim=(1,))
    if w.size != H:
        raise errors.invalid("head_weights", f"{H} weights, one for each head", f"{w.size}")
    if (w < 0).any() or not (w > 0).any():
        raise errors.invalid("head_weights", "weights ≥ 0 with one above 0", w.tolist())
    return w / w.sum()


def mix_heads(
    A: Float[np.ndarray, "H n n"] | Sequence, weights: Float[np.ndarray, "H"] | Sequence | None = None
) -> Float[np.ndarray, "n n"]:
    """Return the head average Σ_h w_h A_h; uniform weights unless given.

    Source: residual-aware paper, appendix B (a convex combination keeps rows, causality and order).
    """
    return np.tensordot(head_weights(weights, len(A)), errors.stochastic_kernel("A", A), axes=1)

"""Attention kernels: logits and a mask through a softmax, heads mixed."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import softmax

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
    return np.asarray(softmax(np.where(allowed, logits, -np.inf), axis=-1))


def mix_heads(A: Float[np.ndarray, "H n n"] | Sequence) -> Float[np.ndarray, "n n"]:
    """Return the mean over heads, which keeps rows, causality and order.

    Source: residual-aware paper, appendix B.
    """
    return np.asarray(errors.stochastic_kernel("A", A).mean(0))

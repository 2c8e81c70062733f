"""Kernels of rotary attention without content: from a head's mean query and mean key, the rotation kept.

Features are in pairs (2l-1, 2l), as in :func:`~posbias.rollout.logits.rope_logits`;
a pair that is not rotated has θ_l = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from posbias.errors import Numbers
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import rotate
from posbias.rollout.masks import Mask


def distance_logits(
    q: Float[np.ndarray, "... d"], k: Float[np.ndarray, "... d"], theta: Numbers, n: int
) -> Float[np.ndarray, "... n"]:
    """Return ⟨Θ_x q, k⟩ for distances x = 0..n-1: the logits of one query and one key wherever they stand.

    Source: Θ_i and Θ_j are rotations, so that ⟨Θ_i q, Θ_j k⟩ = ⟨Θ_{i-j} q, k⟩ (Su et al. 2024).

    >>> distance_logits(np.array([1.0, 0.0]), np.array([1.0, 0.0]), [np.pi / 2], 3).round(2) + 0.0
    array([ 1.,  0., -1.])
    """
    return np.asarray((rotate(q, theta, n) * k[..., None, :]).sum(-1))


def distance_variances(
    q: Float[np.ndarray, "H d"],
    k: Float[np.ndarray, "H d"],
    theta: Numbers,
    n: int,
    *,
    query_covariance: Float[np.ndarray, "H d d"] | None = None,
    key_covariance: Float[np.ndarray, "H d d"] | None = None,
) -> Float[np.ndarray, "H n"]:
    """Return the variance of ⟨Θ_x q, k⟩ over independent queries and keys, x = 0..n-1.

    With C and D the covariances of queries and keys, u = Θ_x q̄ and v = Θ_x^T k̄, it is
    u^T D u + v^T C v + tr(Θ_x C Θ_x^T D).

    >>> one, eye = np.array([[1.0, 0.0]]), np.eye(2)[None]
    >>> distance_variances(one, one, [0.5], 2, key_covariance=eye).round(6).tolist()
    [[1.0, 1.0]]
    >>> distance_variances(one, one, [0.5], 2, query_covariance=eye, key_covariance=eye).round(6).tolist()
    [[4.0, 4.0]]
    """
    angles = np.asarray(theta, dtype=float)
    out = np.zeros((len(q), n))
    if key_covariance is not None:
        u = rotate(q, angles, n)
        out += np.einsum("hxa,hab,hxb->hx", u, key_covariance, u, optimize=True)
    if query_covariance is not None:
        v = rotate(k, -angles, n)
        out += np.einsum("hxa,hab,hxb->hx", v, query_covariance, v, optimize=True)
    if query_covariance is not None and key_covariance is not None:
        turns = rotate(np.eye(q.shape[-1]), angles, n)  # turns[b, x] is Θ_x of the unit vector b
        turned = np.einsum("bxa,hbc,cxd->hxad", turns, query_covariance, turns, optimize=True)
        out += np.einsum("hxad,had->hx", turned, key_covariance)
    return out


def distance_kernels(
    logits: Float[np.ndarray, "H n"],
    mask: Mask | Bool[np.ndarray, "n n"],
    first: Float[np.ndarray, "H n"] | None = None,
) -> Float[np.ndarray, "H n n"]:
    """Return the attention kernels of heads whose logits depend on the distance i - j alone.

    >>> from posbias.rollout import masks
    >>> distance_kernels(np.log([[1.0, 3.0]]), masks.causal())
    array([[[1.  , 0.  ],
            [0.75, 0.25]]])
    """
    n = logits.shape[1]
    allowed = mask.matrix(n) if isinstance(mask, Mask) else mask
    matrix = logits[:, abs(np.subtract.outer(np.arange(n), np.arange(n)))]
    if first is not None:
        matrix[:, :, 0] = first
    return attention_kernel(matrix, allowed)


@dataclass(frozen=True)
class RotaryMeans:
    """Hold the means and covariances of each head's queries and keys before the rotation."""

    # query, key: Means over prompts and positions. Heads that share keys have the same ones; what the model scales
    # the rotated features by is in them
    query: Float[np.ndarray, "T H d"]
    key: Float[np.ndarray, "T H d"]
    # query_covariance, key_covariance: Over the same prompts and positions
    query_covariance: Float[np.ndarray, "T H d d"]
    key_covariance: Float[np.ndarray, "T H d d"]
    # first_query, first_key: Means at position 0, over prompts
    first_query: Float[np.ndarray, "T H d"]
    first_key: Float[np.ndarray, "T H d"]
    theta: Float[np.ndarray, "pairs"]  # Radians per token of each pair, 0 for a pair that is not rotated
    scale: Float[np.ndarray, "T"]  # What q·k is multiplied by

    def logits(self, n: int) -> Float[np.ndarray, "T H n"]:
        """Return the logits of the mean query and the mean key at distances 0..n-1."""
        return self.scale[:, None, None] * distance_logits(self.query, self.key, self.theta, n)

    def with_first(self, n: int) -> tuple[Float[np.ndarray, "T H d"], Float[np.ndarray, "T H d"]]:
        """Return mean query and mean key over all n positions, where position 0 had been left out."""
        pairs = (self.first_query, self.query), (self.first_key, self.key)
        query, key = (rest + (first - rest) / n for first, rest in pairs)
        return query, key

    def first_logits(self, n: int) -> Float[np.ndarray, "T H n"]:
        """Return the logits of the mean query and the mean key of position 0 at distances 0..n-1."""
        return self.scale[:, None, None] * distance_logits(self.query, self.first_key, self.theta, n)

    def variances(self, n: int, *, queries: bool = True) -> Float[np.ndarray, "T H n"]:
        """Return the variance of the logits over keys, and over queries too unless told not to, at distances 0..n-1."""
        C = [c if queries else None for c in self.query_covariance]
        return np.stack([
            s**2 * distance_variances(q, k, self.theta, n, query_covariance=c, key_covariance=d)
            for s, q, k, c, d in zip(self.scale, self.query, self.key, C, self.key_covariance, strict=True)
        ])  # fmt: skip

"""Kernels of rotary attention without content: from a head's mean query and mean key, the rotation kept.

Features are in pairs (2l-1, 2l), as in :func:`~studies.rotation.rope_logits`;
a pair that is not rotated has θ_l = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from posbias.errors import Numbers
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.masks import Mask
from studies.rotation import rotate


def distance_logits(
    q: Float[np.ndarray, "... d"], k: Float[np.ndarray, "... d"], theta: Numbers, n: int
) -> Float[np.ndarray, "... n"]:
    """Return ⟨Θ_x q, k⟩ for distances x = 0..n-1: the logits of one query and one key wherever they stand.

    Source: Θ_i and Θ_j are rotations, so that ⟨Θ_i q, Θ_j k⟩ = ⟨Θ_{i-j} q, k⟩ (Su et al. 2024).

    >>> distance_logits(np.array([1.0, 0.0]), np.array([1.0, 0.0]), [np.pi / 2], 3).round(2) + 0.0
    array([ 1.,  0., -1.])
    """
    return np.asarray((rotate(q, theta, n) * k[..., None, :]).sum(-1))


def distance_kernels(
    logits: Float[np.ndarray, "H n"], mask: Mask | Bool[np.ndarray, "n n"]
) -> Float[np.ndarray, "H n n"]:
    """Return the attention kernels of heads whose logits depend on the distance i - j alone.

    >>> from posbias.rollout import masks
    >>> distance_kernels(np.log([[1.0, 3.0]]), masks.causal())
    array([[[1.  , 0.  ],
            [0.75, 0.25]]])
    """
    n = logits.shape[1]
    allowed = mask.matrix(n) if isinstance(mask, Mask) else mask
    return attention_kernel(logits[:, abs(np.subtract.outer(np.arange(n), np.arange(n)))], allowed)


@dataclass(frozen=True)
class RotaryMeans:
    """Hold the means of each head's queries and keys before the rotation."""

    # query, key: Means over prompts and positions. Heads that share keys have the same ones; what the model scales
    # the rotated features by is in them
    query: Float[np.ndarray, "T H d"]
    key: Float[np.ndarray, "T H d"]
    theta: Float[np.ndarray, "pairs"]  # Radians per token of each pair, 0 for a pair that is not rotated
    scale: Float[np.ndarray, "T"]  # What q·k is multiplied by

    def logits(self, n: int) -> Float[np.ndarray, "T H n"]:
        """Return the logits of the mean query and the mean key at distances 0..n-1."""
        return self.scale[:, None, None] * distance_logits(self.query, self.key, self.theta, n)

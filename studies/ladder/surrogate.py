"""What may stand in for a kernel: the nearest ALiBi kernel, and how far two kernels are apart."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.rollout.masks import Mask

STEEPEST = 30.0
"""Logits per token at which next to nothing is left at distance 1."""


def nearest_slope(A: Float[np.ndarray, "n n"], mask: Mask) -> float:
    """Return the m for which softmax(-m (i - j)) over the allowed keys is nearest to A in Σ_i KL(A_i ‖ ·).

    The divergence is convex in m, and its derivative is zero where both kernels have the same mean distance, summed
    over queries: the fit takes one number from A. m < 0 where A reaches further back than uniform attention.

    Parameters
    ----------
    A
        Row-stochastic kernel without weight where the mask allows none.
    mask
        Causal, or a sliding window.

    Raises
    ------
    ValueError
        For another mask; if A has weight outside the mask, or none off the diagonal, or all of it at the far end: no
        finite m fits.

    >>> from posbias.rollout import masks
    >>> round(nearest_slope(np.array([[1.0, 0.0], [0.25, 0.75]]), masks.causal()), 6)  # log 3
    1.098612
    """
    from scipy.optimize import brentq

    A = errors.stochastic_kernel("A", A)
    n = len(A)
    if mask.kind not in ("causal", "window"):
        raise errors.invalid("mask", "a causal mask or a sliding window", mask.kind)
    allowed, x = mask.matrix(n), np.arange(n)
    if A[~allowed].any():
        raise errors.invalid("A", "no weight outside the mask", float(A[~allowed].max()))
    reach, goal = allowed.sum(1), float((A * np.subtract.outer(x, x)).sum())

    def excess(m: float) -> float:
        """Return how much more distance m gives than A has; counted from the far end of a row, m is -m."""
        weights = np.exp(-abs(m) * x)
        distance = ((weights * x).cumsum() / weights.cumsum())[reach - 1]
        return float((distance if m >= 0 else reach - 1 - distance).sum()) - goal

    if not excess(STEEPEST) < 0 < excess(-STEEPEST):
        raise errors.invalid("A", f"a mean distance that a slope within ±{STEEPEST:g} gives", f"{goal / n:.4g}")
    return float(brentq(excess, -STEEPEST, STEEPEST, xtol=1e-10))


def kernel_variation(A: Float[np.ndarray, "... n n"], B: Float[np.ndarray, "... n n"]) -> Float[np.ndarray, "..."]:
    """Return ½ Σ_j |A[i, j] - B[i, j]|, averaged over the queries from the second on (the first has no choice).

    >>> float(kernel_variation(np.eye(2), np.array([[1.0, 0.0], [0.25, 0.75]])))
    0.25
    """
    n = A.shape[-1]
    if n < 2 or A.shape != B.shape:
        raise errors.invalid("A, B", "kernels of one shape on at least 2 tokens", f"shapes {A.shape} and {B.shape}")
    return np.asarray(abs(A - B)[..., 1:, :].sum(-1).mean(-1) / 2)

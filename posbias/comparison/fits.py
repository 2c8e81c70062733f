"""Predictions with one number fitted to a measured profile: a sceptic's baseline."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias.comparison.distances import wasserstein_to


def recency_fit(profile: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return the geometric profile p_j ∝ e^{-m (n-1-j)} that is nearest to a profile in W₁.

    A sceptic's baseline with one number fitted to the very profile it is compared with; m may be negative.

    >>> recency_fit(np.array([0.25, 0.25, 0.25, 0.25])).round(3).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    from scipy.optimize import minimize_scalar

    p = np.asarray(profile, dtype=np.float64)
    back = np.arange(p.size - 1, -1, -1)

    def geometric(m: float) -> np.ndarray:
        logits = -m * back
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    above = np.geomspace(1e-3, 1e3, 60) / p.size
    grid = np.concatenate([-above[::-1], [0.0], above])
    distances = [wasserstein_to(geometric(m)[None], p)[0] for m in grid]
    best = int(np.argmin(distances))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)])
    found = minimize_scalar(lambda m: wasserstein_to(geometric(m)[None], p)[0], bounds=bounds, method="bounded")
    return geometric(found.x if found.fun < distances[best] else grid[best])

"""Predictions with one number fitted to a measured profile: a sceptic's baselines."""

import numpy as np
from jaxtyping import Float

from posbias.comparison.distances import wasserstein_to


def recency_fit(profile: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return the exponential profile p_j ∝ e^{-m (n-1-j)} that is nearest to a profile in W₁; m may be negative.

    >>> recency_fit(np.array([0.25, 0.25, 0.25, 0.25])).round(3).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    n = np.size(profile)
    return _nearest(profile, np.arange(n - 1, -1, -1, dtype=np.float64), np.geomspace(1e-3, 1e3, 60) / n)


def power_fit(profile: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return the power law p_j ∝ (n - j)^{-m} of the distance, j from 0, nearest in W₁; m may be negative.

    Its fall is that of arXiv 2606.29139 without the floor there, so that it has one number as the exponential has.

    >>> power_fit(np.array([3, 4, 6, 12]) / 25).round(2).tolist()  # as 1/4, 1/3, 1/2, 1
    [0.12, 0.16, 0.24, 0.48]
    """
    return _nearest(profile, np.log(np.arange(np.size(profile), 0, -1)), np.geomspace(1e-3, 1e2, 60))


def _nearest(
    profile: Float[np.ndarray, "n"], far: Float[np.ndarray, "n"], rates: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "n"]:
    """Return the profile ∝ e^{-m far} that is nearest, m between the largest rate and its negative."""
    from scipy.optimize import minimize_scalar

    p = np.asarray(profile, dtype=np.float64)

    def falling(m: float) -> np.ndarray:
        logits = -m * far
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    grid = np.concatenate([-rates[::-1], [0.0], rates])
    distances = [wasserstein_to(falling(m)[None], p)[0] for m in grid]
    best = int(np.argmin(distances))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)])
    found = minimize_scalar(lambda m: wasserstein_to(falling(m)[None], p)[0], bounds=bounds, method="bounded")
    return falling(found.x if found.fun < distances[best] else grid[best])

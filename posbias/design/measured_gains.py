"""Gains of a measured network at a few positions, for a design under the law of untrained networks.

Positions are spaced evenly in their logarithm. Each stands for those that are nearest to it so: gains are their root
mean squares, overlaps the means over pairs of different tokens.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from posbias import errors
from posbias.design import rounded
from posbias.measure.rollouts import measured_rollout
from posbias.rollout import gains as few
from posbias.rollout.gains import Gains
from posbias.rollout.untrained import Steps

KNOTS = 8
"""Positions at which gains are kept."""


def measured_gains(results: xr.Dataset) -> Gains:
    """Return the gains of a measurement at :data:`KNOTS` positions or fewer.

    Source: ours; the chapter on designing the prior.
    """
    branches = measured_rollout(results, "untrained").branches or {}
    return knotted(**{name: branches[name] for name in ("gains", "scales", "outputs", "steps", "parallel")})


def knotted(
    gains: Float[np.ndarray, "T *heads"],
    scales: Float[np.ndarray, "T n"],
    outputs: Float[np.ndarray, "T n"],
    steps: Float[np.ndarray, "T n n"] | Steps,
    parallel: Float[np.ndarray, "T"] | Int[np.ndarray, "T"],
) -> Gains:
    """Return gains at few positions of the numbers that :func:`~posbias.rollout.untrained.untrained_profile` takes.

    >>> K = np.ones((1, 4, 4)) + np.eye(4)
    >>> few = knotted(np.array([[3.0, 4.0]]), np.ones((1, 4)), np.ones((1, 4)), K, np.zeros(1))
    >>> few.positions.tolist(), few.attention.tolist(), few.overlaps[0, 0, :2].tolist()
    ([1.0, 2.0, 3.0, 4.0], [[5.0, 5.0, 5.0, 5.0]], [0.5, 0.5])
    """
    if len({bool(x) for x in parallel}) > 1:
        raise errors.invalid("parallel", "all layers or none", "some")
    T, n = scales.shape
    knots = np.unique(np.geomspace(1, n, KNOTS).round())
    nearest = np.abs(np.log(np.arange(1.0, n + 1))[:, None] - np.log(knots)).argmin(1)
    cells = np.eye(knots.size)[nearest]
    count = cells.sum(0)
    size = gains if gains.ndim == 1 else np.linalg.norm(gains, axis=1)
    K = [np.asarray(steps[t], dtype=np.float64) for t in range(T)]
    return few.gains(
        knots,
        _rounded(size[:, None] * np.sqrt(scales**2 @ cells / count)),
        outputs=_rounded(np.sqrt(outputs**2 @ cells / count)),
        steps=_rounded(np.sqrt(np.stack([np.diag(k) for k in K]).clip(0) @ cells / count)),
        overlaps=_rounded(np.stack([_overlaps(k, cells) for k in K])),
        parallel=bool(parallel[0]),
    )


def _overlaps(K: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the mean correlation of different tokens of each pair of cells, made positive semidefinite.

    A token that is a cell of its own gets that with the next cell.
    """
    sizes = np.sqrt(np.diag(K).clip(0))
    unit = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    correlation = K * unit[:, None] * unit
    np.fill_diagonal(correlation, 0.0)
    count = cells.sum(0)
    pairs = np.outer(count, count) - np.diag(count)
    mean = cells.T @ correlation @ cells / np.maximum(pairs, 1)
    alone = np.flatnonzero(count == 1)
    mean[alone, alone] = 1.0 if len(mean) == 1 else mean[alone, np.where(alone + 1 < len(mean), alone + 1, alone - 1)]
    values, vectors = np.linalg.eigh((mean + mean.T) / 2)
    near = (vectors * values.clip(0)) @ vectors.T
    return np.asarray(((near + near.T) / 2).clip(-1, 1))


def _rounded(x: np.ndarray) -> np.ndarray:
    """Return numbers with so many digits; what is symmetric stays so."""
    return np.array([rounded(value) for value in x.ravel()]).reshape(x.shape)

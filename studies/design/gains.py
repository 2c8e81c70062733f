"""Gains of a network's branches at a few positions: what the law of untrained networks needs beside kernels.

An untrained layer multiplies a random gradient by c on its way through the attention and adds m times it on the way
through the MLP. Gates make the second random too: with overlap ρ < 1 the MLPs of two tokens send back gradients that
are only partly alike. All three vary slowly with the logarithm of the position, so that they are kept at a few of them,
spaced evenly in their logarithm, and interpolated; a token with itself overlaps by 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.design import rounded
from posbias.measure.branches import Branches

KNOTS = 8
"""Positions at which gains are kept."""


@dataclass(frozen=True, eq=False)
class Gains:
    """Hold gains of T layers at g positions."""

    positions: Float[np.ndarray, "g"]  # Counted from 1, increasing
    attention: Float[np.ndarray, "T g"]  # c of a layer's heads together, over the norm before it, by the key's position
    outputs: Float[np.ndarray, "T g"]  # Factor of the attention's output, by the query's position: of a norm after it
    steps: Float[np.ndarray, "T g"]  # m of what follows the attention, without its skip connection
    overlaps: Float[np.ndarray, "T g g"]  # ρ in [-1, 1] of different tokens at two positions
    parallel: bool  # Whether the step reads what the attention reads

    def mixing(self, n: int) -> Float[np.ndarray, "T"]:
        """Return λ = c/(1 + c), c the root mean square gain over n positions."""
        at = self.at(np.arange(1.0, n + 1))
        c = np.sqrt((at["scales"] ** 2).mean(1) * (at["outputs"] ** 2).mean(1))
        return np.asarray(c / (1 + c))

    def at(self, positions: Float[np.ndarray, "n"]) -> dict[str, Any]:
        """Return what :func:`~posbias.rollout.untrained.untrained_profile` is given beside kernels of n positions.

        >>> ones = np.ones((1, 2))
        >>> at = Gains(np.array([1, 4]), ones * [1, 3], ones, ones, ones[:, None] * ones[..., None] / 2, False).at(
        ...     np.array([1.0, 2.0, 8.0])
        ... )
        >>> at["scales"].tolist(), at["steps"][0, 0].tolist()
        ([[1.0, 2.0, 3.0]], [1.0, 0.5, 0.5])
        """
        x, knots = np.log(positions), np.log(self.positions)
        weights = np.stack([np.interp(x, knots, one) for one in np.eye(knots.size)], axis=1)
        sent = (self.steps @ weights.T)[..., None] * weights  # (T, n, g)
        K = sent @ self.overlaps @ sent.swapaxes(1, 2)
        tokens = np.arange(x.size)
        K[:, tokens, tokens] = (self.steps @ weights.T) ** 2
        return {
            "gains": np.ones(len(self.attention)),
            "scales": self.attention @ weights.T,
            "outputs": self.outputs @ weights.T,
            "steps": K,
            "parallel": np.full(len(self.attention), float(self.parallel)),
        }


def even_gains(c: Float[np.ndarray, "T"]) -> Gains:
    """Return gains that are the same at all positions, with no steps."""
    ones = np.ones((len(c), 1))
    return Gains(np.ones(1), c[:, None], ones, 0 * ones, ones[..., None], False)


def mean_gains(networks: list[Branches]) -> Gains:
    """Return gains of several networks of one body at a few positions.

    Over networks gains are root mean squares and Gram factors means. Each position stands for those that are nearest to
    it in their logarithm: gains are root mean squares there too, overlaps the means over pairs of different tokens.
    """

    def squares(name: str) -> np.ndarray:
        return np.asarray(np.mean([getattr(one, name) ** 2 for one in networks], axis=0))

    K = np.asarray(np.mean([one.step_gain for one in networks], axis=0))
    n = K.shape[-1]
    knots = np.unique(np.geomspace(1, n, KNOTS).round())
    nearest = np.abs(np.log(np.arange(1.0, n + 1))[:, None] - np.log(knots)).argmin(1)
    cells = np.eye(knots.size)[nearest]
    count = cells.sum(0)
    size = np.sqrt(squares("branch_gain").sum(1, keepdims=True))
    return Gains(
        knots,
        _rounded(size * np.sqrt(squares("branch_scale") @ cells / count)),
        _rounded(np.sqrt(squares("output_scale") @ cells / count)),
        _rounded(np.sqrt(np.diagonal(K, axis1=1, axis2=2).clip(0) @ cells / count)),
        _rounded(np.stack([_overlaps(k, cells) for k in K])),
        bool(networks[0].parallel[0]),
    )


def _overlaps(K: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the mean correlation of different tokens of each pair of cells, made positive semidefinite."""
    sizes = np.sqrt(np.diag(K).clip(0))
    correlation = K / np.where(sizes > 0, sizes, np.inf)[:, None] / np.where(sizes > 0, sizes, np.inf)
    np.fill_diagonal(correlation, 0.0)
    count = cells.sum(0)
    pairs = np.outer(count, count) - np.diag(count)
    mean = cells.T @ correlation @ cells / np.maximum(pairs, 1)
    alone = np.flatnonzero(count == 1)
    mean[alone, alone] = mean[alone, np.where(alone + 1 < len(mean), alone + 1, alone - 1)]
    values, vectors = np.linalg.eigh((mean + mean.T) / 2)
    near = (vectors * values.clip(0)) @ vectors.T
    return np.asarray(((near + near.T) / 2).clip(-1, 1))


def _rounded(x: np.ndarray) -> np.ndarray:
    """Return numbers with so many digits; what is symmetric stays so."""
    return np.array([rounded(value) for value in x.ravel()]).reshape(x.shape)

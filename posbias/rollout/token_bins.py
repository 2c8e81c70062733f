"""Kernels of long prompts, averaged over cells of neighbouring tokens: a matrix that does not grow with the prompt.

The first tokens and the last ones are cells of their own; between them cells are equally long. What a query gives to
the keys just before it is kept apart, by distance, so that the diagonal is not smeared over a cell. A row vector goes
through such a kernel in O(n · band + cells²).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from posbias import errors

BAND = 32
"""Distances that are kept apart: 0, a query's own token, to 31."""


@dataclass(frozen=True, eq=False)
class TokenBins:
    """Divide n tokens into cells of neighbours.

    >>> cells = token_bins(1000, 200)
    >>> cells.sizes[[0, 49, 50, 149, 150, 199]].tolist()
    [1, 1, 9, 9, 1, 1]
    """

    n: int
    starts: Int[np.ndarray, "cells"]  # First token of each cell, from 0 on

    @cached_property
    def sizes(self) -> Int[np.ndarray, "cells"]:
        """Tokens in each cell."""
        return np.diff(np.append(self.starts, self.n))

    @cached_property
    def index(self) -> Int[np.ndarray, "n"]:
        """The cell of each token."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    def sums(self, x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "cells"]:
        """Return the sum of numbers over each cell."""
        return np.asarray(np.add.reduceat(x, self.starts))

    @cached_property
    def pairs(self) -> Int[np.ndarray, "cells cells"]:
        """Causal pairs of a query and a key in each pair of cells, those of a token with itself included."""
        queries, keys = self.sizes[:, None], self.sizes[None]
        own = self.sizes * (self.sizes + 1) // 2
        return np.where(np.tri(len(self.sizes), k=-1, dtype=bool), queries * keys, np.diag(own))


def token_bins(n: int, most: int) -> TokenBins:
    """Return at most ``most`` cells of n tokens: a quarter of them single tokens at either end."""
    n = errors.positive_integer("n", n)
    least = min(n, 4 * BAND)
    most = errors.positive_integer("kernel_size", most, minimum=least)
    if most >= n:
        return TokenBins(n, np.arange(n))
    ends = most // 4
    between = np.linspace(ends, n - ends, most - 2 * ends + 1).round().astype(np.int64)[:-1]
    return TokenBins(n, np.concatenate([np.arange(ends), between, np.arange(n - ends, n)]))


@dataclass(frozen=True, eq=False)
class BinKernels:
    """Hold the kernels of T layers by what cells give to cells, and by what queries give to the keys before them."""

    cells: TokenBins
    # Mean over a cell's queries of the weight that they give to all keys of a cell
    weights: Float[np.ndarray, "T cells cells"]
    # Mean over a cell's queries of the weight at each distance
    band: Float[np.ndarray, "T cells distances"]

    def __post_init__(self) -> None:
        """Check shapes and rows."""
        errors.stochastic_kernel("weights", self.weights, tolerance=1e-4)
        if self.band.shape[:2] != self.weights.shape[:2] or self.weights.shape[1] != len(self.cells.starts):
            expected = f"kernels of {len(self.cells.starts)} cells with their bands"
            raise errors.invalid("weights and band", expected, f"shapes {self.weights.shape} and {self.band.shape}")

    @property
    def T(self) -> int:
        """Number of layers."""
        return len(self.weights)

    @property
    def same_in_every_layer(self) -> bool:
        """Whether one kernel serves all layers."""
        return self.T == 1

    def pull(self, v: Float[np.ndarray, "n"], t: int) -> Float[np.ndarray, "n"]:
        """Return the row vector v A_t."""
        cells = self.cells
        band, beyond = self._parts(t)
        far = cells.sums(v) @ beyond
        out = (far / cells.sizes)[cells.index]
        for distance in range(min(band.shape[1], cells.n)):
            out[: cells.n - distance] += (v * band[cells.index, distance])[distance:]
        return np.asarray(out)

    def dense(self, t: int, n: int) -> Float[np.ndarray, "n n"]:
        """Return layer ``t``'s kernel as a matrix (n, n), by O(n) products: for checks and small n."""
        return np.stack([self.pull(row, t) for row in np.eye(n)])

    def _parts(self, t: int) -> tuple[Float[np.ndarray, "cells distances"], Float[np.ndarray, "cells cells"]]:
        """Return what a cell's queries give at each distance, and what they give to cells beyond: together 1.

        A cell's keys are given equal parts. What was rounded to 32 bits is divided by its sum, which is not 1 to the
        last digit where a window leaves nothing beyond the band.
        """
        cells, g, band = self.cells, len(self.cells.starts), self.band[t].astype(np.float64)
        near = np.zeros((g, g))
        for distance in range(min(band.shape[1], cells.n)):
            queries, keys = cells.index[distance:], cells.index[: cells.n - distance]
            near += np.bincount(queries * g + keys, band[queries, distance], g * g).reshape(g, g)
        far = (self.weights[t] - near / cells.sizes[:, None]).clip(0)
        given = near.sum(1) / cells.sizes
        far *= ((1 - given).clip(0) / np.maximum(far.sum(1), np.finfo(float).tiny))[:, None]
        total = (given + far.sum(1))[:, None]
        return band / total, np.asarray(far / total)


@dataclass(frozen=True, eq=False)
class BinSteps:
    """Hold symmetric matrices of T layers by their diagonals and their means over the other pairs in cells.

    >>> means, diagonals = np.array([[[0.0, 1.0], [1.0, 2.0]]]), np.array([[5.0, 6.0, 7.0]])
    >>> BinSteps(TokenBins(3, np.array([0, 1])), means, diagonals)[0]
    array([[5., 1., 1.],
           [1., 6., 2.],
           [1., 2., 7.]])
    """

    cells: TokenBins
    # Mean over the pairs of different tokens in a pair of cells
    means: Float[np.ndarray, "T cells cells"]
    diagonals: Float[np.ndarray, "T n"]  # Entries of tokens with themselves

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self.means)

    def __getitem__(self, t: int) -> Float[np.ndarray, "n n"]:
        """Return layer ``t``'s matrix written out."""
        K = self.means[t].astype(np.float64)[np.ix_(self.cells.index, self.cells.index)]
        np.fill_diagonal(K, self.diagonals[t])
        return K

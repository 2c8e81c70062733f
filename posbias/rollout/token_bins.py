"""Kernels of long prompts, averaged over bins of neighbouring tokens: a matrix that does not grow with the prompt.

The first tokens and the last ones are bins of their own; between them bins are equally long. What a query gives to
the keys just before it is kept apart, by distance, so that the diagonal is not smeared over a bin. A row vector goes
through such a kernel in O(n · band + bins²).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from posbias import errors
from posbias.rollout.layers import Layers
from posbias.rollout.operators import Kernel

BAND = 32
"""Distances that are kept apart: 0, a query's own token, to 31."""


@dataclass(frozen=True, eq=False)
class TokenBins:
    """Divide n tokens into bins of neighbours.

    >>> bins = token_bins(1000, 200)
    >>> bins.sizes[[0, 49, 50, 149, 150, 199]].tolist()
    [1, 1, 9, 9, 1, 1]
    """

    n: int
    starts: Int[np.ndarray, "bins"]  # First token of each bin, from 0 on

    @cached_property
    def sizes(self) -> Int[np.ndarray, "bins"]:
        """Tokens in each bin."""
        return np.diff(np.append(self.starts, self.n))

    @cached_property
    def index(self) -> Int[np.ndarray, "n"]:
        """The bin of each token."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    @cached_property
    def pairs(self) -> Int[np.ndarray, "bins bins"]:
        """Causal pairs of a query and a key in each pair of bins, those of a token with itself included."""
        queries, keys = self.sizes[:, None], self.sizes[None]
        own = self.sizes * (self.sizes + 1) // 2
        return np.where(np.tri(len(self.sizes), k=-1, dtype=bool), queries * keys, np.diag(own))


def token_bins(n: int, most: int) -> TokenBins:
    """Return at most ``most`` bins of n tokens: a quarter of them single tokens at either end."""
    n = errors.positive_integer("n", n)
    least = min(n, 4 * BAND)
    most = errors.positive_integer("kernel_size", most, minimum=least)
    if most >= n:
        return TokenBins(n, np.arange(n))
    ends = most // 4
    between = np.linspace(ends, n - ends, most - 2 * ends + 1).round().astype(np.int64)[:-1]
    return TokenBins(n, np.concatenate([np.arange(ends), between, np.arange(n - ends, n)]))


class Cells(Kernel):
    """One kernel by what bins give to bins, and by what queries give to the keys before them."""

    def __init__(
        self,
        bins: TokenBins,
        weights: Float[np.ndarray, "bins bins"],
        band: Float[np.ndarray, "bins distances"],
    ) -> None:
        """Split the weights into what a bin's queries give at each distance and what to bins beyond, together 1.

        A bin's keys are given equal parts. What was rounded to 32 bits is divided by its sum, which is not 1 to the
        last digit where a window leaves nothing beyond the band.
        """
        super().__init__(bins.n)
        g, band = len(bins.starts), band[:, : bins.n].astype(np.float64)
        near = np.zeros((g, g))
        for distance in range(band.shape[1]):
            queries, keys = bins.index[distance:], bins.index[: bins.n - distance]
            near += np.bincount(queries * g + keys, band[queries, distance], g * g).reshape(g, g)
        far = (weights - near / bins.sizes[:, None]).clip(0)
        given = near.sum(1) / bins.sizes
        far *= ((1 - given).clip(0) / np.maximum(far.sum(1), np.finfo(float).tiny))[:, None]
        total = (given + far.sum(1))[:, None]
        self.bins, self.band, self.far = bins, band / total, far / total

    def _rmatmat(self, X: np.ndarray) -> np.ndarray:
        bins = self.bins
        far = self.far.T @ np.add.reduceat(X, bins.starts, axis=0)
        out = (far / bins.sizes[:, None])[bins.index]
        for distance, share in enumerate(self.band.T):
            out[: bins.n - distance] += (X * share[bins.index][:, None])[distance:]
        return np.asarray(out)


class BinKernels(Layers):
    """The kernels of T layers by what bins give to bins, and by what queries give to the keys before them.

    ``cells`` are means over a bin's queries of the weight on all keys of a bin, ``band`` of that at each distance.
    """

    def __init__(
        self, bins: TokenBins, cells: Float[np.ndarray, "T bins bins"], band: Float[np.ndarray, "T bins distances"]
    ) -> None:
        errors.stochastic_kernel("cells", cells, tolerance=1e-4)
        self.bins, self.cells, self.band = bins, cells, band
        self.T, self.H, self.weights = len(cells), 1, np.ones((1, 1))

    @property
    def same_in_every_layer(self) -> bool:
        """Whether one kernel serves all layers."""
        return len(self.cells) == 1

    def heads(self, t: int, n: int, weights: Float[np.ndarray, "H"] | None = None) -> list[tuple[Any, float]]:
        """Return the one kernel of layer ``t``."""
        return [(Cells(self.bins, self.cells[t], self.band[t]), 1.0 if weights is None else float(weights[0]))]

    def tokens(self, n: int | None) -> int:
        """Return the number of tokens that the kernels are of, or raise ValueError if it is another."""
        if n not in (None, self.bins.n):
            raise errors.invalid("n", f"{self.bins.n}, the size of the kernels", n)
        return self.bins.n


@dataclass(frozen=True, eq=False)
class BinSteps:
    """Hold symmetric matrices of T layers by their diagonals and their means over the other pairs in bins.

    >>> means, diagonals = np.array([[[0.0, 1.0], [1.0, 2.0]]]), np.array([[5.0, 6.0, 7.0]])
    >>> BinSteps(TokenBins(3, np.array([0, 1])), means, diagonals)[0]
    array([[5., 1., 1.],
           [1., 6., 2.],
           [1., 2., 7.]])
    """

    bins: TokenBins
    # Mean over the pairs of different tokens in a pair of bins
    means: Float[np.ndarray, "T bins bins"]
    diagonals: Float[np.ndarray, "T n"]  # Entries of tokens with themselves

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self.means)

    def __getitem__(self, t: int) -> Float[np.ndarray, "n n"]:
        """Return layer ``t``'s matrix written out."""
        K = self.means[t].astype(np.float64)[np.ix_(self.bins.index, self.bins.index)]
        np.fill_diagonal(K, self.diagonals[t])
        return K

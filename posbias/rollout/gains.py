"""Gains of branches at a few positions: what the law of untrained networks needs beside kernels, in a few numbers.

An untrained layer multiplies a random gradient by c on its way through the attention and adds m times it on the way
through the MLP. Gates make the second random too: with overlap ρ < 1 the MLPs of two tokens send back gradients that
are only partly alike. All three vary slowly with the logarithm of the position, so that they are kept at a few of them
and interpolated; a token with itself overlaps by 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers

LARGEST = 1e20
"""Gains up to this size leave every product of a layer finite."""
SLACK = 1e-4
"""By how much a matrix of overlaps may miss to be positive semidefinite: its digits are few."""


@dataclass(frozen=True, eq=False)
class Gains:
    """Hold gains of T layers at g positions; :func:`gains` makes checked ones."""

    positions: Float[np.ndarray, "g"]  # Counted from 1, increasing
    # c ≥ 0 of a layer's heads together, by the position of the key: ‖W_O W_V‖_F/√d over the denominator of the norm
    # before the attention
    attention: Float[np.ndarray, "T g"]
    # Factor of the attention's output by the position of the query: that of a norm after it
    outputs: Float[np.ndarray, "T g"]
    steps: Float[np.ndarray, "T g"]  # m ≥ 0 of what follows the attention, without its skip connection
    # ρ in [-1, 1]: what the steps of different tokens at two positions have in common, as a correlation
    overlaps: Float[np.ndarray, "T g g"]
    parallel: bool  # Whether the step reads what the attention reads

    @property
    def T(self) -> int:
        """Number of layers."""
        return len(self.attention)

    @cached_property
    def alone(self) -> Float[np.ndarray, "T"] | None:
        """The T gains of attention where nothing else changes a profile, else None.

        That is where gains are the same everywhere and steps multiply all of the gradient by one number.
        """
        parts = (self.attention, self.outputs, self.steps)
        even = all(bool((x == x[:, :1]).all()) for x in parts)
        gated = bool((self.steps[:, :1, None] * (1 - self.overlaps)).any())
        if not even or gated or (self.parallel and self.steps.any()):
            return None
        return np.asarray(self.attention[:, 0] * self.outputs[:, 0])

    def mixing(self, n: int) -> Float[np.ndarray, "T"]:
        """Return λ = c/(1 + c), c the root mean square gain over n positions: with it sizes are added in a rollout.

        >>> gains([1], [[1.0]]).mixing(8).tolist()
        [0.5]
        """
        at = self.at(np.arange(1.0, errors.positive_integer("n", n) + 1))
        c = np.sqrt((at["scales"] ** 2).mean(1) * (at["outputs"] ** 2).mean(1))
        return np.asarray(c / (1 + c))

    def at(self, positions: Float[np.ndarray, "n"]) -> dict[str, Any]:
        """Return what :func:`~posbias.rollout.untrained.untrained_profile` is given beside kernels of n positions.

        Gains are all in the factors of keys, so that those of heads are 1 / √H.

        >>> at = gains([1, 4], attention=[[1.0, 3.0]]).at(np.array([1.0, 2.0, 4.0, 8.0]))
        >>> at["scales"].tolist(), at["steps"]
        ([[1.0, 2.0, 3.0, 3.0]], None)
        """
        weights = self._weights(positions)
        stepped = bool(self.steps.any())
        return {
            "gains": np.ones(self.T),
            "scales": self.attention @ weights.T,
            "outputs": self.outputs @ weights.T,
            "steps": KnotSteps(weights, self.steps, self.overlaps) if stepped else None,
            "parallel": np.full(self.T, float(self.parallel)),
        }

    def _weights(self, positions: np.ndarray) -> Float[np.ndarray, "n g"]:
        """Return the weights of the knots at positions: straight lines in log j, constant beyond the ends."""
        x, knots = np.log(positions), np.log(self.positions)
        return np.stack([np.interp(x, knots, one) for one in np.eye(knots.size)], axis=1)


@dataclass(frozen=True, eq=False)
class KnotSteps:
    """Hold the Gram factors of steps at n positions by their values at a few: a layer is written out when asked for.

    >>> KnotSteps(np.eye(2), np.array([[1.0, 2.0]]), np.array([[[0.5, 0.25], [0.25, 0.5]]]))[0]
    array([[1. , 0.5],
           [0.5, 4. ]])
    """

    weights: Float[np.ndarray, "n g"]  # Of the knots at each position
    # sizes, overlaps: As :class:`Gains` has steps and overlaps
    sizes: Float[np.ndarray, "T g"]
    overlaps: Float[np.ndarray, "T g g"]

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self.sizes)

    @cached_property
    def diagonals(self) -> Float[np.ndarray, "T n"]:
        """Entries of tokens with themselves."""
        return np.asarray((self.sizes @ self.weights.T) ** 2)

    def __getitem__(self, t: int) -> Float[np.ndarray, "n n"]:
        """Return layer ``t``'s matrix written out."""
        sent = (self.sizes[t] @ self.weights.T)[:, None] * self.weights
        K = sent @ self.overlaps[t] @ sent.T
        np.fill_diagonal(K, self.diagonals[t])
        return np.asarray(K)


def gains(
    positions: Numbers,
    attention: Numbers,
    *,
    outputs: Numbers | None = None,
    steps: Numbers | None = None,
    overlaps: Numbers | None = None,
    parallel: bool = False,
    field: str = "gains",
) -> Gains:
    """Return gains of T layers at g positions, checked.

    >>> gains([1], [[0.5], [0.25]]).alone.tolist()
    [0.5, 0.25]
    """
    at = errors.finite_array(f"{field}.positions", positions, ndim=(1,))
    if not at.size or at[0] < 1 or (np.diff(at) <= 0).any():
        raise errors.invalid(f"{field}.positions", "increasing numbers from 1 on", at.tolist()[:5])
    given = errors.finite_array(f"{field}.attention", attention, ndim=(2,))
    T, g = len(given), at.size
    c = _rows(f"{field}.attention", given, T, g)
    if not T or not c.any():
        raise errors.invalid(f"{field}.attention", "layers, and at least one gain above 0", "none")
    rho = np.ones((T, g, g)) if overlaps is None else errors.finite_array(f"{field}.overlaps", overlaps, ndim=(3,))
    if rho.shape != (T, g, g):
        raise errors.invalid(f"{field}.overlaps", f"({T}, {g}, {g}) numbers", f"shape {rho.shape}")
    if np.abs(rho).max() > 1 or (rho != rho.swapaxes(1, 2)).any():
        received = f"{rho.flat[np.abs(rho).argmax()]:.6g}" if np.abs(rho).max() > 1 else "others"
        raise errors.invalid(f"{field}.overlaps", "symmetric numbers in [-1, 1]", received)
    least = float(np.linalg.eigvalsh(rho).min())
    if least < -SLACK:
        raise errors.invalid(f"{field}.overlaps", "positive semidefinite matrices", f"an eigenvalue of {least:.3g}")
    return Gains(
        at,
        c,
        np.ones((T, g)) if outputs is None else _rows(f"{field}.outputs", outputs, T, g),
        np.zeros((T, g)) if steps is None else _rows(f"{field}.steps", steps, T, g),
        rho,
        bool(parallel),
    )


def gains_of_mixing(lambda_: Numbers) -> Gains:
    """Return gains c = λ/(1 - λ), the same everywhere, with no steps.

    >>> gains_of_mixing([0.5, 0.2]).alone.tolist()
    [1.0, 0.25]
    """
    mixing = errors.mixing_coefficients("lambda", lambda_)
    if mixing.max(initial=0) >= 1:
        raise errors.invalid("lambda", "values below 1 under the law of untrained networks", mixing.max())
    if not mixing.any():
        raise errors.invalid("lambda", "at least one value above 0", "none")
    return gains([1], (mixing / (1 - mixing))[:, None])


def _rows(field: str, values: Numbers, T: int, g: int) -> np.ndarray:
    """Return (T, g) numbers from 0 to :data:`LARGEST`, or raise ValueError."""
    x = errors.finite_array(field, values, ndim=(2,))
    if x.shape != (T, g):
        raise errors.invalid(field, f"({T}, {g}) numbers, a row for each layer", f"shape {x.shape}")
    if (x < 0).any() or x.max(initial=0) > LARGEST:
        raise errors.invalid(field, f"numbers from 0 to {LARGEST:g}", f"{x.min():.6g} to {x.max():.6g}")
    return x

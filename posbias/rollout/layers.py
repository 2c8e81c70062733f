"""Kernels of T layers × H heads, from which a rollout takes one layer at a time as a linear operator."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.operators import Matrix


class Layers(ABC):
    """The kernels of T layers: each kind says which ones a layer's heads have."""

    # T, H: Numbers of layers and heads; no T where one array stands for any number of layers
    T: int | None
    H: int
    weights: Float[np.ndarray, "_ H"]  # Head weights, shape (1 or T, H), each row summing to 1

    @property
    @abstractmethod
    def same_in_every_layer(self) -> bool:
        """Whether one kernel serves all layers."""

    @abstractmethod
    def heads(self, t: int, n: int, weights: Float[np.ndarray, "H"] | None = None) -> list[tuple[Any, float]]:
        """Return the different kernels of layer ``t`` (0-based) for n tokens with the sums of their heads' weights."""

    def kernel(self, t: int, n: int, weights: Float[np.ndarray, "H"] | None = None) -> Any:
        """Return the head-averaged kernel of layer ``t`` for n tokens as a linear operator."""
        (A, w), *others = self.heads(t, n, weights)
        return sum((x * B for B, x in others), start=w * A)

    def tokens(self, n: int | None) -> int:
        """Return the number of tokens, n unless the kernels have their own."""
        return errors.positive_integer("n", n)

    def dense(self, t: int, n: int) -> Float[np.ndarray, "n n"]:
        """Return layer ``t``'s head-averaged kernel as an (n, n) matrix, by products: for checks and small n."""
        return np.asarray(self.kernel(t, n).rmatmat(np.eye(n))).T


class WrittenOut(Layers):
    """Kernels given as one array (n, n) for all layers, (T, n, n), or (T, H, n, n)."""

    def __init__(self, kernels: Numbers | Sequence, ndim: tuple[int, ...] = (2, 3)) -> None:
        A = errors.finite_array("kernels", kernels, ndim=ndim)
        errors.stochastic_kernel("kernels", A.reshape(-1, *A.shape[-2:]))
        self.A = A[None, None] if A.ndim == 2 else A[:, None] if A.ndim == 3 else A
        self.T = None if A.ndim == 2 or len(A) == 1 else len(A)
        self.H = self.A.shape[1]
        self.weights = np.full((1, self.H), 1 / self.H)

    @property
    def same_in_every_layer(self) -> bool:
        """Whether one kernel serves all layers."""
        return len(self.A) == 1

    def heads(self, t: int, n: int, weights: Float[np.ndarray, "H"] | None = None) -> list[tuple[Any, float]]:
        """Return the kernels of layer ``t`` and their weights, uniform unless given."""
        w = self.weights[0] if weights is None else weights
        return [(Matrix(A), float(x)) for A, x in zip(self.A[min(t, len(self.A) - 1)], w, strict=True)]

    def dense(self, t: int, n: int) -> Float[np.ndarray, "n n"]:
        """Return the head-averaged kernel of layer ``t``."""
        return np.asarray(self.A[min(t, len(self.A) - 1)].mean(0))

    def tokens(self, n: int | None) -> int:
        """Return the number of tokens that the arrays have, or raise ValueError if it is another."""
        if n not in (None, self.A.shape[-1]):
            raise errors.invalid("n", f"{self.A.shape[-1]}, the size of the kernels", n)
        return int(self.A.shape[-1])

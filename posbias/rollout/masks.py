"""Attention masks: which key positions a query may draw from."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool

from posbias import errors

MaskKind = Literal["full", "causal", "window", "prefix"]


@dataclass(frozen=True)
class Mask:
    """Say which keys j each query i may attend to, whatever the length of the sequence.

    Make one with :func:`full`, :func:`causal`, :func:`sliding_window` or :func:`prefix`. ``width`` is the tokens in the
    window (the query itself included) or in the prefix, 0 for the other kinds.

    Source: Wu et al. 2025, section 3 (causal, sliding-window and prefix masks as graphs).
    """

    kind: MaskKind
    width: int = 0

    def matrix(self, n: int) -> Bool[np.ndarray, "n n"]:
        """Return the (n, n) matrix that is True where query i may attend to key j.

        >>> sliding_window(2).matrix(3).astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [0, 1, 1]])
        """
        n = errors.positive_integer("n", n)
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        if self.kind == "full":
            return np.ones((n, n), dtype=bool)
        if self.kind == "window":
            return (j <= i) & (j > i - self.width)
        if self.kind == "prefix":
            return (j <= i) | ((i < self.width) & (j < self.width))
        return j <= i


def full() -> Mask:
    """Allow every key: j = 1..n (an encoder's mask)."""
    return Mask("full")


def causal() -> Mask:
    """Allow the query and what came before it: j ≤ i."""
    return Mask("causal")


def sliding_window(width: int) -> Mask:
    """Allow the last ``width`` tokens, the query included: i - width < j ≤ i."""
    return Mask("window", errors.positive_integer("window", width))


def prefix(width: int) -> Mask:
    """Let the first ``width`` tokens see one another and every later token see its past."""
    return Mask("prefix", errors.positive_integer("prefix", width))

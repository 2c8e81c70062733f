"""The constant-plus-diagonal form of mean content logits, and what it leaves unexplained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias import errors


@dataclass(frozen=True)
class ConstantPlusDiagonal:
    """Hold the least-squares fit c + d·1[i = j] of a matrix of content logits."""

    constant: float
    diagonal: float
    residual: float
    explained: float


def constant_plus_diagonal(logits: Float[np.ndarray, "n n"]) -> ConstantPlusDiagonal:
    """Fit c + d·1[i = j] to the visible entries of a matrix of content logits.

    Source: residual-aware paper, Proposition 4.5 (the form) and appendix E (that it is close).

    >>> constant_plus_diagonal(np.array([[3.0, np.nan], [1.0, 3.0]]))
    ConstantPlusDiagonal(constant=1.0, diagonal=2.0, residual=0.0, explained=1.0)
    """
    values = np.asarray(logits, dtype=np.float64)
    on = np.eye(len(values), dtype=bool)
    seen = ~np.isnan(values)
    if not seen[on].all() or not (seen & ~on).any():
        raise errors.invalid("logits", "a visible diagonal and a visible pair off it", "neither or one of them")
    c = float(values[seen & ~on].mean())
    d = float(values[on].mean()) - c
    left = (values - c - d * on)[seen]
    variance = float(values[seen].var())
    explained = 1 - float((left**2).mean()) / variance if variance > 0 else 1.0
    return ConstantPlusDiagonal(c, d, float(np.sqrt((left**2).mean())), explained)

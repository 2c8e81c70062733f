"""Stochastic order on positions: who leans to the start, who to the end, and by how much a kernel breaks order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias import errors

ROUNDING = 1e-12  # differences of prefix masses below this are taken as equal


def prefix_masses(p: Float[np.ndarray, "... n"] | Sequence) -> Float[np.ndarray, "... n"]:
    """Return Σ_{j ≤ k} p[j] for every cutoff k: the distribution function on positions.

    >>> prefix_masses(np.array([0.2, 0.3, 0.5])).tolist()
    [0.2, 0.5, 1.0]
    """
    return np.cumsum(p, axis=-1)


def dominates(q: Float[np.ndarray, "n"] | Sequence, p: Float[np.ndarray, "n"] | Sequence) -> bool:
    """Say whether q is at least as recent as p: no prefix holds more of q than of p.

    First-order stochastic dominance p ⪯ q, up to rounding in prefix mass.

    Source: residual-aware paper, appendix A.1.

    >>> dominates(np.array([0.1, 0.9]), np.array([0.5, 0.5]))
    True
    """
    p, q = np.asarray(p), np.asarray(q)
    if p.shape != q.shape:
        raise errors.invalid("profiles", "the same number of positions", f"{p.size} and {q.size}")
    return bool((prefix_masses(p) - prefix_masses(q) >= -ROUNDING).all())


@dataclass(frozen=True)
class Monotonicity:
    """Say how far a kernel is from stochastically monotone, over all triples (i < i', cutoff k)."""

    violated: float  # Share of triples in which the later row i' holds more mass in the prefix than row i
    mean_gap: float  # Mean excess prefix mass over the violated triples; 0 if there are none
    shortfall: float  # Mean excess over all triples, violated or not
    largest: float  # Largest excess


def stochastic_monotonicity(K: Float[np.ndarray, "n n"] | Sequence) -> Monotonicity:
    """Measure how often and by how much later rows of K hold more prefix mass than earlier ones.

    Triples run over i < i' and the cutoffs k = 1..n-1 (at k = n every row holds everything).

    Source: residual-aware paper, Assumption 4.1 and Definition A.1.

    >>> stochastic_monotonicity(np.array([[0.5, 0.5], [1.0, 0.0]]))
    Monotonicity(violated=1.0, mean_gap=0.5, shortfall=0.5, largest=0.5)
    """
    masses = prefix_masses(errors.stochastic_kernel("K", K))[:, :-1]
    triples, count, total, largest = 0, 0, 0.0, 0.0
    for i in range(len(masses) - 1):
        excess = masses[i + 1 :] - masses[i]
        over = excess[excess > ROUNDING]
        triples += excess.size
        count += over.size
        total += float(over.sum())
        largest = max(largest, float(over.max(initial=0.0)))
    if triples == 0:
        return Monotonicity(0.0, 0.0, 0.0, 0.0)
    return Monotonicity(count / triples, total / count if count else 0.0, total / triples, largest)

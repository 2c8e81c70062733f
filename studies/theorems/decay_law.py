"""The accumulated law of a decay mask, (t + x choose x) e^(-mx): rollouts against it, and where its peak is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.errors import Numbers
from studies.theorems.by_distance import distances
from studies.theorems.encodings import decay_peak, log_walks


def log_decay_law(t: int, x: Numbers, slope: int | float) -> Float[np.ndarray, "..."]:
    """Return log (t + x choose x) - m x.

    Parameters
    ----------
    t
        Layers after the first, at least 0.
    x
        Distances, ≥ 0.
    slope
        m, logits per token.

    Source: Wu et al. 2025, theorem 4.5.

    >>> np.exp(log_decay_law(1, [0, 1], np.log(2))).round(6).tolist()
    [1.0, 1.0]
    """
    return np.asarray(log_walks(t, x) - slope * np.asarray(x, dtype=float))


def log_law_ratios(history: Float[np.ndarray, "T n n"], slope: int | float) -> Float[np.ndarray, "T pairs"]:
    """Return the log of P_T[i, j] over the law, for every depth T = 1, 2, … and every pair j ≤ i.

    Parameters
    ----------
    history
        Rollouts after 1, 2, … layers of causal kernels.
    slope
        m of the decay mask, logits per token.

    Source: Wu et al. 2025, theorem 4.5: T log C_min and T log C_max bound it.

    >>> log_law_ratios(np.array([[[1.0, 0.0], [1 / 3, 2 / 3]]]), np.log(2)).round(3).tolist()
    [[0.0, -0.405, -0.405]]
    """
    x = distances(history.shape[-1])
    seen = x >= 0
    return np.stack([np.log(P[seen]) - log_decay_law(t, x[seen], slope) for t, P in enumerate(history)])


@dataclass(frozen=True)
class PeakErrors:
    """Hold how far formulas for the peak of the law are from the law itself.

    Parameters
    ----------
    rounded
        Peak among the integers minus ⌊x*⌋, in tokens.
    continuous
        x* minus the maximum of the law with gamma functions for factorials, in tokens; 0 where x* ≤ 1.
    stirling
        Stirling's log of the binomial at x*, without its square root, minus the true one; 0 where x* ≤ 1.
    """

    rounded: int
    continuous: float = 0.0
    stirling: float = 0.0


def peak_errors(t: int, slope: int | float) -> PeakErrors:
    """Compare x* = t / (e^m - 1) with the law that it is the peak of.

    Parameters
    ----------
    t
        Layers after the first, at least 1.
    slope
        m > 0, logits per token.

    Source: Wu et al. 2025, after theorem 4.5.

    >>> peak_errors(1, np.log(3))
    PeakErrors(rounded=0, continuous=0.0, stirling=0.0)
    """
    from scipy.optimize import minimize_scalar

    star = float(decay_peak(t, slope))
    rounded = int(log_decay_law(t, np.arange(int(2 * star) + 50), slope).argmax()) - int(np.floor(star))
    if star <= 1:
        return PeakErrors(rounded)
    top = minimize_scalar(
        lambda x: -float(log_decay_law(t, x, slope)),
        bounds=(0, 2 * star + 1),
        method="bounded",
        options={"xatol": 1e-9},
    )
    binomial = (t + star) * np.log(t + star) - t * np.log(t) - star * np.log(star)
    return PeakErrors(rounded, star - float(top.x), float(binomial - log_walks(t, star)))

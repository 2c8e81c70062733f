"""Uniform causal attention in the limit of many tokens: the law of the relative position after some hops.

A hop multiplies the relative position x = j/n by a uniform number, so that after k hops -log x is a Gamma(k, 1)
variable. Laws are given by the weights ω_k of the numbers of hops; ω_0 is an atom at x = 1.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors


def limit_distribution(x: Float[np.ndarray, "m"], weights: Float[np.ndarray, "hops"]) -> Float[np.ndarray, "m"]:
    """Return the probability of a relative position of at most x < 1: Σ_{k ≥ 1} ω_k Q(k, -log x).

    Q is the upper incomplete Gamma function, divided by the complete one.

    Source: each hop multiplies the position by a uniform number.

    >>> limit_distribution(np.array([0.25]), np.array([0.5, 0.5])).round(6).tolist()
    [0.125]
    """
    from scipy.special import gammaincc

    return gammaincc(np.arange(1, len(weights)), _depth(x)[:, None]) @ weights[1:]


def limit_integral(x: Float[np.ndarray, "m"], weights: Float[np.ndarray, "hops"]) -> Float[np.ndarray, "m"]:
    """Return the integral from 0 to x of :func:`limit_distribution`, by parts.

    ∫_0^x Q(k, -log y) dy = x Q(k, s) - 2^{-k} Q(k, 2s) with s = -log x.

    >>> limit_integral(np.array([1.0]), np.array([0.0, 1.0])).tolist()
    [0.5]
    """
    from scipy.special import gammaincc

    k, s = np.arange(1, len(weights)), _depth(x)[:, None]
    return (x[:, None] * gammaincc(k, s) - 0.5**k * gammaincc(k, 2 * s)) @ weights[1:]


def wasserstein_to_limit(p: Float[np.ndarray, "n"], weights: Float[np.ndarray, "hops"]) -> float:
    """Return W₁ between p on the positions 1/n, 2/n, …, 1 and the limit law.

    Exact as long as the two distribution functions do not cross inside a cell, as those of uniform attention do
    not: at finite n every position is rounded up.

    >>> wasserstein_to_limit(np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    0.25
    """
    p = errors.distribution("profile", p)
    x = np.arange(1, p.size + 1) / p.size
    below = np.append(0.0, np.cumsum(p)[:-1])
    return float(np.abs(np.diff(limit_integral(x, weights), prepend=0.0) - below / p.size).sum())


def _depth(x: np.ndarray) -> np.ndarray:
    """Return -log x, or raise ValueError if x is no relative position."""
    if not ((x > 0) & (x <= 1)).all():
        raise errors.invalid("x", "relative positions above 0 and up to 1", f"values from {x.min()} to {x.max()}")
    return -np.log(x)

"""Profiles as mixtures over the number of hops: rows of powers of one kernel, and weights to mix them with.

Where all layers share a kernel A, the rollout is Σ_k ω_k e A^k with ω_k the probability of k hops. Rows e A^k are
computed once; a schedule, its clock, and everything in between are then different weights for the same rows. In uniform
causal attention of many tokens a hop multiplies the relative position x = j/n by a uniform number, so that after k hops
-log x is a Gamma(k, 1) variable; ω_0 is an atom at x = 1.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy.special import gammaincc

from posbias.errors import Numbers
from posbias.rollout.clock import hop_distribution, poisson_distribution
from posbias.rollout.influence import influence_history
from posbias.rollout.structured import StructuredKernels


def hop_rows(kernels: StructuredKernels, hops: int, n: int) -> Float[np.ndarray, "rows n"]:
    """Return the last rows of A^0, A^1, …, A^hops for a kernel A that all layers share.

    >>> from posbias.rollout.structured import structured_kernels
    >>> hop_rows(structured_kernels(1), 1, 2)
    array([[0. , 1. ],
           [0.5, 0.5]])
    """
    return influence_history(dataclasses.replace(kernels, T=hops), np.ones(hops), n)


def mix_hops(rows: Float[np.ndarray, "rows n"], weights: Float[np.ndarray, "hops"]) -> Float[np.ndarray, "n"]:
    """Return Σ_k ω_k rows[k]; where there are more weights than rows, or fewer, the others count as 0.

    >>> mix_hops(np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([0.5, 0.5]))
    array([0.25, 0.75])
    """
    return weights[: len(rows)] @ rows[: len(weights)]


def clock_error_bound(lambda_: Numbers) -> float:
    """Return (1 - e^{-τ})/τ · Σ λ_t²: a bound on the total variation between rollout and clock.

    It holds for any kernel that all layers share, since both are mixtures of the same powers of A.

    Source: Barbour and Hall 1984, theorem 1, sharpening Le Cam 1960.

    >>> round(clock_error_bound([0.1] * 10), 4)
    0.0632
    """
    lambda_ = np.asarray(lambda_)
    tau = float(lambda_.sum())
    return 0.0 if tau == 0 else float(-np.expm1(-tau) / tau * (lambda_**2).sum())


def partly_exact_hops(lambda_: Numbers, exact: int) -> tuple[Float[np.ndarray, "hops"], float]:
    """Return the weights of the numbers of hops if only the largest λ_t are treated exactly, and their error.

    All others run by the clock, as a Poisson number. The error is :func:`clock_error_bound` of them.

    >>> weights, bound = partly_exact_hops([0.5, 0.5], 2)
    >>> weights.tolist(), bound
    ([0.25, 0.5, 0.25], 0.0)
    """
    falling = np.sort(lambda_)[::-1]
    others = falling[exact:]
    weights = np.convolve(hop_distribution(falling[:exact]), poisson_distribution(others.sum()))
    return weights, clock_error_bound(others)


def limit_distribution(x: Float[np.ndarray, "m"], weights: Float[np.ndarray, "hops"]) -> Float[np.ndarray, "m"]:
    """Return the probability of a relative position of at most x < 1: Σ_{k ≥ 1} ω_k Q(k, -log x).

    Q is the upper incomplete Gamma function, divided by the complete one.

    Source: each hop multiplies the position by a uniform number.

    >>> limit_distribution(np.array([0.25]), np.array([0.5, 0.5])).round(6).tolist()
    [0.125]
    """
    return gammaincc(np.arange(1, len(weights)), -np.log(x)[:, None]) @ weights[1:]


def limit_integral(x: Float[np.ndarray, "m"], weights: Float[np.ndarray, "hops"]) -> Float[np.ndarray, "m"]:
    """Return the integral from 0 to x of :func:`limit_distribution`, by parts.

    ∫_0^x Q(k, -log y) dy = x Q(k, s) - 2^{-k} Q(k, 2s) with s = -log x.

    >>> limit_integral(np.array([1.0]), np.array([0.0, 1.0])).tolist()
    [0.5]
    """
    k, s = np.arange(1, len(weights)), -np.log(x)[:, None]
    return (x[:, None] * gammaincc(k, s) - 0.5**k * gammaincc(k, 2 * s)) @ weights[1:]


def wasserstein_to_limit(p: Float[np.ndarray, "n"], weights: Float[np.ndarray, "hops"]) -> float:
    """Return W₁ between p on the positions 1/n, 2/n, …, 1 and the limit law.

    Exact as long as the two distribution functions do not cross inside a cell, as those of uniform attention do
    not: at finite n every position is rounded up.

    >>> wasserstein_to_limit(np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    0.25
    """
    x = np.arange(1, p.size + 1) / p.size
    below = np.append(0.0, np.cumsum(p)[:-1])
    return float(np.abs(np.diff(limit_integral(x, weights), prepend=0.0) - below / p.size).sum())

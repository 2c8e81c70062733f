"""Hops and the mixing clock: how many attention hops a path takes, and what total mixing alone predicts.

If all layers share one kernel A, then P = Π((1 - λ_t) I + λ_t A) = Σ_k w_k A^k, where w_k is the probability
that k of T independent events with probabilities λ_t happen: the number of attention hops on a path is
Poisson-binomial. Replacing it by the Poisson distribution of the same mean τ = Σλ_t gives exp(τ(A - I)).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers

UNDERFLOW = 1e-60  # hop probabilities below this are dropped while the distribution is built


def hop_distribution(lambda_: Numbers) -> Float[np.ndarray, "hops"]:
    """Return w_k = P(k attention hops), k = 0, 1, …: Poisson-binomial with the probabilities λ_t.

    Trailing probabilities below 1e-60 are dropped, so that many layers that mix little make few hops.
    :data:`scipy.stats.poisson_binom` gives the same numbers, but all T + 1 of them in T² steps.

    Source: expansion of the rollout product; for equal kernels it is exact.

    >>> hop_distribution([0.5, 0.5]).tolist()
    [0.25, 0.5, 0.25]
    """
    w = np.ones(1)
    for mixing in errors.mixing_coefficients("lambda_", lambda_):
        w = np.append(w * (1 - mixing), 0.0) + np.append(0.0, w * mixing)
        w = w[: int(np.flatnonzero(w > UNDERFLOW)[-1]) + 1]
    return w


def poisson_distribution(tau: float) -> Float[np.ndarray, "hops"]:
    """Return e^{-τ} τ^k / k! for k up to where the rest is below 1e-18.

    >>> poisson_distribution(1.0)[:3].round(4).tolist()
    [0.3679, 0.3679, 0.1839]
    """
    from scipy.stats import poisson

    tau = _clock_time(tau)
    hops = 1 if tau == 0 else int(tau + 12 * np.sqrt(tau) + 40)
    return np.asarray(poisson.pmf(np.arange(hops), tau))


def clock_profile(A: Float[np.ndarray, "n n"], tau: float, *, row: int = -1) -> Float[np.ndarray, "n"]:
    """Return a row of exp(τ (A - I)): what one number, total mixing, predicts for the influence profile.

    Parameters
    ----------
    A
        Row-stochastic attention kernel.
    tau
        Total mixing Σ λ_t ≥ 0.
    row
        Row asked for; the last unless given.

    Source: the forward-Euler reading of R_t = I + λ_t (A - I); evaluated by its Poisson expansion
    (uniformisation), in which every term is positive.

    >>> clock_profile(np.array([[1.0, 0.0], [1.0, 0.0]]), np.log(2)).round(6)
    array([0.5, 0.5])
    """
    A = errors.stochastic_kernel("A", A)
    if A.ndim != 2:
        raise errors.invalid("A", "one (n, n) kernel", f"shape {A.shape}")
    v = np.eye(len(A))[errors.index("row", row, len(A))]
    total = np.zeros(len(A))
    for k, w in enumerate(poisson_distribution(tau)):
        v = v @ A if k else v
        total += w * v
    return total


def clock_error_bound(lambda_: Numbers) -> float:
    """Return (1 - e^{-τ})/τ · Σ λ_t²: a bound on the total variation between rollout and clock.

    It holds for any kernel that all layers share, since both are mixtures of the same powers of A.

    Source: Barbour and Hall 1984, theorem 1, sharpening Le Cam 1960.

    >>> round(clock_error_bound([0.1] * 10), 4)
    0.0632
    """
    lambda_ = errors.mixing_coefficients("lambda_", lambda_)
    tau = float(lambda_.sum())
    return 0.0 if tau == 0 else float(-np.expm1(-tau) / tau * (lambda_**2).sum())


def uniform_clock_density(x: Float[np.ndarray, ...], tau: float) -> Float[np.ndarray, ...]:
    """Return the density on 0 < x < 1 of uniform causal attention run for time τ, in the limit of many tokens.

    With u = -log x it is e^{-τ} √(τ/u) I₁(2√(τu)); the last token keeps an atom e^{-τ} beside it.

    Parameters
    ----------
    x
        Relative position j/n, in (0, 1).
    tau
        Total mixing, ≥ 0.

    Source: each hop multiplies the position by a uniform number, so that k hops make u a Gamma(k, 1)
    variable; the Poisson mixture over k ≥ 1 sums to a modified Bessel function.

    >>> uniform_clock_density(np.array([0.5]), 1.0).round(4)
    array([0.511])
    """
    from scipy.special import ive

    tau = _clock_time(tau)
    x = np.asarray(x, dtype=np.float64)
    if not ((x > 0) & (x < 1)).all():
        raise errors.invalid("x", "positions strictly between 0 and 1", f"values from {x.min()} to {x.max()}")
    u = -np.log(x)
    z = 2 * np.sqrt(tau * u)
    return np.sqrt(tau / u) * ive(1, z) * np.exp(z - tau)


def _clock_time(tau: float) -> float:
    """Return τ as a float, or raise if it is not a number ≥ 0."""
    value = float(errors.finite_array("tau", tau, ndim=(0,)))
    if value < 0:
        raise errors.invalid("tau", "total mixing ≥ 0", value)
    return value

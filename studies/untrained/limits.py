"""Limits of the law of untrained networks: many tokens, many layers, and the first token against the last.

All layers share a causal kernel A whose logits fall by a slope m for each token of distance; slope × length ℓ = m n is
held fixed, and ℓ = 0 is uniform attention. After k hops n (A^k)[n, j] tends to s'(x) u^(k-1) / (k-1)! with x = j/n,
s = (e^(ℓx) - 1) / (e^ℓ - 1) and u = -log s. Aligned maps add these with weights ω_k, independent maps add their
squares, and the profile is the root; ω_k is the probability of k hops, with odds c_t, the gain of layer t, in the first
case and c_t² in the second. The last token's ω_0, or its root, stays.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln

from posbias.errors import Numbers
from posbias.rollout.clock import poisson_distribution
from posbias.rollout.profiles import LimitTrough

SMOOTH = 4000
"""Points on which minima are looked for."""


def square_density(x: Float[np.ndarray, "m"], omega: Numbers, ell: float = 0.0) -> Float[np.ndarray, "m"]:
    """Return s'(x) (Σ_{k ≥ 1} ω_k (u^(k-1) / (k-1)!)²)^½: n times the profile's interior, on the scale of √ω_0 at last.

    Source: ours. For Poisson weights of mean Σ and ℓ = 0 it is (e^(-Σ) Σ ₀F₂(; 1, 2; Σ u²))^½ with u = -log x.

    >>> square_density(np.array([1.0, np.exp(-1)]), [0.25, 0.25, 0.5]).round(6).tolist()
    [0.5, 0.866025]
    """
    omega = np.asarray(omega, dtype=np.float64)
    if ell == 0:
        return np.asarray(np.exp(_log_squares(-np.log(x), omega) / 2))
    u = -np.log(-np.expm1(-ell * x) / -np.expm1(-ell)) + ell * (1 - x)
    log_speed = np.log(ell) - ell * (1 - x) - np.log(-np.expm1(-ell))
    return np.asarray(np.exp(log_speed + _log_squares(np.maximum(u, 0.0), omega) / 2))


def last_share(omega: Numbers) -> float:
    """Return what the last token has of the profile of independent maps as n → ∞, whatever the slope.

    √ω_0 / (√ω_0 + ∫ e^(-u) (Σ_{k ≥ 1} ω_k (u^(k-1) / (k-1)!)²)^½ du).

    Source: ours; du = -s'(x)/s dx, so that the slope drops out.

    >>> round(last_share([0.2, 0.8]), 6)  # one layer of gain 2 keeps 1 of 1 + 2
    0.333333
    """
    omega = np.asarray(omega, dtype=np.float64)

    def at(u: float) -> float:
        return float(np.exp(_log_squares(np.array([u]), omega)[0] / 2 - u))

    inner = quad(at, 0, 20)[0] + quad(at, 20, np.inf)[0]
    return float(np.sqrt(omega[0]) / (np.sqrt(omega[0]) + inner))


def last_share_bounds(omega: Numbers) -> tuple[float, float]:
    """Return bounds of :func:`last_share`: the interior is between (Σ_{k ≥ 1} ω_k)^½ and Σ_{k ≥ 1} ω_k^½.

    Source: ours, Minkowski's inequality for integrals and the triangle inequality.

    >>> low, high = last_share_bounds([0.25, 0.25, 0.25, 0.25])
    >>> round(low, 6), round(high, 6)
    (0.25, 0.366025)
    """
    omega = np.asarray(omega, dtype=np.float64)
    root = np.sqrt(omega)
    return float(root[0] / root.sum()), float(root[0] / (root[0] + np.sqrt(omega[1:].sum())))


def square_minima(ell: float, omega: Numbers) -> list[LimitTrough]:
    """Return every local minimum inside (0, 1) of the density of independent maps for one slope, by place.

    The density falls where 1/L - 1 < e^u / (e^ℓ - 1), L = F'(u) / (2 F(u)), F = Σ_{k ≥ 1} ω_k (u^(k-1) / (k-1)!)².

    Source: ours.

    >>> from posbias.rollout.clock import poisson_distribution
    >>> [round(found.location, 2) for found in square_minima(1.0, poisson_distribution(1.0))]
    [0.48]
    >>> len(square_minima(12.0, poisson_distribution(8.0)))
    2
    """
    omega = np.asarray(omega, dtype=np.float64)

    def falls(u: np.ndarray) -> np.ndarray:
        return _log_slope(u, omega) * (1 + np.exp(u - ell) / -np.expm1(-ell)) - 1

    u = np.geomspace(1e-6, 3 * ell + 40, SMOOTH)
    signs = np.flatnonzero((falls(u)[:-1] < 0) & (falls(u)[1:] >= 0))
    found = [brentq(lambda at: float(falls(np.array([at]))[0]), u[i], u[i + 1]) for i in signs[::-1]]
    # from s = e^(-u): x = log(1 + (e^ℓ - 1) s) / ℓ
    places = np.logaddexp(0, ell + np.log(-np.expm1(-ell)) - np.array(found)) / ell
    end = square_density(np.array([1.0]), omega, ell)[0]
    return [LimitTrough(float(x), float(1 - square_density(np.array([x]), omega, ell)[0] / end)) for x in places]


def hops_to_first(n: int, hops: int) -> Float[np.ndarray, "hops"]:
    """Return (A^k)[n, 1] of uniform attention for k = 0, …, hops: 1/n times γ_(k-1)(1, 1/2, …, 1/n) for k ≥ 1.

    Source: ours; γ is the complete homogeneous symmetric polynomial, a sum over n ≥ i_1 ≥ … ≥ i_(k-1) ≥ 1.

    >>> hops_to_first(2, 3).tolist()
    [0.0, 0.5, 0.75, 0.875]
    """
    i = np.arange(1, n + 1)
    reach = (i == 1).astype(float)
    found = [reach[-1]]
    for _ in range(hops):
        reach = np.cumsum(reach) / i
        found.append(reach[-1])
    return np.array(found)


def log_first_over_last(n: int, omega: Numbers, power: int) -> float:
    """Return log Σ_k ω_k (A^k)[n, 1]^r - log Σ_k ω_k (A^k)[n, n]^r of uniform attention, r the power.

    Source: ours.

    >>> round(log_first_over_last(2, [0.5, 0.5], 1), 6)  # log of 1/4 over 3/4
    -1.098612
    """
    omega = np.asarray(omega, dtype=np.float64)
    first = hops_to_first(n, omega.size - 1) ** power
    last = float(n) ** (-power * np.arange(omega.size))
    return float(np.log(omega @ first) - np.log(omega @ last))


def log_first_bound(n: int, total: float, power: int, z: float) -> float:
    """Return log of z^r Z^r e^(Σ_r/z^r) / n^r, Z = ∏_{i ≤ n} i / (i - z): no schedule's first token exceeds it.

    Source: ours: e_k ≤ Σ_r^k / k!, and γ_(k-1) z^(k-1) is a term of Z = Σ_k γ_k z^k.

    >>> round(log_first_bound(2, 1.0, 1, 0.5), 6)
    1.594535
    """
    log_z = gammaln(n + 1) + gammaln(1 - z) - gammaln(n + 1 - z)
    return float(power * (np.log(z) + log_z - np.log(n)) + total / z**power)


def critical_total(n: int, power: int) -> float:
    """Return Σ_t c_t^r of many equal layers from which on the first token exceeds the last, uniform attention.

    With less no schedule of gains has a first token above the last. Its ratio to log n tends to (r/(r+1))^(r+1), which
    is 1/4 for aligned maps and 8/27 for independent ones.

    Source: ours.

    >>> round(critical_total(2, 1), 6)
    1.386294
    """

    def above(total: float) -> float:
        return log_first_over_last(n, poisson_distribution(total), power)

    return float(brentq(above, 1e-3, 2 * np.log(n) + 2, xtol=1e-10))


def _log_squares(u: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """Return log Σ_{k ≥ 1} ω_k (u^(k-1) / (k-1)!)²."""
    return np.asarray(np.logaddexp.reduce(_log_terms(u, omega), axis=-1))


def _log_slope(u: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """Return L = F'(u) / (2 F(u)) = Σ_k (k-1) term_k / (u Σ_k term_k), u > 0."""
    terms = _log_terms(u, omega)
    weights = np.exp(terms - terms.max(axis=-1, keepdims=True))
    return np.asarray(weights @ np.arange(omega.size - 1) / (weights.sum(axis=-1) * u))


def _log_terms(u: np.ndarray, omega: np.ndarray) -> np.ndarray:
    k = np.arange(omega.size - 1)  # hops after the first
    with np.errstate(divide="ignore"):
        log_weights, log_u = np.log(omega[1:]), np.log(np.where(u > 0, u, 1.0))
    powers = np.where((u[:, None] == 0) & (k > 0), -np.inf, 2 * k * log_u[:, None])
    return np.asarray(log_weights + powers - 2 * gammaln(k + 1))

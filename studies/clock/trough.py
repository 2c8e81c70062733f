"""When a rollout has a trough: ALiBi attention that all layers share, in the limit of many tokens.

Slope times length, c = m n, stays fixed while n grows. A hop from relative position y then has the density
A(y, x) = Σ_h w_h c_h e^{-c_h (y - x)} / (1 - e^{-c_h y}) on 0 < x < y, which is 1/y for a uniform head, c_h = 0. The
profile is an atom ω_0 at the last token and the density f = Σ_{k ≥ 1} ω_k f_k, with f_1 = A(1, ·) and f_{k+1} the
density after one hop more; ω_k is the probability of k hops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from posbias.errors import Numbers
from posbias.rollout.profiles import LimitTrough


def limit_density(x: Float[np.ndarray, "m"], c: float, omega: Sequence | np.ndarray) -> Float[np.ndarray, "m"]:
    """Return f(x) = s'(x) Σ_k ω_{k+1} u^k / k! with s = (e^{cx} - 1) / (e^c - 1), u = -log s: one slope, any hop law.

    Source: ours; a hop multiplies s by a uniform number, as uniform attention multiplies x.

    >>> limit_density(np.array([1.0]), np.log(2), [0.5, 0.5]).round(6).tolist()
    [0.693147]
    """
    u = np.maximum(-np.log(-np.expm1(-c * x) / -np.expm1(-c)) + c * (1 - x), 0.0)
    terms = _hop_terms(np.asarray(u), omega)
    return terms.sum(axis=-1) * c * np.exp(-c * (1 - x)) / -np.expm1(-c)


def limit_trough(c: float, omega: Sequence | np.ndarray) -> LimitTrough | None:
    """Return where the density for one slope is lowest inside and how deep, or None if it falls all the way.

    The density rises where φ(u) = b(u) / b'(u) - 1 - e^u / (e^c - 1) > 0, b(u) = Σ_k ω_{k+1} u^k / k!. φ is concave,
    so that f falls, rises between its two zeros, and falls again; the trough is at the larger zero.

    Source: ours.

    >>> from posbias.rollout.clock import poisson_distribution
    >>> limit_trough(1.0, poisson_distribution(1.3)) is None
    True
    >>> found = limit_trough(1.0, poisson_distribution(1.0))
    >>> round(found.location, 3), round(found.depth, 3)
    (0.592, 0.05)
    """
    from scipy.optimize import brentq, minimize_scalar

    log_one = np.log(-np.expm1(-c))

    def rise(u: float) -> float:
        terms = _hop_terms(np.array(max(u, 1e-12)), omega)
        return float(max(u, 1e-12) * terms.sum() / (terms @ np.arange(terms.size)) - 1 - np.exp(u - c - log_one))

    far = max(c + float(log_one), 0.0) + 1
    while rise(far) > 0 or rise(far) > rise(far / 2):
        far *= 2
    best = 0.0 if rise(0.0) > 0 else float(minimize_scalar(lambda u: -rise(u), bounds=(0, far), method="bounded").x)
    if rise(best) <= 0:
        return None
    u = float(brentq(rise, best, far, xtol=1e-13))
    x = np.logaddexp(0, c + log_one - u) / c
    lowest, end = limit_density(np.array([x, 1.0]), c, omega)
    return LimitTrough(float(x), float(1 - lowest / end))


def critical_mixing(c: float, tolerance: float = 0.0) -> float:
    """Return τ_* = sup_u g⁻¹(log r(u)) / u: with one slope the clock's f has a U exactly if its total mixing is below.

    At n tokens a U also needs a total mixing of about 2c/n or more, so that its trough is not before the first token.

    g(y) = log ₀F₁(; 2; y), and r(u) = e^c / (1 + (e^c - 1) e^{-u}) / (1 + tolerance) is how much higher the one-hop
    density stands at the end than at u.

    Source: ours. 2(1 - e^{-c}) for c ≤ log 4 and no tolerance, more beyond.

    >>> round(critical_mixing(1.0), 4), round(critical_mixing(4.0), 3)
    (1.2642, 2.599)
    """
    from scipy.optimize import minimize_scalar

    share = -np.expm1(-c)

    def ratio(u: np.ndarray) -> np.ndarray:
        low = -share * np.expm1(-u)  # 1 - 1/r; small if c or u is, and then log1p keeps its digits
        log_r = np.where(low < 0.5, -np.log1p(-np.minimum(low, 0.5)), -np.logaddexp(-c, np.log(share) - u))
        r = log_r - np.log1p(tolerance)
        return np.where(r > 0, _inverse_bessel(np.maximum(r, 0)) / u, 0.0)

    grid = np.geomspace(1e-3, 2 * c + 20, 400)
    k = int(np.clip(ratio(grid).argmax(), 1, grid.size - 2))
    top = minimize_scalar(lambda u: -ratio(np.array([u]))[0], bounds=(grid[k - 1], grid[k + 1]), method="bounded")
    return float(max(-top.fun, -2 * np.expm1(-c) if tolerance == 0 else 0.0))


def rising_ratio(c: Numbers, weights: Numbers | None = None) -> float:
    """Return χ = Σ w_h c_h κ_h / (Σ w_h κ_h)², κ = c / (1 - e^{-c}): f rises at its end exactly if ω_2 / ω_1 < χ.

    Source: ours; one hop adds Σ w_h c_h κ_h to f'(1), two hops take off the square of A(1, 1).

    >>> round(rising_ratio([np.log(2)]), 6), rising_ratio([0.0])
    (0.5, 0.0)
    """
    c = np.atleast_1d(np.asarray(c, dtype=float))
    w, top = _head_weights(c, weights), _at_end(c)
    return float(w @ (c * top) / (w @ top) ** 2)


def falling_ratio(c: Numbers, weights: Numbers | None = None) -> float:
    """Return sup_x (A(1,1) - A(1,x)) / f_2(x): f has no U if ω_2 / ω_1 is at least this.

    Where one and two hops alone keep every x above the end, more hops cannot lower it. For one slope it is about
    e^c / c, infinite beyond c = 700.

    Source: ours; f_2 by double-exponential quadrature in log-position, which resolves hops that are short against the
    prompt, the supremum on a grid of 600 places.

    >>> falling_ratio([0.5]) == rising_ratio([0.5])
    True
    """
    c = np.atleast_1d(np.asarray(c, dtype=float))
    w = _head_weights(c, weights)
    depth = np.geomspace(1e-3 / max(1.0, c.max()), 30, 600)[:, None]  # -log x
    t = np.linspace(-4, 4, 161)
    after, before = (depth / (1 + np.exp(sign * np.pi * np.sinh(t))) for sign in (-1, 1))  # -log y, log y / x
    step = depth * np.pi * np.cosh(t) * (t[1] - t[0]) / (4 * np.cosh(np.pi / 2 * np.sinh(t)) ** 2)
    y = np.exp(-after)
    first = _kernel(1.0, -np.expm1(-after), c, w)
    two = (first * _kernel(y, np.exp(-depth) * np.expm1(before), c, w) * y * step).sum(axis=1)
    gap = -np.expm1(-c * -np.expm1(-depth)) @ (w * _at_end(c))  # A(1, 1) - A(1, x)
    with np.errstate(over="ignore", divide="ignore"):
        return max(float((gap / two).max()), rising_ratio(c, w))


def _kernel(
    y: Float[np.ndarray, ...] | float,
    back: Float[np.ndarray, ...],
    c: Float[np.ndarray, "H"],
    w: Float[np.ndarray, "H"],
) -> Float[np.ndarray, ...]:
    """Return A(y, y - back), the density of a hop from y over a distance."""
    total = np.zeros(np.broadcast(y, back).shape)
    for slope, weight in zip(c, w, strict=True):
        total += weight * np.exp(-slope * back) * _at_end(slope * np.asarray(y)) / y
    return total


def _at_end(c: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
    """Return c / (1 - e^{-c}), 1 at 0."""
    safe = np.maximum(c, 1e-300)
    return safe / -np.expm1(-safe)


def _hop_terms(u: Float[np.ndarray, ...], omega: Sequence | np.ndarray) -> Float[np.ndarray, ...]:
    """Return ω_{k+1} u^k / k! for k = 0, 1, … on a last axis."""
    from scipy.special import gammaln, xlogy

    k = np.arange(len(omega) - 1)
    return np.asarray(omega[1:]) * np.exp(xlogy(k, u[..., None]) - gammaln(k + 1))


def _inverse_bessel(level: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Return y ≥ 0 with log ₀F₁(; 2; y) = level, by Newton's method: it is concave, so that the steps stay below."""
    from scipy.special import ive

    y = 2 * level
    for _ in range(60):
        z = 2 * np.sqrt(np.maximum(y, 1e-30))
        value = np.where(y < 1, _log_bessel_series(np.minimum(y, 1)), np.log(2 * ive(1, z) / z) + z)
        step = (level - value) * (z / 2) * ive(1, z) / ive(2, z)
        y = y + step
        if (np.abs(step) <= 1e-12 * y).all():  # the next one would be its square
            break
    return np.where(level > 0, y, 0.0)


def _log_bessel_series(y: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Return log ₀F₁(; 2; y) = log Σ y^k / (k! (k + 1)!) for 0 ≤ y ≤ 1, with all its digits where y is small."""
    terms = np.cumprod([y / (k * (k + 1)) for k in range(1, 13)], axis=0)
    return np.asarray(np.log1p(terms.sum(axis=0)))


def _head_weights(c: Float[np.ndarray, "H"], weights: Numbers | None) -> Float[np.ndarray, "H"]:
    w = np.ones(c.size) if weights is None else np.asarray(weights, dtype=float)
    return w / w.sum()

"""Kernels that make the rollout uniform, the flat one and one without a cut-off, and how far from uniform they end.

A uniform position is x = e^-u with u ~ Exp(1), whose Lévy density is e^-s / s. The flat kernel takes it on s > ε with
E₁(ε) = τ: its law differs from Exp(1) by an independent sum of the jumps below ε, so that it lies to the right of
uniform. Multiplied by e^u the density of its u solves (u q)' = q(u - ε), the equation of Buchstab's function.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.polynomial import Chebyshev
from scipy.special import exp1, hyp1f1

from posbias import errors
from posbias.rollout.position_bias import FlatBias, RatioBias, exponential_integral_inverse

OWN = 1e-12
"""Log-distances below this are those of the query to itself."""
LEVEL = 12
"""From here on Buchstab's function is e^-γ to the rounding of a double."""


def flat_distance(tau: float) -> float:
    """Return W₁ between uniform and the limit law of the flat kernel: ½ (e^(Ein(2ε) - Ein(ε)) - 1), E₁(ε) = τ.

    Ein(z) = ∫_0^z (1 - e^-s)/s ds. It is also the mean position less 1/2, the mean being e^(-τ + E₁(2ε)); it is above
    ½ e^-γ e^-τ and below ½ e^-τ for every τ > 0, and tends to the first as τ grows.

    Parameters
    ----------
    tau
        τ = Σλ_t > 0 of many layers that mix little, the kernel's own τ.

    Source: ours. With V the sum of a Poisson process of intensity e^-s / s on (0, ε], independent of the law's u,
    u + V ~ Exp(1): the law is to the right of uniform, W₁ is the difference of means, and E[e^-V] = e^-I,
    I = ∫_0^ε (e^-s - e^-2s)/s ds = Ein(2ε) - Ein(ε).

    >>> bool(round(flat_distance(4.8) * np.exp(4.8 + np.euler_gamma), 4) == 0.5017)
    True
    """
    cutoff = FlatBias(tau).cutoff
    return float(np.expm1(_ein(2 * cutoff) - _ein(cutoff)) / 2)


def flat_distance_bounds(tau: float, total: float) -> tuple[float, float]:
    """Return bounds of W₁ to uniform if the flat kernel of τ runs in a network whose Σλ_t is another.

    With r = Σλ/τ the mean is m = e^(-r (τ - E₁(2ε))) = (½ + W₁(τ))^r, and W₁ is between |m - ½| and
    (m - 2^-r) + |2^-r - ½|. Both are equal for r ≤ 1, where W₁ = m - ½. A relative error δ of Σλ costs about
    ½ log 2 · δ.

    Parameters
    ----------
    tau
        τ > 0 of the kernel.
    total
        Σλ_t > 0 of many layers that mix little.

    Raises
    ------
    ValueError
        If a number is not above 0.

    Source: ours. The limit law of jumps r e^-s / s without a cut-off is u ~ Gamma(r, 1), of mean 2^-r in x; all of them
    are ordered in r, and the cut-off moves to the right.

    >>> flat_distance_bounds(20.0, 10.0) == (2**-0.5 - 0.5,) * 2
    False
    >>> np.round(flat_distance_bounds(20.0, 10.0), 6).tolist()
    [0.207107, 0.207107]
    """
    total = float(errors.finite_array("total", total, ndim=(0,)))
    if total <= 0:
        raise errors.invalid("total", "a number above 0", total)
    ratio = total / tau
    mean, without = (0.5 + flat_distance(tau)) ** ratio, 0.5**ratio
    if ratio <= 1:
        return mean - 0.5, mean - 0.5
    return abs(mean - 0.5), mean - without + abs(without - 0.5)


def buchstab(v: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Return Buchstab's function: v ω(v) = 1 on [1, 2], (v ω(v))' = ω(v - 1) beyond, 0 below 1.

    It tends to e^-γ faster than exponentially, |ω(v) - e^-γ| ≤ 1/Γ(v + 1).

    Parameters
    ----------
    v
        Numbers.

    Source: Buchstab 1937, from the counting of integers without small prime factors; computed by Chebyshev series, one
    for each unit interval.

    >>> buchstab(np.array([0.5, 1.0, 2.0, 50.0])).round(6).tolist()
    [0.0, 1.0, 0.5, 0.561459]
    """
    v = errors.finite_array("v", v, ndim=(1,))
    out = np.where(v < 1, 0.0, np.exp(-np.euler_gamma))
    for k, piece in enumerate(_buchstab_pieces(), start=1):
        inside = (v >= k) & (v <= k + 1)
        out[inside] = piece(v[inside])
    return out


def flat_density(x: Float[np.ndarray, "m"], tau: float) -> Float[np.ndarray, "m"]:
    """Return the density on (0, 1) of the flat kernel's limit law, (e^-τ / ε) ω(log(1/x) / ε); the atom is e^-τ.

    It is 0 for x > e^-ε, starts from about e^γ = 1.78 at e^-ε, and is level to 1/Γ(v + 1) at x = e^(-vε), at
    e^-Ein(ε), which is above 1 - ε.

    Parameters
    ----------
    x
        Relative positions, strictly between 0 and 1.
    tau
        τ = Σλ_t > 0 of many layers that mix little.

    Raises
    ------
    ValueError
        If x is outside (0, 1) or τ is not above 0.

    Source: ours. q(u) = e^u × density solves u q(u) = e^-τ + ∫_0^(u-ε) q.

    >>> flat_density(np.array([0.1, 0.9999]), 4.8).round(4).tolist()
    [0.9954, 0.0]
    """
    x = errors.finite_array("x", x, ndim=(1,))
    if (x <= 0).any() or (x >= 1).any():
        raise errors.invalid("x", "positions strictly between 0 and 1", f"{x.min():g} to {x.max():g}")
    cutoff = exponential_integral_inverse(tau)
    return np.asarray(np.exp(-tau) / cutoff * buchstab(-np.log(x) / cutoff))


def uniform_bias(tau: float, lambda_: float = 0.0, *, farthest: float = 30.0, points: int = 600) -> RatioBias:
    """Return the bias whose rollout is uniform but for the atom e^-τ at the last token, exactly, in the limit.

    Its logits are log ₁F₁(1 - r; 2; -(e^τ - 1) s), r = -log(1 - λ) / τ, at s = log(i / j): one for each layer, of
    its own λ_t, with τ = -Σ log(1 - λ_t). For many layers, r → 0, it is log((1 - e^(-(e^τ - 1)s)) / s) up to a
    constant, the flat kernel's -log s without a cut-off; for one layer, r = 1, it is uniform attention. The query
    itself, at s = 0, counts half: the sum over keys is then the integral by the trapezoidal rule, which brings finite n
    nearer to the limit.

    Parameters
    ----------
    tau
        -Σ_t log(1 - λ_t) > 0 over all layers; Σλ_t for many that mix little.
    lambda_
        Mixing of the layer that the bias is for, from 0 (the limit of many layers) to 1 - e^-τ.
    farthest
        Largest log-distance of a point; log n or more.
    points
        Points of the bias, with straight lines between them.

    Raises
    ------
    ValueError
        If τ is not above 0, or the layer alone mixes more than all.

    Source: ours. With a = e^-τ the law has the transform (1 + aθ)/(1 + θ), whose r-th power is that of a law with the
    atom a^r = 1 - λ and the density λ k; expand (1 + (1/a - 1)/(1 + θ))^r in powers of 1/(1 + θ).

    >>> np.exp(uniform_bias(np.log(2), 0.5).values[:3]).round(6).tolist()  # one layer with λ = 1/2
    [0.5, 1.0, 1.0]
    """
    tau, lambda_ = (float(errors.finite_array(name, x, ndim=(0,))) for name, x in (("tau", tau), ("lambda_", lambda_)))
    if not 0 < tau <= 50:
        raise errors.invalid("tau", "a number above 0 and up to 50", tau)
    share = -np.log1p(-lambda_) / tau if 0 <= lambda_ < 1 else np.inf
    if share > 1 + 1e-9:
        raise errors.invalid("lambda_", f"a mixing from 0 to {-np.expm1(-tau):g}", lambda_)
    scale = np.expm1(tau)
    s = np.append(0.0, np.geomspace(1e-3 / scale, farthest, errors.positive_integer("points", points, minimum=2) - 1))
    z = scale * s
    if lambda_ == 0:
        ratio = np.divide(-np.expm1(-z), z, out=np.ones_like(z), where=z > 0)
    else:
        ratio = hyp1f1(max(1 - share, 0.0), 2.0, -z)
    return with_half_weight_on_query(s, np.log(ratio))


def with_half_weight_on_query(s: Float[np.ndarray, "m"], logits: Float[np.ndarray, "m"]) -> RatioBias:
    """Return the bias with points from s[0] = 0 on, the query's own key counting half.

    >>> with_half_weight_on_query(np.array([0.0, 1.0]), np.array([0.0, 2.0])).distances
    (0.0, 1e-12, 1.0)
    """
    s = np.concatenate([[0.0, OWN], s[1:]])
    return RatioBias(tuple(s.tolist()), tuple(np.concatenate([[logits[0] - np.log(2)], logits]).tolist()))


def _ein(z: float) -> float:
    """Return Ein(z) = ∫_0^z (1 - e^-s)/s ds."""
    if z > 2:
        return float(np.euler_gamma + np.log(z) + exp1(z))
    k = np.arange(1.0, 40.0)
    return float(-(np.cumprod(-z / k) / k).sum())


@lru_cache(maxsize=1)
def _buchstab_pieces() -> tuple[Chebyshev, ...]:
    """Return ω on [1, 2], [2, 3], … as Chebyshev series."""

    def next_piece(k: int, last: Chebyshev) -> Chebyshev:
        start, rise = k * last(k), last.integ(lbnd=k - 1)
        return Chebyshev.interpolate(lambda v: (start + rise(v - 1)) / v, 30, domain=[k, k + 1])

    pieces = [Chebyshev.interpolate(lambda v: 1 / v, 30, domain=[1, 2])]
    for k in range(2, LEVEL):
        pieces.append(next_piece(k, pieces[-1]))
    return tuple(pieces)

"""Scale-free kernels in the limit of long prompts, and the flat ones among them.

A kernel A[i, j] that depends on i / j alone, a bias f(log(i / j)), moves the log-position u = log(n / j) by a jump that
does not depend on u: its density is k(s) ∝ e^(f(s) - s) on s > 0, since dj = -i e^(-s) ds. The rollout of one kernel is
then the law of a sum of independent jumps, as many of them as there are hops, and in x = j / n ∈ [0, 1] it keeps an
atom Π(1 - λ_t) at x = 1, the last token. With many layers of small λ the hops are Poisson of mean τ = Σλ_t, the law
compound Poisson of Lévy density τ k. Kernels of different layers are convolutions, so they commute.

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
from posbias.rollout.biased import BiasedKernels
from posbias.rollout.clock import hop_distribution
from posbias.rollout.position_bias import (
    FlatBias,
    LogBias,
    NoBias,
    PositionBias,
    RatioBias,
    exponential_integral_inverse,
)

CELLS = 2**17
"""Cells of the lattice in u unless a cut-off asks for more."""
MOST_CELLS = 2**23
CELLS_IN_CUTOFF = 32
"""A cut-off of a flat kernel is at least so many cells wide."""
TILT = np.log(1e4)
"""What wraps around the end of a Fourier transform comes back e^-TILT times as large."""
OWN = 1e-12
"""Log-distances below this are those of the query to itself."""
LEVEL = 12
"""From here on Buchstab's function is e^-γ to the rounding of a double."""


def jump_tail(bias: PositionBias, s: Float[np.ndarray, "m"], theta: float = 0.0) -> Float[np.ndarray, "m"]:
    """Return E[e^(-θS); S > s] = ∫_s^∞ e^(-θy) k(y) dy of one hop's jump S = log(i / j) in the limit.

    With θ = 0 it is P(S > s); at s = 0 it is E[(j / i)^θ], the transform. For the logits α log j it is
    (α+1)/(α+1+θ) e^(-(α+1+θ)s), for the flat kernel E₁((1+θ) max(s, ε)) / τ.

    Source: ours; each is an elementary integral.

    >>> jump_tail(LogBias(1.0), np.zeros(1), 1.0).round(6).tolist()  # E[j / i] = 2/3
    [0.666667]
    """
    if isinstance(bias, NoBias | LogBias):
        rate = 1 + (bias.alpha if isinstance(bias, LogBias) else 0.0)
        return np.asarray(rate / (rate + theta) * np.exp(-(rate + theta) * s))
    if isinstance(bias, FlatBias):
        return np.asarray(exp1((1 + theta) * np.maximum(s, bias.cutoff)) / bias.tau)
    if isinstance(bias, RatioBias):
        return np.asarray(_ratio_tail(bias, s, 1 + theta) / _ratio_tail(bias, np.zeros(1), 1.0))
    raise errors.invalid("position_bias", "a function of i / j: none, log, flat or ratio", bias.kind)


def limit_mean(kernels: BiasedKernels, lambda_: Float[np.ndarray, "T"], *, poisson: bool = False) -> float:
    """Return the mean position Π_t (1 - λ_t (1 - m_t)) in the limit of long prompts, m_t = E[j / i] of layer t's hop.

    For logits α log j it is Π(1 - λ_t / (α + 2)), up to exp(-τ / (α + 2)) for small λ, which ``poisson`` takes; for
    α = 0 and α = 1 the engine's mean Σ_j (j-1) p_j / (n-1) is this product at every n.

    Source: ours; jumps are independent, so E[e^-u] is a product. E[j-1 | i] = (i-1)(α+1)/(α+2) exactly for the kernel
    Γ(j+α)/Γ(j), which is j^α for α = 0 and 1.

    >>> from posbias.rollout.biased import biased_kernels
    >>> round(limit_mean(biased_kernels(2, {"kind": "none"}), np.array([0.2, 0.4])), 6)
    0.72
    """
    ahead = np.array([1 - _layer_tail(kernels, t, np.zeros(1), 1.0)[0] for t in _different(kernels)])
    ahead = np.broadcast_to(ahead, kernels.T)
    return float(np.exp(-(lambda_ @ ahead)) if poisson else np.prod(1 - lambda_ * ahead))


def limit_distribution(
    kernels: BiasedKernels, lambda_: Float[np.ndarray, "T"], x: Float[np.ndarray, "m"], *, poisson: bool = False
) -> Float[np.ndarray, "m"]:
    """Return P(position ≤ x) of the rollout in the limit of long prompts; x = 1 is the last token with its atom.

    ``poisson`` takes each layer's number of hops as Poisson of mean λ_t, the limit of many layers that mix little. On a
    lattice of step h in u the mass of a jump goes to the nearest point, layers multiply in Fourier space, and the
    distribution is read between points: second order in h, which is at most 10^-4 for x above 10^-5.

    Source: ours; the characteristic function is Π(1 - λ_t + λ_t φ_t), or exp Σλ_t(φ_t - 1).

    >>> from posbias.rollout.biased import biased_kernels
    >>> limit_distribution(biased_kernels(1, {"kind": "none"}), np.array([0.4]), np.array([0.5, 1])).round(6).tolist()
    [0.2, 1.0]
    """
    lattice = _Lattice(kernels, x)
    transforms = [lattice.transform(_layer_tail(kernels, t, lattice.edges)) for t in _different(kernels)]
    total = np.zeros_like(transforms[0]) if poisson else np.ones_like(transforms[0])
    for t, mixing in enumerate(lambda_):
        phi = transforms[min(t, len(transforms) - 1)]
        total = total + mixing * (phi - 1) if poisson else total * (1 - mixing + mixing * phi)
    atom = float(np.exp(-lambda_.sum()) if poisson else np.prod(1 - lambda_))
    return lattice.below(atom, lattice.masses(np.exp(total) if poisson else total), x)


def limit_profile(
    kernels: BiasedKernels, lambda_: Float[np.ndarray, "T"], n: int, *, poisson: bool = False
) -> Float[np.ndarray, "n"]:
    """Return the limit's mass on ((j-1)/n, j/n] for j = 1 … n: what the engine's profile of n tokens tends to.

    >>> from posbias.rollout.biased import biased_kernels
    >>> limit_profile(biased_kernels(1, {"kind": "none"}), np.array([0.4]), 2).round(6).tolist()
    [0.2, 0.8]
    """
    return np.diff(limit_distribution(kernels, lambda_, np.arange(n + 1) / n, poisson=poisson))


def untrained_limit(
    kernels: BiasedKernels, gains: Float[np.ndarray, "T"], x: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "m"]:
    """Return the distribution function on [0, 1] of the law of untrained networks in the limit of long prompts.

    With g_k the density of u after k hops, and ω_k the probability of k hops with odds c_t², it has √ω_0 at the last
    token and (Σ_{k ≥ 1} ω_k g_k(u)²)^½ du beside it, all over their sum: the squares' factor 1/n² has a root of 1/n
    for each of n tokens, so that neither side takes all as n grows. All layers have the first one's kernel, and gains
    c_t ≥ 0: with a residual mixing λ, c = λ/(1 - λ).

    Source: ours; the limit of :func:`posbias.rollout.untrained.untrained_profile`.

    >>> from posbias.rollout.biased import biased_kernels
    >>> untrained_limit(biased_kernels(1, {"kind": "none"}), np.array([2.0]), np.array([0.5])).round(6).tolist()
    [0.333333]
    """
    omega = hop_distribution(gains**2 / (1 + gains**2))
    lattice = _Lattice(kernels, x)
    phi = lattice.transform(_layer_tail(kernels, 0, lattice.edges))
    squares, power = np.zeros(lattice.N), np.ones_like(phi)
    for share in omega[1:]:
        power = power * phi
        squares += share * lattice.masses(power) ** 2
    last = float(np.sqrt(omega[0]))
    inner = np.sqrt(squares)
    total = last + inner.sum()
    inner[0] += last  # the first point holds the atom
    return lattice.below(last / total, inner / total, x)


def flat_distance(tau: float) -> float:
    """Return W₁ between uniform and the limit law of the flat kernel: ½ (e^(Ein(2ε) - Ein(ε)) - 1), E₁(ε) = τ.

    τ = Σλ_t > 0 of many layers that mix little is the kernel's own, and Ein(z) = ∫_0^z (1 - e^-s)/s ds. It is also the
    mean position less 1/2, the mean being e^(-τ + E₁(2ε)); it is above ½ e^-γ e^-τ and below ½ e^-τ for every τ > 0,
    and tends to the first as τ grows.

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

    Source: ours. The limit law of jumps r e^-s / s without a cut-off is u ~ Gamma(r, 1), of mean 2^-r in x; all of them
    are ordered in r, and the cut-off moves to the right.

    >>> np.round(flat_distance_bounds(20.0, 10.0), 6).tolist()
    [0.207107, 0.207107]
    """
    ratio = total / tau
    mean, without = (0.5 + flat_distance(tau)) ** ratio, 0.5**ratio
    if ratio <= 1:
        return mean - 0.5, mean - 0.5
    return abs(mean - 0.5), mean - without + abs(without - 0.5)


def buchstab(v: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Return Buchstab's function: v ω(v) = 1 on [1, 2], (v ω(v))' = ω(v - 1) beyond, 0 below 1.

    It tends to e^-γ faster than exponentially, |ω(v) - e^-γ| ≤ 1/Γ(v + 1).

    Source: Buchstab 1937, from the counting of integers without small prime factors; computed by Chebyshev series, one
    for each unit interval.

    >>> buchstab(np.array([0.5, 1.0, 2.0, 50.0])).round(6).tolist()
    [0.0, 1.0, 0.5, 0.561459]
    """
    out = np.where(v < 1, 0.0, np.exp(-np.euler_gamma))
    for k, piece in enumerate(_buchstab_pieces(), start=1):
        inside = (v >= k) & (v <= k + 1)
        out[inside] = piece(v[inside])
    return out


def flat_density(x: Float[np.ndarray, "m"], tau: float) -> Float[np.ndarray, "m"]:
    """Return the density on (0, 1) of the flat kernel's limit law, (e^-τ / ε) ω(log(1/x) / ε); the atom is e^-τ.

    It is 0 for x > e^-ε, starts from about e^γ = 1.78 at e^-ε, and is level to 1/Γ(v + 1) at x = e^(-vε), at
    e^-Ein(ε), which is above 1 - ε.

    Source: ours. q(u) = e^u × density solves u q(u) = e^-τ + ∫_0^(u-ε) q.

    >>> flat_density(np.array([0.1, 0.9999]), 4.8).round(4).tolist()
    [0.9954, 0.0]
    """
    cutoff = exponential_integral_inverse(tau)
    return np.asarray(np.exp(-tau) / cutoff * buchstab(-np.log(x) / cutoff))


def uniform_bias(tau: float, lambda_: float = 0.0, *, farthest: float = 30.0, points: int = 600) -> RatioBias:
    """Return the bias whose rollout is uniform but for the atom e^-τ at the last token, exactly, in the limit.

    Its logits are log ₁F₁(1 - r; 2; -(e^τ - 1) s), r = -log(1 - λ) / τ, at s = log(i / j): one for each layer, of
    its own λ_t ≤ 1 - e^-τ, with τ = -Σ log(1 - λ_t). For many layers, r → 0, it is log((1 - e^(-(e^τ - 1)s)) / s) up to
    a constant, the flat kernel's -log s without a cut-off; for one layer, r = 1, it is uniform attention. The query
    itself, at s = 0, counts half: the sum over keys is then the integral by the trapezoidal rule, which brings finite n
    nearer to the limit. Points go up to the log-distance ``farthest``, log n or more.

    Source: ours. With a = e^-τ the law has the transform (1 + aθ)/(1 + θ), whose r-th power is that of a law with the
    atom a^r = 1 - λ and the density λ k; expand (1 + (1/a - 1)/(1 + θ))^r in powers of 1/(1 + θ).

    >>> np.exp(uniform_bias(np.log(2), 0.5).values[:3]).round(6).tolist()  # one layer with λ = 1/2
    [0.5, 1.0, 1.0]
    """
    scale = np.expm1(tau)
    s = np.append(0.0, np.geomspace(1e-3 / scale, farthest, points - 1))
    z = scale * s
    if lambda_ == 0:
        ratio = np.divide(-np.expm1(-z), z, out=np.ones_like(z), where=z > 0)
    else:
        ratio = hyp1f1(max(1 + np.log1p(-lambda_) / tau, 0.0), 2.0, -z)
    return with_half_weight_on_query(s, np.log(ratio))


def with_half_weight_on_query(s: Float[np.ndarray, "m"], logits: Float[np.ndarray, "m"]) -> RatioBias:
    """Return the bias with points from s[0] = 0 on, the query's own key counting half.

    >>> with_half_weight_on_query(np.array([0.0, 1.0]), np.array([0.0, 2.0])).distances
    (0.0, 1e-12, 1.0)
    """
    s = np.concatenate([[0.0, OWN], s[1:]])
    return RatioBias(tuple(s.tolist()), tuple(np.concatenate([[logits[0] - np.log(2)], logits]).tolist()))


class _Lattice:
    """Points kh, k = 0 … N-1, of u, and what is done on them; x asks how far they go."""

    def __init__(self, kernels: BiasedKernels, x: np.ndarray) -> None:
        inside = x[x > 0]
        far = 2 * max(float(-np.log(inside.min())) if inside.size else 0.0, 10.0)
        cutoffs = [b.cutoff for row in kernels.biases for b in row if isinstance(b, FlatBias)]
        wanted = max(CELLS, CELLS_IN_CUTOFF * far / min(cutoffs, default=far))
        if wanted > MOST_CELLS:
            expected = f"flat kernels whose cut-off is above {CELLS_IN_CUTOFF * far / MOST_CELLS:.2g}"
            raise errors.invalid("position_bias", expected, f"a cut-off of {min(cutoffs):.2g}")
        self.N = 2 ** int(np.ceil(np.log2(wanted)))
        self.h = far / self.N
        self.edges = (np.arange(self.N) + 0.5) * self.h
        self.tilt = np.exp(-TILT * np.arange(self.N) / self.N)

    def transform(self, tail: np.ndarray) -> np.ndarray:
        """Return the transform of the tilted masses of a jump with P(S > s) at the cells' upper edges."""
        return np.asarray(np.fft.rfft(-np.diff(tail, prepend=1.0) * self.tilt))

    def masses(self, transform: np.ndarray) -> np.ndarray:
        """Return the masses at the points from their transform."""
        return np.asarray(np.fft.irfft(transform, self.N) / self.tilt)

    def below(self, atom: float, masses: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return P(e^-u ≤ x) from the atom at u = 0 and the masses, that at the first point with the atom in it."""
        u = np.append(0.0, self.edges)
        upto = np.append(atom, masses.cumsum()).clip(0.0, 1.0)
        with np.errstate(divide="ignore"):
            far = np.where(x > 0, -np.log(x), np.inf)
        return np.where(x >= 1, 1.0, np.where(x > 0, 1 - np.interp(far, u, upto), 0.0))


def _different(kernels: BiasedKernels) -> range:
    """Return the layers whose kernels are looked at: the first where it stands for all."""
    return range(1 if kernels.same_in_every_layer else kernels.T)


def _layer_tail(kernels: BiasedKernels, t: int, s: np.ndarray, theta: float = 0.0) -> np.ndarray:
    """Return :func:`jump_tail` of the mixture of a layer's heads."""
    total = np.zeros(s.size)
    for (bias, _), w in kernels.heads(t).items():
        total += w * jump_tail(bias, s, theta)
    return total


def _ratio_tail(bias: RatioBias, s: np.ndarray, rate: float) -> np.ndarray:
    """Return ∫_s^∞ e^(f(y) - max f - rate y) dy, f linear between its points and constant beyond them."""
    knots, f = np.array(bias.distances), np.array(bias.values)
    f = f - f.max()
    if knots[0] > 0:
        knots, f = np.append(0.0, knots), np.append(f[0], f)

    def pieces(a: np.ndarray, fa: np.ndarray, b: np.ndarray, fb: np.ndarray) -> np.ndarray:
        top = np.maximum(fa - rate * a, fb - rate * b)
        fall = np.abs(fb - rate * b - fa + rate * a)
        share = np.divide(-np.expm1(-fall), fall, out=np.ones_like(fall), where=fall > 0)
        return np.asarray(np.exp(top) * (b - a) * share)

    whole = np.append(pieces(knots[:-1], f[:-1], knots[1:], f[1:]), np.exp(f[-1] - rate * knots[-1]) / rate)
    later = np.append(whole[::-1].cumsum()[::-1], 0.0)  # from each knot on
    at = np.searchsorted(knots, s, side="right") - 1
    last = at == knots.size - 1
    b = np.minimum(at + 1, knots.size - 1)
    part = pieces(s, np.interp(s, knots, f), np.maximum(knots[b], s), f[b])
    return np.where(last, np.exp(f[-1] - rate * s) / rate, part + later[at + 1])


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

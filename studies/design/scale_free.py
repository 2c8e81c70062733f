"""Scale-free kernels in the limit of long prompts, and the flat ones among them.

A kernel A[i, j] that depends on i / j alone, a bias f(log(i / j)), moves the log-position u = log(n / j) by a jump that
does not depend on u: its density is k(s) ∝ e^(f(s) - s) on s > 0, since dj = -i e^(-s) ds. The rollout of one kernel is
then the law of a sum of independent jumps, as many of them as there are hops, and in x = j / n ∈ [0, 1] it keeps an
atom Π(1 - λ_t) at x = 1, the last token. With many layers of small λ the hops are Poisson of mean τ = Σλ_t, the law
compound Poisson of Lévy density τ k. Kernels of different layers are convolutions, so they commute.

A uniform position is x = e^-u with u ~ Exp(1), whose Lévy density is e^-s / s. The flat kernel takes it on s > ε with
E₁(ε) = τ: its law differs from Exp(1) by an independent sum of the jumps below ε, so that it lies to the right of
uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import exp1

from posbias import errors
from posbias.rollout.position_bias import (
    FlatBias,
    LogBias,
    NoBias,
    PositionBias,
    log_ratios,
)
from posbias.rollout.structured import StructuredKernels

CELLS = 2**17
"""Cells of the lattice in u unless a cut-off asks for more."""
MOST_CELLS = 2**23
CELLS_IN_CUTOFF = 32
"""A cut-off of a flat kernel is at least so many cells wide."""
TILT = np.log(1e4)
"""What wraps around the end of a Fourier transform comes back e^-TILT times as large."""
OWN = 1e-12
"""Log-distances below this are those of the query to itself."""


@dataclass(frozen=True)
class RatioBias(PositionBias):
    """Add f(log(i / j)), a function given by points and straight lines between them, constant beyond the last ones."""

    distances: tuple[float, ...]  # log(i / j) ≥ 0 of the points, increasing
    values: tuple[float, ...]  # Logits at the points, finite
    kind: ClassVar[str] = "ratio"

    def logits(self, n: int) -> Float[np.ndarray, "n n"]:
        """Return the logits; keys after the query are at distance 0."""
        return np.asarray(np.interp(log_ratios(n), self.distances, self.values))


def jump_tail(bias: PositionBias, s: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Return P(S > s) = ∫_s^∞ k(y) dy of one hop's jump S = log(i / j) in the limit.

    For the logits α log j it is e^(-(α+1)s), for the flat kernel E₁(max(s, ε)) / τ.

    Source: ours; each is an elementary integral.

    >>> jump_tail(LogBias(1.0), np.array([0.0, 0.5])).round(6).tolist()
    [1.0, 0.367879]
    """
    if isinstance(bias, NoBias | LogBias) and getattr(bias, "alpha", 0.0) > -1:
        return np.asarray(np.exp(-(1 + (bias.alpha if isinstance(bias, LogBias) else 0.0)) * s))
    if isinstance(bias, FlatBias):
        return np.asarray(exp1(np.maximum(s, bias.cutoff)) / bias.tau)
    if isinstance(bias, RatioBias):
        return np.asarray(_ratio_tail(bias, s) / _ratio_tail(bias, np.zeros(1)))
    raise errors.invalid("position_bias", "a function of i / j: none, log (α > -1), flat or ratio", bias)


def limit_distribution(
    kernels: StructuredKernels, lambda_: Float[np.ndarray, "T"], x: Float[np.ndarray, "m"], *, poisson: bool = False
) -> Float[np.ndarray, "m"]:
    """Return P(position ≤ x) of the rollout in the limit of long prompts; x = 1 is the last token with its atom.

    ``poisson`` takes each layer's number of hops as Poisson of mean λ_t, the limit of many layers that mix little. On a
    lattice of step h in u the mass of a jump goes to the nearest point, layers multiply in Fourier space, and the
    distribution is read between points: second order in h, which is at most 10^-4 for x above 10^-5.

    Source: ours; the characteristic function is Π(1 - λ_t + λ_t φ_t), or exp Σλ_t(φ_t - 1).

    >>> from posbias.rollout.structured import biased_kernels
    >>> limit_distribution(biased_kernels(1, {"kind": "none"}), np.array([0.4]), np.array([0.5, 1])).round(6).tolist()
    [0.2, 1.0]
    """
    lattice = _Lattice(kernels, x)
    transforms = [
        lattice.transform(_layer_tail(kernels, t, lattice.edges))
        for t in range(1 if kernels.same_in_every_layer else kernels.T)
    ]
    total = np.zeros_like(transforms[0]) if poisson else np.ones_like(transforms[0])
    for t, mixing in enumerate(lambda_):
        phi = transforms[min(t, len(transforms) - 1)]
        total = total + mixing * (phi - 1) if poisson else total * (1 - mixing + mixing * phi)
    atom = float(np.exp(-lambda_.sum()) if poisson else np.prod(1 - lambda_))
    return lattice.below(atom, lattice.masses(np.exp(total) if poisson else total), x)


def limit_profile(
    kernels: StructuredKernels, lambda_: Float[np.ndarray, "T"], n: int, *, poisson: bool = False
) -> Float[np.ndarray, "n"]:
    """Return the limit's mass on ((j-1)/n, j/n] for j = 1 … n: what the engine's profile of n tokens tends to.

    >>> from posbias.rollout.structured import biased_kernels
    >>> limit_profile(biased_kernels(1, {"kind": "none"}), np.array([0.4]), 2).round(6).tolist()
    [0.2, 0.8]
    """
    return np.diff(limit_distribution(kernels, lambda_, np.arange(n + 1) / n, poisson=poisson))


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


def with_half_weight_on_query(s: Float[np.ndarray, "m"], logits: Float[np.ndarray, "m"]) -> RatioBias:
    """Return the bias with points from s[0] = 0 on, the query's own key counting half.

    >>> with_half_weight_on_query(np.array([0.0, 1.0]), np.array([0.0, 2.0])).distances
    (0.0, 1e-12, 1.0)
    """
    s = np.concatenate([[0.0, OWN], s[1:]])
    return RatioBias(tuple(s.tolist()), tuple(np.concatenate([[logits[0] - np.log(2)], logits]).tolist()))


class _Lattice:
    """Points kh, k = 0 … N-1, of u, and what is done on them; x asks how far they go."""

    def __init__(self, kernels: StructuredKernels, x: np.ndarray) -> None:
        inside = x[x > 0]
        far = 2 * max(float(-np.log(inside.min())) if inside.size else 0.0, 10.0)
        cutoffs = [b.cutoff for row in kernels.biases or () for b in row if isinstance(b, FlatBias)]
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


def _layer_tail(kernels: StructuredKernels, t: int, s: np.ndarray) -> np.ndarray:
    """Return :func:`jump_tail` of the mixture of a layer's heads."""
    return np.asarray(sum(w * jump_tail(bias, s) for (bias, _), w in kernels.alike(t).items()))


def _ratio_tail(bias: RatioBias, s: np.ndarray) -> np.ndarray:
    """Return ∫_s^∞ e^(f(y) - max f - y) dy, f linear between its points and constant beyond them."""
    knots, f = np.array(bias.distances), np.array(bias.values)
    f = f - f.max()
    if knots[0] > 0:
        knots, f = np.append(0.0, knots), np.append(f[0], f)

    def pieces(a: np.ndarray, fa: np.ndarray, b: np.ndarray, fb: np.ndarray) -> np.ndarray:
        top = np.maximum(fa - a, fb - b)
        fall = np.abs(fb - b - fa + a)
        share = np.divide(-np.expm1(-fall), fall, out=np.ones_like(fall), where=fall > 0)
        return np.asarray(np.exp(top) * (b - a) * share)

    whole = np.append(pieces(knots[:-1], f[:-1], knots[1:], f[1:]), np.exp(f[-1] - knots[-1]))
    later = np.append(whole[::-1].cumsum()[::-1], 0.0)  # from each knot on
    at = np.searchsorted(knots, s, side="right") - 1
    last = at == knots.size - 1
    b = np.minimum(at + 1, knots.size - 1)
    part = pieces(s, np.interp(s, knots, f), np.maximum(knots[b], s), f[b])
    return np.where(last, np.exp(f[-1] - s), part + later[at + 1])


def _ein(z: float) -> float:
    """Return Ein(z) = ∫_0^z (1 - e^-s)/s ds."""
    if z > 2:
        return float(np.euler_gamma + np.log(z) + exp1(z))
    k = np.arange(1.0, 40.0)
    return float(-(np.cumprod(-z / k) / k).sum())

"""Scale-free kernels in the limit of long prompts: compound laws of the log-position u = log(n / j).

A kernel A[i, j] that depends on i / j alone, a bias f(log(i / j)), moves u by a jump that does not depend on u: its
density is k(s) ∝ e^(f(s) - s) on s > 0, since dj = -i e^(-s) ds. The rollout of one kernel is then the law of a sum of
independent jumps, as many of them as there are hops, and in x = j / n ∈ [0, 1] it keeps an atom Π(1 - λ_t) at x = 1,
the last token. With many layers of small λ the hops are Poisson of mean τ = Σλ_t, the law compound Poisson of Lévy
density τ k. Kernels of different layers are convolutions, so they commute.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import exp1

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.biased import BiasedKernels
from posbias.rollout.clock import hop_distribution
from posbias.rollout.position_bias import FlatBias, LogBias, NoBias, PositionBias, RatioBias

CELLS = 2**17
"""Cells of the lattice in u unless a cut-off asks for more."""
MOST_CELLS = 2**23
CELLS_IN_CUTOFF = 32
"""A cut-off of a flat kernel is at least so many cells wide."""
TILT = np.log(1e4)
"""What wraps around the end of a Fourier transform comes back e^-TILT times as large."""


def jump_tail(bias: PositionBias, s: Float[np.ndarray, "m"], theta: float = 0.0) -> Float[np.ndarray, "m"]:
    """Return E[e^(-θS); S > s] = ∫_s^∞ e^(-θy) k(y) dy of one hop's jump S = log(i / j) in the limit.

    With θ = 0 it is P(S > s); at s = 0 it is E[(j / i)^θ], the transform. For the logits α log j it is
    (α+1)/(α+1+θ) e^(-(α+1+θ)s), for the flat kernel E₁((1+θ) max(s, ε)) / τ.

    Parameters
    ----------
    bias
        No bias, log, flat or a function of i / j.
    s
        Log-distances, at least 0.
    theta
        θ, at least 0.

    Raises
    ------
    ValueError
        If the bias is not a function of i / j, or a number is negative.

    Source: ours; each is an elementary integral.

    >>> jump_tail(LogBias(1.0), np.zeros(1), 1.0).round(6).tolist()  # E[j / i] = 2/3
    [0.666667]
    """
    s = errors.finite_array("s", s, ndim=(1,))
    if (s < 0).any() or not theta >= 0:
        raise errors.invalid("s, theta", "numbers of at least 0", f"{s.min(initial=0):g}, {theta:g}")
    if isinstance(bias, NoBias | LogBias):
        rate = 1 + (bias.alpha if isinstance(bias, LogBias) else 0.0)
        return np.asarray(rate / (rate + theta) * np.exp(-(rate + theta) * s))
    if isinstance(bias, FlatBias):
        return np.asarray(exp1((1 + theta) * np.maximum(s, bias.cutoff)) / bias.tau)
    if isinstance(bias, RatioBias):
        return np.asarray(_ratio_tail(bias, s, 1 + theta) / _ratio_tail(bias, np.zeros(1), 1.0))
    raise errors.invalid("position_bias", "a function of i / j: none, log, flat or ratio", bias.kind)


def limit_mean(kernels: BiasedKernels, lambda_: Numbers, *, poisson: bool = False) -> float:
    """Return the mean position Π_t (1 - λ_t (1 - m_t)) in the limit of long prompts, m_t = E[j / i] of layer t's hop.

    For logits α log j it is Π(1 - λ_t / (α + 2)), up to exp(-τ / (α + 2)) for small λ; for α = 0 and α = 1 the engine's
    mean Σ_j (j-1) p_j / (n-1) is this product at every n.

    Parameters
    ----------
    kernels
        Functions of i / j in every head; content on the diagonal does not count in the limit.
    lambda_
        Residual mixing, T values.
    poisson
        Take each layer's number of hops as Poisson of mean λ_t: Π exp(-λ_t (1 - m_t)).

    Source: ours; jumps are independent, so E[e^-u] is a product. E[j-1 | i] = (i-1)(α+1)/(α+2) exactly for the kernel
    Γ(j+α)/Γ(j), which is j^α for α = 0 and 1.

    >>> from posbias.rollout.biased import biased_kernels
    >>> round(limit_mean(biased_kernels(2, {"kind": "none"}), [0.2, 0.4]), 6)
    0.72
    """
    lambda_ = errors.mixing_coefficients("lambda_", lambda_, T=kernels.T)
    zero = np.zeros(1)
    ahead = np.array([1 - _layer_tail(kernels, t, zero, 1.0)[0] for t in _different(kernels)])
    ahead = np.broadcast_to(ahead, kernels.T)
    return float(np.exp(-(lambda_ @ ahead)) if poisson else np.prod(1 - lambda_ * ahead))


def limit_distribution(
    kernels: BiasedKernels, lambda_: Numbers, x: Float[np.ndarray, "m"], *, poisson: bool = False
) -> Float[np.ndarray, "m"]:
    """Return P(position ≤ x) of the rollout in the limit of long prompts; x = 1 is the last token with its atom.

    Parameters
    ----------
    kernels
        Functions of i / j in every head, of one or of all layers.
    lambda_
        Residual mixing, T values in [0, 1].
    x
        Relative positions j/n, from 0 to 1.
    poisson
        Take each layer's number of hops as Poisson of mean λ_t, the limit of many layers that mix little.

    Raises
    ------
    ValueError
        If a head's bias is not a function of i / j, x is outside [0, 1], or a cut-off is too small for the lattice.

    Notes
    -----
    On a lattice of step h in u the mass of a jump goes to the nearest point, layers multiply in Fourier space, and the
    distribution is read between points: second order in h, which is at most 10^-4 for x above 10^-5.

    Source: ours; the characteristic function is Π(1 - λ_t + λ_t φ_t), or exp Σλ_t(φ_t - 1).

    >>> from posbias.rollout.biased import biased_kernels
    >>> limit_distribution(biased_kernels(1, {"kind": "none"}), [0.4], np.array([0.5, 1.0])).round(6).tolist()
    [0.2, 1.0]
    """
    lambda_, x = errors.mixing_coefficients("lambda_", lambda_, T=kernels.T), _relative("x", x)
    lattice = _Lattice(kernels, x)
    transforms = [lattice.transform(_layer_tail(kernels, t, lattice.edges)) for t in _different(kernels)]
    total = np.zeros_like(transforms[0]) if poisson else np.ones_like(transforms[0])
    for t, mixing in enumerate(lambda_):
        phi = transforms[min(t, len(transforms) - 1)]
        total = total + mixing * (phi - 1) if poisson else total * (1 - mixing + mixing * phi)
    atom = float(np.exp(-lambda_.sum()) if poisson else np.prod(1 - lambda_))
    return lattice.below(atom, lattice.masses(np.exp(total) if poisson else total), x)


def limit_profile(kernels: BiasedKernels, lambda_: Numbers, n: int, *, poisson: bool = False) -> Float[np.ndarray, "n"]:
    """Return the limit's mass on ((j-1)/n, j/n] for j = 1 … n: what the engine's profile of n tokens tends to.

    Arguments and errors as in :func:`limit_distribution`.

    >>> from posbias.rollout.biased import biased_kernels
    >>> limit_profile(biased_kernels(1, {"kind": "none"}), [0.4], 2).round(6).tolist()
    [0.2, 0.8]
    """
    n = errors.positive_integer("n", n)
    return np.diff(limit_distribution(kernels, lambda_, np.arange(n + 1) / n, poisson=poisson))


def birth_limit_distribution(
    kernels: BiasedKernels, gains: Numbers, x: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "m"]:
    """Return the distribution function on [0, 1] of the law at birth in the limit of long prompts.

    With g_k the density of u after k hops, and ω_k the probability of k hops with odds c_t², it has √ω_0 at the last
    token and (Σ_{k ≥ 1} ω_k g_k(u)²)^½ du beside it, all over their sum: the squares' factor 1/n² has a root of 1/n
    for each of n tokens, so that neither side takes all as n grows.

    Parameters
    ----------
    kernels
        One kernel for all layers, of functions of i / j.
    gains
        c_t ≥ 0, T values; with a residual mixing λ, c = λ/(1 - λ).
    x
        Relative positions, from 0 to 1.

    Raises
    ------
    ValueError
        As :func:`limit_distribution` does, and if layers have different kernels or a gain is negative.

    Source: ours; the limit of :func:`posbias.rollout.untrained.birth_profile`.

    >>> from posbias.rollout.biased import biased_kernels
    >>> birth_limit_distribution(biased_kernels(1, {"kind": "none"}), [2.0], np.array([0.5])).round(6).tolist()
    [0.333333]
    """
    c, x = errors.finite_array("gains", gains, ndim=(1,)), _relative("x", x)
    if c.size != kernels.T or (c < 0).any():
        raise errors.invalid("gains", f"{kernels.T} numbers of at least 0", f"{c.size}, least {c.min(initial=0):g}")
    if not kernels.same_in_every_layer:
        raise errors.invalid("kernels", "one kernel for all layers", f"{kernels.T} of them")
    omega = hop_distribution(c**2 / (1 + c**2))
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


def _relative(field: str, x: np.ndarray) -> np.ndarray:
    x = errors.finite_array(field, x, ndim=(1,))
    if (x < 0).any() or (x > 1).any():
        raise errors.invalid(field, "relative positions from 0 to 1", f"{x.min():g} to {x.max():g}")
    return x

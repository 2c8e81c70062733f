"""The inverse problem: which profiles one scale-free kernel can make, the kernel of each, and the nearest ones.

In the limit of long prompts and of many layers that mix little, the profile of one kernel in all layers is x = e^-u
with u compound Poisson. A target with a density beside the atom a at the last token, 0 < a < 1, is therefore reachable
if and only if the law of its u is infinitely divisible: then its Lévy measure ν has a density and the finite mass
τ = -log a, and the kernel is k = ν / τ, if its logits are such that rows have a limit (the chapter on design). From the
derivative of the transform, -Ĝ' = Ĝ · ∫ s e^(-θs) ν(ds), follows u g(u) = ∫ s g(u - s) ν(ds): ν is found from the last
token on. With layers of larger λ_t, layer t takes the r_t-th power of Ĝ, r_t = log(1 - λ_t) / log a.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from posbias import errors
from posbias.rollout.position_bias import HIDDEN
from posbias.rollout.structured import biased_kernels
from studies.design.scale_free import RatioBias, limit_distribution, with_half_weight_on_query

NEGATIVE = 1e-3
"""Share of a Lévy measure that may come out negative from rounding a target to a lattice."""
STRAIGHT = 1e-4
"""Points of a bias that lie so near to the line between their neighbours, in logits, are left out."""
GRID = 8192
"""Relative positions at which distances are summed."""
STEPS = 60
"""Steps of the search for the nearest reachable target."""


@dataclass(frozen=True)
class Target:
    """Hold a profile on [0, 1]: an atom at the last token, strictly between 0 and 1, and a law without atoms beside it.

    ``rest`` is the distribution function of the other positions. A network's atom is Π(1 - λ_t), about e^-Σλ.
    """

    atom: float
    rest: Callable[[Float[np.ndarray, "m"]], Float[np.ndarray, "m"]]

    @property
    def tau(self) -> float:
        """Return -log a, the total mixing of many small layers that leaves the atom."""
        return float(-np.log(self.atom))

    def below(self, x: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """Return P(position ≤ x)."""
        return np.where(x >= 1, 1.0, (1 - self.atom) * self.rest(np.minimum(x, 1.0)))


def levy_masses(target: Target, reach: float, cells: int) -> tuple[Float[np.ndarray, "cells"], float]:
    """Return the masses of the Lévy measure of the target's u at h, 2h, …, reach, and the step h.

    k G_0 ν_k = k G_k - Σ_{m < k} m ν_m G_{k-m} for the target's masses G_k on the lattice. The target is reachable if
    and only if none is negative. The cost grows with the square of the number of cells.

    Source: ours; the recursion is that of De Pril 1985 (in actuarial mathematics), as Panjer's is in the other
    direction.

    >>> nu, h = levy_masses(Target(0.5, lambda x: x), 1.0, 1000)  # (e^-s - e^-2s) / s
    >>> s = h * np.arange(1, 1001)
    >>> bool(np.abs(nu / h - (np.exp(-s) - np.exp(-2 * s)) / s).max() < 1e-3)
    True
    """
    G, h = _lattice(target, reach, cells)
    moments = np.zeros(G.size)  # m ν_m
    k = np.arange(G.size)
    for j in range(1, G.size):
        moments[j] = (j * G[j] - moments[1:j] @ G[j - 1 : 0 : -1]) / G[0]
    return moments[1:] / k[1:], h


def kernel_for(target: Target, lambda_: float = 0.0, *, reach: float = 10.0, cells: int = 8192) -> RatioBias:
    """Return the scale-free bias whose rollout tends to the target, in layers whose Π(1 - λ_t) is the target's atom.

    λ is the mixing of the layer that the bias is for, from 0 (the limit of many small layers) to 1 - a. Layers of other
    λ_t have another bias, their product is exact in the limit of long prompts. The bias goes to the log-distance
    ``reach``, log n or more, on as many cells. A target out of reach is a ValueError: its Lévy measure is negative
    somewhere, or the kernel of the layer is.

    A sufficient condition: beside the atom, the density of u is log-convex, such as a mixture of exponentials, so that
    any density Σ_i c_i x^(b_i - 1), c_i > 0 and b_i > 0, is reachable. A necessary one for λ = 0: what u reaches
    includes all sums of what it reaches, without a bound, so that no profile that leaves out the first tokens is
    reachable.

    Source: ours, from the Lévy–Khintchine formula for laws on [0, ∞); log-convex: Steutel 1970.

    >>> bias = kernel_for(Target(np.exp(-2.0), lambda x: x))
    >>> s = np.array([0.5, 1.0, 2.0])
    >>> logits = np.interp(s, bias.distances, bias.values)
    >>> exact = np.log(-np.expm1(-np.expm1(2.0) * s) / s)
    >>> np.abs(logits - logits[0] - exact + exact[0]).max() < 1e-3
    np.True_
    """
    if lambda_ == 0:
        masses, h = levy_masses(target, reach, cells)
    else:
        G, h = _lattice(target, reach, cells)
        masses = _power(G, np.log1p(-lambda_) / np.log(target.atom))[1:]
    wrong = -masses.clip(max=0.0).sum()
    if wrong > NEGATIVE * np.abs(masses).sum():
        s = h * (1 + int(masses.argmin()))
        received = f"one that takes a negative kernel at i / j = {np.exp(s):.3g} ({wrong:.3g} in all)"
        raise errors.invalid("target", "a profile within reach of a scale-free kernel", received)
    return _bias_through(masses.clip(min=0.0), h)


@dataclass(frozen=True)
class Reached:
    """Hold what is reached of a target by the bias of a kernel with Σλ_t = -log a, in the limit of many small layers.

    ``wasserstein`` is ∫ |F - F*| dx, and ``cramer`` (∫ (F - F*)² dx)^½, which the search minimises.
    """

    bias: RatioBias
    wasserstein: float
    cramer: float


def reached(target: Target, bias: RatioBias) -> Reached:
    """Return how far the limit profile of a bias is from a target with the same atom.

    >>> target = Target(0.1, lambda x: x)
    >>> bool(reached(target, kernel_for(target)).wasserstein < 1e-4)
    True
    """
    T = int(np.ceil(target.tau))
    x = (np.arange(GRID) + 0.5) / GRID
    kernels = biased_kernels(T, bias)
    off = limit_distribution(kernels, np.full(T, target.tau / T), x, poisson=True) - target.below(x)
    return Reached(bias, float(np.abs(off).mean()), float(np.sqrt((off**2).mean())))


def nearest_reachable(target: Target, *, reach: float = 8.0, cells: int = 320) -> Reached:
    """Return the scale-free kernel whose profile is nearest to a target in the Cramér distance, the atom kept.

    The kernel is free up to the log-distance ``reach``, its masses at so many cells are found; what jumps farther ends
    below x = e^-reach. Gauss–Newton steps, each a least-squares problem with non-negative unknowns whose sum is τ
    (NNLS), since ∂G/∂ν_m = (G shifted by m) at a fixed sum. The problem is not convex: what is found is a local
    minimum, the better of two starts.

    Source: ours.

    >>> late = Target(0.1, lambda x: (2 * x - 1).clip(0))  # nothing in the first half
    >>> 0.01 < nearest_reachable(late, cells=80).wasserstein < 0.1
    True
    """
    nu, h = levy_masses(target, reach, cells)
    # The lattice's own τ: what jumps less than half a step counts to the atom.
    tau = -np.log(_lattice(target, reach, cells)[0][0])
    s = h * np.arange(1, cells + 1)
    rough = nu.clip(0.0)
    even = np.exp(-s) / (s + target.atom)
    starts = [start * min(1.0, tau / max(start.sum(), 1e-300)) for start in (rough, even * tau / even.sum())]
    found = min((_descended(start, tau, target, h) for start in starts), key=lambda pair: pair[0])[1]
    near, far = max(target.tau - tau, 0.0), max(tau - found.sum(), 0.0)
    return reached(target, _bias_in_cells(found, near, far, h))


def _lattice(target: Target, reach: float, cells: int) -> tuple[np.ndarray, float]:
    """Return the masses of the target's u at 0, h, …, reach, each of its cell, and h."""
    h = reach / cells
    later = target.below(np.exp(-h * (np.arange(cells + 1) + 0.5)))  # P(u > edge)
    return -np.diff(later, prepend=1.0), h


def _power(G: np.ndarray, r: float) -> np.ndarray:
    """Return the r-th power of a power series with G[0] > 0, by k G_0 H_k = Σ_{m ≥ 1} ((r+1) m - k) G_m H_{k-m}."""
    H = np.zeros(G.size)
    H[0] = G[0] ** r
    weighted = np.arange(G.size) * G
    for k in range(1, G.size):
        back = H[k - 1 :: -1]
        H[k] = ((r + 1) * (weighted[1 : k + 1] @ back) - k * (G[1 : k + 1] @ back)) / (k * G[0])
    return H


def _compound(nu: np.ndarray, tau: float) -> np.ndarray:
    """Return the masses of the compound Poisson law of total rate τ at 0, h, …, by Panjer's recursion."""
    G = np.zeros(nu.size + 1)
    G[0] = np.exp(-tau)
    moments = nu * np.arange(1, nu.size + 1)
    for k in range(1, G.size):
        G[k] = moments[:k] @ G[k - 1 :: -1] / k
    return G


def _descended(nu: np.ndarray, tau: float, target: Target, h: float) -> tuple[float, np.ndarray]:
    """Return the least Σ (F - F*)² dx that Gauss–Newton steps from a Lévy measure find, and the measure there."""
    edges = h * (np.arange(nu.size + 1) + 0.5)
    wanted, root = 1 - target.below(np.exp(-edges)), np.sqrt(h * np.exp(-edges))

    def residual(nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        upto = _compound(nu, tau).cumsum()
        return root * (upto - wanted), upto

    off, upto = residual(nu)
    for _ in range(STEPS):
        J = np.zeros((nu.size + 1, nu.size))
        for m in range(1, nu.size + 1):
            J[m:, m - 1] = upto[: nu.size + 1 - m]
        J *= root[:, None]
        heavy = 1e3 * np.linalg.norm(J) / np.sqrt(nu.size)
        M = np.zeros((nu.size + 2, nu.size + 1))  # the last unknown is what jumps beyond the reach
        M[:-1, :-1], M[-1] = J, heavy
        step = nnls(M, np.append(J @ nu - off, heavy * tau), maxiter=30 * nu.size)[0][:-1] - nu
        for length in 0.5 ** np.arange(12):
            trial = nu + length * step
            new, newly = residual(trial)
            if new @ new < off @ off:
                break
        else:
            break
        gained = 1 - new @ new / (off @ off)
        nu, off, upto = trial, new, newly
        if gained < 1e-6:
            break
    return float(off @ off), nu


def _bias_through(masses: np.ndarray, h: float) -> RatioBias:
    """Return the bias whose kernel has a density in proportion to the masses at h, 2h, …; none where there are none."""
    s = h * np.arange(1, masses.size + 1)
    seen = masses > 1e-12 * masses.max()
    logits = np.full(masses.size, HIDDEN)
    logits[seen] = np.log(masses[seen]) + s[seen]
    logits[seen] -= logits[seen].max()
    points, values = [0.0], [2 * logits[0] - logits[1] if seen[:2].all() else logits[0]]
    starts = np.flatnonzero(np.diff(seen.astype(int), prepend=int(seen[0])))
    for begin, end in zip([0, *starts], [*starts, seen.size], strict=True):
        if begin:  # from hidden to seen or back, at the edge between two cells
            points += [(begin + 0.5) * h * (1 - 1e-9), (begin + 0.5) * h]
            values += [logits[begin - 1], logits[begin]]
        kept = _bent(s[begin:end], logits[begin:end])
        points += s[begin:end][kept].tolist()
        values += logits[begin:end][kept].tolist()
    return with_half_weight_on_query(np.array(points), np.array(values))


def _bias_in_cells(masses: np.ndarray, near: float, far: float, h: float) -> RatioBias:
    """Return the bias whose kernel spreads each mass evenly over its cell, and what jumps farther as e^-s."""
    ends = h * np.append(0.0, np.arange(masses.size + 1) + 0.5)
    cells = np.append(near, masses)
    edges = np.stack([ends[:-1] * (1 + 1e-9), ends[1:]], axis=1)
    with np.errstate(divide="ignore"):
        values = np.append((np.log(cells / np.diff(ends))[:, None] + edges).ravel(), np.log(far) + ends[-1])
    values = np.where(values > values.max() - 60, values - values.max(), HIDDEN)
    return with_half_weight_on_query(np.append(edges.ravel(), ends[-1] * (1 + 1e-9)), values)


def _bent(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return indices of points between which straight lines are within :data:`STRAIGHT` of all others."""
    kept, open_ = {0, x.size - 1}, [(0, x.size - 1)]
    while open_:
        a, b = open_.pop()
        if b - a < 2:
            continue
        line = y[a] + (y[b] - y[a]) / (x[b] - x[a]) * (x[a + 1 : b] - x[a])
        off = np.abs(y[a + 1 : b] - line)
        if off.max() > STRAIGHT:
            c = a + 1 + int(off.argmax())
            kept.add(c)
            open_ += [(a, c), (c, b)]
    return np.array(sorted(kept))

"""Checks of troughs in the limit of long prompts: uniform attention, several heads, one slope, several slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from posbias.errors import Numbers
from posbias.rollout.clock import hop_distribution, poisson_distribution
from posbias.rollout.influence import influence_profile
from posbias.rollout.profiles import TOLERANCE, u_shape
from posbias.rollout.structured import structured_kernels
from studies.checks import Check
from studies.clock.hops import hop_rows
from studies.clock.trough import critical_mixing, falling_ratio, limit_density, rising_ratio
from studies.clock.trough_draws import CASES, PROVED, RUNS, N, broken, clock, every, is_u


def falling_rows(
    rng: np.random.Generator, n: int, causal: int, drift: float = 0.0, own: float = 0.0
) -> Float[np.ndarray, "n n"]:
    """Return a kernel whose rows fall, with ties and zeros, but for the drift and own."""
    steps = rng.exponential(size=(n, n)) * rng.integers(2, size=(n, n))
    A = steps[:, ::-1].cumsum(axis=1)[:, ::-1] + 0.01
    A = A * (np.exp(drift * np.arange(n)) + own * np.eye(n))
    A = np.tril(A) if causal else A - A.min(axis=1, keepdims=True) * rng.integers(2)
    A[:, 0] += 1e-9
    return np.asarray(A / A.sum(axis=1, keepdims=True))


def never(seed: int, layers: int = 2, **wrong: float) -> bool:
    """Say whether no profile of 2 to 20 tokens rises, and causal ones fall if enough layers mix."""
    rng = np.random.default_rng(seed)
    for _ in range(40 * CASES):
        n, T, causal = (int(rng.integers(*ends)) for ends in ((2, 21), (1, 6), (0, 2)))
        A = np.stack([falling_rows(rng, n, causal, **wrong) for _ in range(T)])
        lambdas = rng.choice([0, 1, rng.uniform(0.05, 0.95)], T)
        p = influence_profile(A, lambdas)
        strict = causal and (lambdas > 0).sum() >= layers
        if not (np.diff(p[:-1]) < (-1e-15 if strict else 1e-15)).all():
            return False
    return True


def uniform_check() -> Check:
    """Return the check that uniform attention makes no trough."""
    rising: dict[str, dict[str, Any]] = {
        "key weights rise 2% per token": {"drift": 0.02},
        "own token weighs 10% more": {"own": 0.1},
        "strict already if one layer mixes": {"layers": 1},
    }
    return Check(
        "X-trough", "uniform attention", "Ours: a rollout of uniform attention has no U.", every(never),
        f"none of {40 * CASES * RUNS} profiles of kernels with falling rows (causal or "
        "not, 2 to 20 tokens, λ from 0 to 1) rises anywhere before the last token",
        "one profile rises anywhere before the last token, or a causal one is "
        "level there though two layers mix",
        broken(never, rising), "a profile rises", PROVED,
    )  # fmt: skip


def end_slope(c: np.ndarray, w: np.ndarray, lambdas: np.ndarray, factor: float = 1.0) -> float:
    """Return f'(1) for layers with slopes c[t, h] / n and mixing λ_t; factor 1.0 is right."""
    r, kappa = lambdas / (1 - lambdas), c / -np.expm1(-c)
    one, two = r @ ((c * kappa) @ w), r * (kappa @ w)
    pairs = (two.sum() ** 2 - (two**2).sum()) / 2
    return float(np.prod(1 - lambdas) * (one - factor * pairs))


def end_met(seed: int, slope: Callable[..., float] = end_slope) -> bool:
    """Say whether the slope at the end is as computed, in layers that differ."""
    rng = np.random.default_rng(seed)
    for _ in range(CASES):
        T, H = rng.integers(2, 6), rng.integers(1, 4)
        c, w = rng.uniform(0.1, 6, (T, H)), rng.dirichlet(np.ones(H))
        lambdas, steep = rng.uniform(0.1, 0.6, T), []
        for size in (N // 2, N):
            kernels = structured_kernels(int(T), slope=c / size, weights=w)
            p = influence_profile(kernels, lambdas, size)
            steep.append(size**2 * (p[-2] - p[-3]))
        limit = 2 * steep[1] - steep[0]  # without the term in 1/n
        if abs(limit - slope(c, w, lambdas)) > 0.005:
            return False
    return True


def scaled(r: np.ndarray, c: np.ndarray, w: np.ndarray, ratio: float) -> Float[np.ndarray, "n"]:
    """Return the profile of odds in proportion to r for which ω₂/ω₁ is the ratio."""
    r = r * ratio * r.sum() / ((r.sum() ** 2 - (r**2).sum()) / 2)
    kernels = structured_kernels(len(r), slope=c / N, weights=w)
    return influence_profile(kernels, r / (1 + r), N)


def decided(seed: int, rises: Callable[..., float] = rising_ratio, falls: Callable[..., float] = falling_ratio) -> bool:
    """Say whether there is a U below χ and none above Ψ, and the end turns at χ."""
    rng = np.random.default_rng(seed)
    for _ in range(CASES):
        c = rng.uniform(0.3, 8, rng.integers(1, 4)) * rng.integers(2, size=1)
        c = np.append(np.maximum(c, 1e-9), rng.uniform(1, 12))
        w, r = rng.dirichlet(np.ones(c.size)), rng.uniform(0.2, 1, 6)
        low, high = rises(c, w), falls(c, w)
        near, past = (scaled(r, c, w, low * factor) for factor in (0.95, 1.05))
        none = is_u(scaled(r, c, w, 1.05 * high))
        if not is_u(near) or none or not near[-2] > near[-3] or past[-2] > past[-3]:
            return False
    return True


def squares(c: np.ndarray, w: np.ndarray) -> float:
    """Return χ with the mean of squares in place of the square of the mean."""
    top = c / -np.expm1(-c)
    return float(w @ (c * top) / (w @ top**2))


WRONG_ENDS: dict[str, dict[str, Any]] = {
    "χ 10% too large": {"rises": lambda c, w: 1.1 * rising_ratio(c, w)},
    "χ 10% too small": {"rises": lambda c, w: rising_ratio(c, w) / 1.1},
    "mean square in place of squared mean": {"rises": squares},
    "χ for Ψ: the end's criterion taken as necessary": {"falls": rising_ratio},
}
WRONG_SLOPES: dict[str, dict[str, Any]] = {
    "two-hop term 10% too large": {"slope": lambda c, w, x: end_slope(c, w, x, 1.1)},
    "one layer's slopes given to another": {"slope": lambda c, w, x: end_slope(c[::-1], w, x)},
}


def heads_check() -> Check:
    """Return the check of the critical ratio of several heads."""
    return Check(
        "X-trough", "several heads",
        "Ours: with one kernel in all layers, a U below $\\chi$ and none above $\\Psi$.",
        every(decided) and every(end_met),
        f"{CASES * RUNS} random mixtures of heads and schedules ({N} tokens) have a U if ω₂/ω₁ is 0.95 χ and none if "
        "it is 1.05 Ψ, and their last part stops rising within 5% of χ; the slope at the end is as "
        f"computed in {CASES * RUNS} random sets of layers that differ",
        "there is no U 5% below χ, or one 5% above Ψ, the end does not turn "
        "within 5% of χ, or its slope is off by more than 0.005",
        broken(decided, WRONG_ENDS) | broken(end_met, WRONG_SLOPES), "χ or Ψ does not decide", PROVED,
    )  # fmt: skip


def turns(seed: int, threshold: Callable[..., float] = critical_mixing) -> bool:
    """Say whether there is a U 5% below the threshold and none 5% above, at any c and either tolerance."""
    rng = np.random.default_rng(seed)
    for c in np.exp(rng.uniform(np.log(0.3), np.log(15), CASES)):
        for tolerance in (0.0, TOLERANCE):
            total = threshold(c, tolerance)
            below, above = (clock(c, total * factor) for factor in (0.95, 1.05))
            if u_shape(above, tolerance=tolerance).present:
                return False
            if not u_shape(below, tolerance=tolerance).present:
                return False
    return True


def density_met(seed: int, density: Callable[..., np.ndarray] = limit_density, clocked: bool = False) -> bool:
    """Say whether n p is the density within 3%, and twice as near with 2n tokens."""
    rng = np.random.default_rng(seed)
    for c in np.exp(rng.uniform(np.log(0.3), np.log(8), CASES)):
        lambdas, off = rng.uniform(0.05, 0.6, rng.integers(2, 7)), []
        omega = hop_distribution(lambdas)
        omega = poisson_distribution(lambdas.sum()) if clocked else omega
        for size in (N // 2, N):
            kernels = structured_kernels(lambdas.size, slope=c / size)
            p = influence_profile(kernels, lambdas, size)[size // 10 : -1]
            x = np.arange(size // 10 + 1, size) / size
            off.append(np.abs(size * p / density(x, c, omega) - 1).max())
        if off[1] > 0.03 or abs(off[0] / off[1] - 2) > 0.2:
            return False
    return True


WRONG_MIXING: dict[str, dict[str, Any]] = {
    "threshold 1 - exp(-ℓ), half the end's": {"threshold": lambda c, tol: -np.expm1(-c)},
    "threshold 2(1 - exp(-ℓ)) at every ℓ": {"threshold": lambda c, tol: -2 * np.expm1(-c)},
    "threshold 10% too large": {"threshold": lambda c, tol: 1.1 * critical_mixing(c, tol)},
    "threshold 10% too small": {"threshold": lambda c, tol: critical_mixing(c, tol) / 1.1},
}
WRONG_DENSITY: dict[str, dict[str, Any]] = {
    "ℓ 5% too large in the density": {"density": lambda x, c, w: limit_density(x, 1.05 * c, w)},
    "hop weights shifted by one": {"density": lambda x, c, w: limit_density(x, c, np.append(0.0, w))},
    "the clock's hops for the schedule's": {"clocked": True},
}


def one_slope_check() -> Check:
    """Return the check of the critical total and the density of one slope."""
    return Check(
        "X-trough", "one slope",
        "Ours: at a fixed slope × length the clock of a long prompt has a U exactly below its critical total.",
        every(turns) and every(density_met),
        f"the clocks of {CASES * RUNS} slopes (ℓ = 0.3 to 15, {N} tokens) have a U 5% below the critical "
        "total and none 5% above, with the margin of 5% and without; the profiles of "
        f"{CASES * RUNS} schedules are within 3% of the density, and the error halves "
        "with twice the tokens",
        "a U is missing 5% below the critical mixing or present 5% above, the "
        "density is off by more than 3%, or its error does not halve within 10%",
        broken(turns, WRONG_MIXING) | broken(density_met, WRONG_DENSITY), "the critical total does not decide", PROVED,
    )  # fmt: skip


def roots(c: Numbers, weights: Numbers, terms: int = 60) -> Float[np.ndarray, "m"]:
    """Return τ(x) on a grid of n - 1 places, by bisection."""
    c, w = np.maximum(c, 1e-9), np.asarray(weights) / np.sum(weights)
    size, k = N - 0.5, np.arange(2, terms + 1)[:, None]
    kernels = structured_kernels(1, slope=c / size, weights=w, diagonal=np.log(0.5))
    f = size * hop_rows(kernels, terms, N)[2:, :-1]
    back = (N - np.arange(1, N)) / size
    gap = -np.expm1(-np.outer(back, c)) @ (w * c / -np.expm1(-c))
    low, high = np.zeros(N - 1), np.minimum(2 * gap / f[0], 50)
    for _ in range(40):
        tau = (low + high) / 2
        above = (np.exp((k - 1) * np.log(tau) - gammaln(k + 1)) * f).sum(axis=0) > gap
        low, high = np.where(above, low, tau), np.where(above, tau, high)
    return low


def critical_heads(c: Numbers, weights: Numbers) -> float:
    """Return sup τ(x) of several heads.

    >>> bool(abs(critical_heads([1.0], [1.0]) / critical_mixing(1.0) - 1) < 1e-3)
    True
    """
    return max(float(roots(c, weights).max()), 2 * rising_ratio(c, weights))


def heads_turn(seed: int, threshold: Callable[..., float] = critical_heads) -> bool:
    """Say whether the clock with random heads has a U 3% below sup τ(x), and none 3% above."""
    rng = np.random.default_rng(seed)
    for _ in range(CASES):
        c = np.exp(rng.uniform(np.log(0.3), np.log(30), rng.integers(1, 5)))
        c, w = np.append(c * rng.integers(2, size=c.size), 3.0), rng.exponential(size=5)
        total = threshold(c, w[: c.size])
        below, above = (clock(c, f * total, N, w[: c.size]) for f in (0.97, 1.03))
        if not is_u(below) or is_u(above):
            return False
    return True


WRONG_HEADS: dict[str, dict[str, Any]] = {
    "one term, 2Ψ": {"threshold": lambda c, w: min(2 * falling_ratio(c, w), 15.0)},
    "the end alone, 2χ": {"threshold": lambda c, w: 2 * rising_ratio(c, w)},
    "5% too large": {"threshold": lambda c, w: 1.05 * critical_heads(c, w)},
    "5% too small": {"threshold": lambda c, w: critical_heads(c, w) / 1.05},
}


def several_slopes_check() -> Check:
    """Return the check of the critical total of several slopes."""
    return Check(
        "X-trough", "several slopes", "Ours: the same holds for several slopes.", every(heads_turn),
        f"{CASES * RUNS} clocks of 2 to 5 heads (ℓ = 0 to 30, {N} tokens) have a U if the total is 3% below the "
        "critical total sup τ(x), and none if it is 3% above",
        "a U is missing 3% below sup τ(x), or present 3% above",
        broken(heads_turn, WRONG_HEADS), "sup τ(x) does not decide", PROVED,
    )  # fmt: skip

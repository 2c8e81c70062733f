"""Checks of long prompts: the closed form of uniform attention, windows, and profiles without matrices."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import quad
from scipy.special import ive

from posbias.rollout import masks
from posbias.rollout.clock import hop_distribution, poisson_distribution
from posbias.rollout.influence import influence_profile, rollout_matrix
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.profiles import mean_position
from posbias.rollout.structured import StructuredKernels, structured_kernels
from studies.checks import Check
from studies.clock.clock_checks import SEEDS, N, Schedules
from studies.clock.hops import hop_rows, limit_distribution, mix_hops, wasserstein_to_limit
from studies.clock.trough_draws import broken
from studies.results import FOLDER

TAU, COUNTS = 3.0, 2 ** np.array([6, 8, 10, 12, 14])
"""Total mixing of the closed form, and tokens of its prompts."""
POINTS = np.array([0.01, 0.1, 0.3, 0.6, 0.9, 0.999])
WIDTH, HOP, WITHIN = 128, 0.05, 0.99
"""Tokens of a window, mixing of its layers, and share of influence within the horizon."""
LAYERS = np.array([1, 2, 4, 8, 12, 16, 32, 64, 100, 250, 500, 1000])
RANDOM = 400
"""Random kernels in the comparison of the running sum with the product of matrices."""
Law = Callable[[float], np.ndarray]


def uniform_density(x: np.ndarray, total: float) -> np.ndarray:
    """Return e^{-τ} √(τ/u) I₁(2√(τu)), u = -log x; ive is the Bessel function times exp(-z): nothing overflows."""
    u = -np.log(x)
    z = 2 * np.sqrt(total * u)
    return np.asarray(np.sqrt(total / u) * ive(1, z) * np.exp(z - total))


def density_is_law(total: float, hops: np.ndarray) -> bool:
    """Say whether the density at τ integrates to the law of these numbers of hops."""
    u = -np.log(POINTS)

    def in_u(x: float) -> Any:  # density of u = -log x
        return uniform_density(np.exp(-x), total) * np.exp(-x)

    mass = [quad(in_u, u[k + 1], u[k])[0] for k in range(5)]
    if abs(quad(in_u, 0, 400)[0] + np.exp(-total) - 1) > 1e-8:
        return False
    return bool(np.abs(np.diff(limit_distribution(POINTS, hops)) - mass).max() < 1e-10)


def mean_is_product(run: int, slope: float = 0.0) -> bool:
    """Say whether the mean position of random layers is ∏ (1 - λ_t / 2)."""
    rng = np.random.default_rng(run)
    lambdas, size = rng.uniform(size=rng.integers(1, 13)), int(rng.choice([2, 7, N]))
    kernels = structured_kernels(lambdas.size, slope=slope or None)
    mean = mean_position(influence_profile(kernels, lambdas, size))
    return bool(abs(mean - np.prod(1 - lambdas / 2)) < 1e-12)


def distance_met(total: float, by_formula: float, slope: float = 0.0) -> bool:
    """Say whether W₁ to the limit is (1 - exp(-τ/2)) / n at every length."""
    hops = poisson_distribution(total)
    for size in COUNTS:
        kernels = structured_kernels(1, slope=slope / size or None)
        p = mix_hops(hop_rows(kernels, hops.size, int(size)), hops)
        promised = -np.expm1(-by_formula / 2) / size
        if abs(p @ np.arange(1, size + 1) / size - np.exp(-by_formula / 2)) > 1 / size:
            return False
        if abs(wasserstein_to_limit(p, hops) / promised - 1) > 1e-6:
            return False
    return True


def bessel_met(run: int, factor: float = 1.0, slope: float = 0.0, hops: Law = poisson_distribution) -> bool:
    """Say whether density, mean and distance are as stated; factor, slope and hops break it."""
    total = TAU if run == 0 else np.random.default_rng(run).uniform(0.5, 6)
    law = density_is_law(factor * total, hops(total))
    return bool(law and mean_is_product(run, slope) and distance_met(total, factor * total, slope))


def sixty_four(total: float) -> np.ndarray:
    """Return the law of the hops of 64 equal layers."""
    return hop_distribution(np.full(64, total / 64))


def bessel_check() -> Check:
    """Return the check of the closed form of uniform attention."""
    poisson, distances = poisson_distribution(TAU), []
    for size in COUNTS:
        e = hop_rows(structured_kernels(1), poisson.size, int(size))
        distances.append(wasserstein_to_limit(mix_hops(e, poisson), poisson))
    rate = np.polyfit(np.log(COUNTS), np.log(distances), 1)[0]
    wrong: dict[str, dict[str, Any]] = {
        "τ 1% too large in the formulas": {"factor": 1.01},
        "a slope of a hundredth over the prompt": {"slope": 0.01},
        "64 equal layers for the clock": {"hops": sixty_four},
    }
    return Check(
        "X-bessel", "", "Ours: in long prompts the profile of uniform attention has a closed form.",
        all(bessel_met(run) for run in SEEDS[:3]) and bool(abs(rate + 1) < 0.01),
        f"for τ = {TAU:g} and two more totals, and {COUNTS[0]} to {COUNTS[-1]} tokens, the distance W₁ to the closed "
        f"form is (1 - exp(-τ/2))/n; at τ = {TAU:g} it falls from {distances[0]:.1e} to {distances[-1]:.1e} like "
        f"n^{rate:.2f}, and the mean position is exp(-τ/2) = {np.exp(-TAU / 2):.3f}",
        "W₁ is 1e-6 off its formula at one length, the density does not integrate "
        "to the law of the hops within 1e-10, or a mean is 1e-12 off its product",
        broken(bessel_met, wrong),
        "a formula is missed", {"kind": "proved"},
    )  # fmt: skip


def horizons() -> pd.DataFrame:
    """Return by number of layers the distance, in windows, within which 99% of influence lies: exact, and the clock."""
    window = structured_kernels(1, mask=masks.sliding_window(WIDTH))
    back = hop_rows(window, 120, 52 * WIDTH)[:, ::-1]  # by distance from the last token
    laws: dict[str, Callable[[int], np.ndarray]] = {
        "exact": lambda L: hop_distribution(np.full(L, HOP)),
        "clock": lambda L: poisson_distribution(L * HOP),
    }
    found = {}
    for name, law in laws.items():
        found[name] = [np.searchsorted(np.cumsum(mix_hops(back, law(L))), WITHIN) / WIDTH for L in LAYERS]
    return pd.DataFrame(found, index=LAYERS)


def window_met(run: int, wider: int = 0, more: float = 1.0) -> bool:
    """Say whether random windows and layers have the law of added steps, and its mean."""
    rng = np.random.default_rng(run)
    for _ in range(25):
        T, W = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        lambdas = rng.choice([0, 1, rng.uniform(), rng.uniform()], T)
        kernels = structured_kernels(T, mask=masks.sliding_window(W))
        p = influence_profile(kernels, lambdas, T * (W - 1) + 1)[::-1]
        steps = np.ones(1)
        for x in more * lambdas:
            one = np.full(W, x / W)
            one[0] += 1 - x
            steps = np.convolve(steps, one)
        mean = more * lambdas.sum() * (W + wider - 1) / 2
        if np.abs(p - steps).max() > 1e-12 or abs(p @ np.arange(p.size) - mean) > 1e-9:
            return False
    return True


def window_checks(seen: pd.DataFrame) -> list[Check]:
    """Return the checks of the quoted rule on windows, and of what the clock says of them."""
    far = {L: seen["exact"][L] for L in (12, 32, 100, 1000)}
    near = (seen["clock"] / seen["exact"] - 1).abs().max()

    def about(windows: float, share: float = 0.25) -> bool:
        return all(bool(abs(x / windows - 1) < share) for x in far.values())

    wrong: dict[str, dict[str, Any]] = {"window a token wider": {"wider": 1}, "λ 1% smaller": {"more": 0.99}}
    text = ", ".join(f"{x:.2f} W at {L:,} layers" for L, x in far.items())
    return [
        Check(
            "X-window", "about 1.5 W at any depth",
            "A rule of thumb, which we know at second hand: stacked windows see about 1.5 windows back "
            "at any depth.", about(1.5),
            f"in rollouts with windows of W = {WIDTH} tokens and a residual share of {1 - HOP:g}, 99% of the influence "
            f"lies within {text}",
            "the horizon is over 25% from 1.5 W at 12, 32, 100 or 1,000 layers",
            {"2 to 30 windows in place of 1.5": list(map(about, range(2, 31)))},
            "the horizon grows with the depth, as the number of hops does", {},
        ),
        Check(
            "X-window", "the clock's account",
            "Ours: they see as far as the number of hops and the steps in a window say.",
            all(map(window_met, SEEDS)) and bool(near < 0.05),
            f"{25 * len(SEEDS)} random stacks of 1 to 8 windows of 1 to 8 tokens have the "
            "profile of added steps and the mean distance Σλ(W-1)/2; the clock's distance for 99% of the influence is "
            f"within {near:.1%} of theirs",
            "a profile is 1e-12 off the law of added steps, a mean 1e-9 off, or the "
            "clock's horizon over 5% off at 1 to 1,000 layers",
            broken(window_met, wrong),
            "a stack of windows is not as computed", {},
        ),
    ]  # fmt: skip


SLOPES = [None, 1e-12, 1e-6, 1e-3, 0.1, 0.999999, 1.0, 1.000001, 4.0]
CONTENT = [-1000.0, -30.0, -1.0, 0.0, 0.5, 30.0, 1000.0]
Change = Callable[[StructuredKernels], StructuredKernels]


def random_kernels(rng: np.random.Generator) -> tuple[StructuredKernels, int]:
    """Draw kernels with extreme slopes and self-preference, under one of four masks."""
    T, H, size = rng.integers(1, 5), rng.integers(1, 4), rng.choice([1, 2, 3, 17, 48])
    width = int(rng.choice([1, 2, 5, 60]))
    every = (masks.causal(), masks.full(), masks.sliding_window(width), masks.prefix(width))
    given: dict[str, Any] = {"mask": every[rng.integers(4)], "weights": rng.uniform(0.1, 1, H), "H": H}
    slope = SLOPES[rng.integers(len(SLOPES))]
    if slope is not None:
        given["slope"] = slope * rng.uniform(0.999999, 1.000001, (T, H))
    given["diagonal"] = rng.choice(CONTENT, (T, H))
    return structured_kernels(int(T), **given), int(size)


def is_dense(run: int, change: Change = lambda kernels: kernels) -> bool:
    """Say whether the package equals the product of matrices, which may be of others."""
    rng = np.random.default_rng(run)
    for _ in range(RANDOM // len(SEEDS)):
        kernels, size = random_kernels(rng)
        lambdas, row = rng.uniform(size=kernels.T), int(rng.integers(size))
        P = rollout_matrix(change(kernels), lambdas, size)
        p = influence_profile(kernels, lambdas, size, row=row)
        if np.abs(p - P[row]).max() > 1e-12:
            return False
    return True


def wider(kernels: StructuredKernels) -> StructuredKernels:
    """Return kernels whose window or prefix has a token more."""
    mask = kernels.mask
    width = mask.width + 1 if mask.kind in ("window", "prefix") else mask.width
    return dataclasses.replace(kernels, mask=dataclasses.replace(mask, width=width))


CHANGES: dict[str, Change] = {
    "slopes 0.1% steeper": lambda K: dataclasses.replace(K, slopes=1.001 * K.slopes),
    "window and prefix a token wider": wider,
    "own key's logit 1e-6 higher": lambda K: dataclasses.replace(K, diagonal=K.diagonal + 1e-6),
}


def peak_memory(size: int = 2**15) -> int:
    """Return the most bytes that a profile of two layers of eight heads takes."""
    heads = structured_kernels(2, slope=alibi_slopes(8))
    tracemalloc.start()
    influence_profile(heads, [0.5, 0.5], size)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def cost_exponents() -> tuple[dict[str, float], pd.DataFrame]:
    """Return how measured times grow with the number of tokens, by way of computing, and the times."""
    cost = pd.read_csv(FOLDER / "cost.csv", comment="#")
    found = {}
    for path, times in cost.groupby("path"):
        found[str(path)] = float(np.polyfit(np.log(times["n"]), np.log(times["seconds"]), 1)[0])
    return found, cost


def linear_check() -> Check:
    """Return the check that a profile takes time in proportion to the number of tokens."""
    exponents, cost = cost_exponents()
    small, last = peak_memory() < 0.01 * 8 * 2**30, cost.query("path == 'linear'").iloc[-1]
    power = {}
    for name, change in CHANGES.items():
        power[f"matrices with {name}"] = [is_dense(run, change) for run in SEEDS]
    power["times of the paths with matrices"] = [exponents[path] < 1.2 for path in ("row", "product")]
    return Check(
        "X-linear", "", "Ours: a profile takes time in proportion to the number of tokens.",
        all(map(is_dense, SEEDS)) and small and exponents["linear"] < 1.2,
        f"the profiles of {RANDOM} random kernels under four masks (1 to 48 tokens) differ from the product "
        "of matrices by less than 1e-12; measured time grows like the number of tokens to the power "
        f"{exponents['linear']:.2f}, up to {last['n']:,} tokens",
        "one profile is 1e-12 off the product of matrices, memory exceeds a "
        "hundredth of a matrix, or time grows faster than n^1.2",
        power, "the running sum is off, large or slow", {},
    )  # fmt: skip


def long_checks(seen: pd.DataFrame) -> list[Check]:
    """Return the checks of the closed form, of windows and of the running sum."""
    return [bessel_check(), *window_checks(seen), linear_check()]


def long_numbers(models: Schedules, seen: pd.DataFrame) -> dict[str, Any]:
    """Return the numbers that the page quotes of long prompts: BLOOM-176B's reach, windows, cost."""
    kernels, lambdas = models.built["bloom"]
    hop = (kernels.weights[0] / np.expm1(kernels.slopes[0])).sum()
    tenths = {}
    for size in (N, 4096):
        p = influence_profile(kernels, lambdas, size)
        tenths[size] = p[: size // 10].sum(), p[-(size // 10) :].sum()
    exponents, _ = cost_exponents()
    return {
        "clock_reach": float(lambdas.sum() * hop),
        "clock_first_short": tenths[N][0], "clock_first_long": tenths[4096][0], "clock_last_long": tenths[4096][1],
        "clock_window_12": seen["exact"][12], "clock_window_100": seen["exact"][100],
        "clock_window_1000": seen["exact"][1000],
        "clock_order": exponents["linear"], "clock_order_row": exponents["row"],
    }  # fmt: skip

"""Checks of what Wu et al. say of RoPE: lemmas 4.6 and I.1, theorems 4.7 and I.2, appendix H, and bounds of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from studies.checks import Check
from studies.theorems import encodings as e
from studies.theorems import intervals
from studies.theorems.decay import N_LONG, OFF, SHRUNK, N, T, tried
from studies.theorems.forces import rollout_history
from studies.theorems.rope import (
    DEPTHS,
    SINGLE,
    Box,
    Kernels,
    Turned,
    Walks,
    deep_medians,
    fitted_exponent,
    formula_peak,
    gaussian_holds,
    medians,
    walk_logs,
)

GRID = tuple((float(t), float(a)) for t in 2 ** np.arange(7) for a in np.geomspace(0.01, 1, 9))
"""Depths and angles of appendix H."""


def full_holds(cases: Sequence[tuple[Kernels, Box]], share: float = 1.0, angle: float = 1.0, more: int = 0) -> bool:
    """Say whether layers are within the bounds that count all keys; share, angle and more (keys) are mistakes."""
    for A, (theta, smallest, largest, phi) in cases:
        most_long = smallest + share * (largest - smallest)
        limits = intervals.rope_logit_intervals(A.shape[1] + more, theta, smallest, most_long, angle * phi)
        least, most = (b[more:, more:][-len(A) :] for b in intervals.attention_intervals(*limits))
        if (A < least * (1 - 1e-9)).any() or (A > most * (1 + 1e-9)).any():
            return False
    return True


def one_layer_check(turned: Turned) -> Check:
    """Return the check of the bounds with all keys in one layer."""
    seen, full, near = intervals.distances(N) >= 0, turned.cases, medians(turned)
    x, highest, shortened = intervals.distances(N)[seen], 0.0, True
    for layers in turned.limits.values():
        highest = max(highest, *(most[1:].max() for _, most in layers))
    for A, c in zip(turned.drawn, turned.found, strict=True):
        shortened &= bool((A[seen] <= c.full_upper(x) * (1 + 1e-12)).all())
    return Check(
        "X-rope", "one layer", "Ours: bounds with all keys are below 1, in one layer.",
        full_holds(full) and shortened and bool(highest < 1),
        f"{len(full)} layers lie within the bounds (40 extreme ones, 50 beyond the angle condition, 50 within it, "
        f"{2 * T} of networks); the upper bound is below 1 for every query but the first. Its median over attention is "
        f"{near['full'][0]:.1f} in a first layer and {np.median(near['full']):.2f} in the median layer; "
        f"{np.median(near['own']):.0f} if the query alone is counted. Extreme layers attain the bounds",
        "a weight leaves its bounds, or a network's bound reaches 1 after query 1",
        {
            "norms 2% to 40% too narrow": tried(lambda f: full_holds(full, f), SHRUNK),
            "angles too small": tried(lambda f: full_holds(full, angle=f), SHRUNK),
            "a key too many": [full_holds(full, more=1)],
        },
        "", {"kind": "proved"},
    )  # fmt: skip


def loosened(kernels: Any, constants: Any) -> dict[str, list[bool]]:
    """Return what the check of the Gaussian bounds says of each constant 2 to 11 times off."""
    changes = {"C_max": ("upper", -1), "c'": ("c_prime", 1), "C_min": ("lower", 1), "c": ("c", -1)}
    broken = {}
    for label, (name, sign) in changes.items():
        runs = [gaussian_holds(kernels, constants, **{name: by**sign}) for by in np.arange(2.0, 12.0)]
        broken[f"{label} 2 to 11 times off"] = runs
    return broken


def cosines_hold(swapped: bool = False) -> bool:
    """Say whether the printed C_min cos ψ ≤ g cos ψ ≤ C_max cos ψ holds for g in [1, 1.2] and angles up to 0.9π."""
    cosine, g = np.cos(intervals.distances(N)[-1] * 0.9 * np.pi / (N - 1)), np.linspace(1, 1.2, 5)[:, None]
    low, high = (1.2, 1.0) if swapped else (1.0, 1.2)
    return bool(((low * cosine <= g * cosine) & (g * cosine <= high * cosine)).all())


def gaussian_checks(turned: Turned) -> list[Check]:
    """Return the checks of lemma 4.6 and of its printed proof."""
    one, slim = turned.constants["d = 2"], turned.slim
    two = [*turned.kernels["d = 2"], *(turned.drawn[k] for k in slim)], [one] * T + [turned.found[k] for k in slim]
    return [
        Check(
            "WU-L4.6-T4.7", "statement of 4.6", "Lemma 4.6: Gaussian bounds at d = 2.", gaussian_holds(*two),
            f"at d = 2 with {N} tokens, {T} layers of a network (c = {one.c:.2f}, c' = {one.c_prime:.2f}) and "
            f"{len(slim)} random layers lie within their Gaussian bounds, which are loose",
            "a weight leaves [C_min e^(-cSx²), C_max e^(-c'Sx²)]", loosened(*two), "", {"kind": "proved"},
        ),
        Check(
            "WU-L4.6-T4.7", "printed proof of 4.6", "The printed proof of 4.6 is right.", cosines_hold(),
            "for norms in [1, 1.2] and angles up to 0.9π the printed inequality C_min cos ψ ≤ ⟨q, k⟩ ≤ C_max cos ψ "
            "fails beyond π/2",
            "the product of a query and a key leaves the printed cosines",
            {"C_min and C_max exchanged": [cosines_hold(swapped=True)]},
            "the inequality turns round where the cosine is negative, which the angle condition allows; the norms have "
            "to multiply 1 - cos", {"in_part": True},
        ),
    ]  # fmt: skip


def mean_square(t: int, x: Any) -> Any:
    """Return the mean sum of squared steps over all walks of t + 1 steps."""
    return x * (2 * x + t) / (t + 2)


def least_square(t: int, x: Any) -> Any:
    """Return the sum of squares of t + 1 equal steps."""
    return x**2 / (t + 1)


def exponents_hold(above: Callable[..., Any], below: Callable[..., Any]) -> bool:
    """Say whether walk sums are between walks · e^(-a above) and walks · e^(-a below)."""
    distance, sums = walk_logs()
    for t, total in enumerate(sums):
        exponent = (e.log_walks(t, distance) - total) / SINGLE
        low, high = below(t, distance) - 1e-9 / SINGLE, above(t, distance) + 1e-9 / SINGLE
        if (exponent < low).any() or (exponent > high).any():
            return False
    return True


def exponent_check() -> Check:
    """Return the check of the exponents that depth divides."""

    def scaled(f: float, g: float) -> bool:
        return exponents_hold(lambda t, x: f * mean_square(t, x), lambda t, x: g * least_square(t, x))

    return Check(
        "WU-L4.6-T4.7", "our constants", "Ours: the exponents of the corrected Theorem 4.7.",
        exponents_hold(mean_square, least_square),
        f"sums over walks of Gaussian steps on {N_LONG} tokens, in 1 to {DEPTHS[-1]} layers, have exponents between "
        "x²/(t+1) and x(2x+t)/(t+2)",
        "a sum over walks is outside the two bounds at a distance or a depth",
        {
            "printed exponent x²/2 above": [exponents_hold(mean_square, lambda t, x: x**2 / min(t + 1, 2))],
            "x²/(t+1) 2% to 40% larger": tried(lambda f: scaled(1, f)),
            "x(2x+t)/(t+2) 2% to 29% smaller": tried(lambda f: scaled(1 / f, 1)),
        },
        "", {"kind": "proved"},
    )  # fmt: skip


def rollouts_hold(cases: Sequence[tuple[Kernels, Sequence[Box]]], share: float = 1.0, angle: float = 1.0) -> bool:
    """Say whether rollouts are between bounds from all layers; share and angle are mistakes."""
    for kernels, layers in cases:
        each = []
        for theta, low, high, phi in layers:
            box = theta, low, low + share * (high - low), angle * phi
            each.append(intervals.attention_intervals(*intervals.rope_logit_intervals(kernels.shape[1], *box)))
        least, most = intervals.interval_rollouts(*map(np.stack, zip(*each, strict=True)))
        P = rollout_history(kernels, np.ones(len(kernels)))[1:]
        if (P < least * (1 - 1e-9)).any() or (P > most * (1 + 1e-9)).any():
            return False
    return True


def many_layers_check(turned: Turned) -> Check:
    """Return the check of the bounds with all keys in many layers."""
    stays, last = turned.stays, deep_medians(turned)
    deep = [(A, turned.ranges[name]) for name, A in turned.kernels.items()]
    highest = max(most[:, 1:].max() for most in turned.deep_limits.values())
    return Check(
        "X-rope", "many layers", "Ours: bounds with all keys are below 1, in many layers.",
        rollouts_hold(stays + deep) and bool(highest < 1),
        f"two networks of up to {T} layers and {len(stays)} extreme ones of 4 layers lie within the bounds, which are "
        f"below 1 for every query but the first. At {T} layers the median of the bound over the rollout is at most "
        f"{last['all keys']:.0f} (10^{np.log10(last['C_max^T']):.0f} with C_max^T)",
        "an entry of a rollout leaves its bounds, or a bound reaches 1",
        {
            "norms too narrow": tried(lambda f: rollouts_hold(stays, f), SHRUNK),
            "angles too small": tried(lambda f: rollouts_hold(stays, angle=f), SHRUNK),
        },
        "", {"kind": "proved"},
    )  # fmt: skip


def theta_holds(c: float, kernels: Kernels) -> bool:
    """Say whether P over the published formula with this c is bounded above and away from 0."""
    seen = intervals.distances(N) >= 0
    x = intervals.distances(N)[seen]
    for t, P in enumerate(rollout_history(kernels, np.ones(len(kernels)))[1:]):
        if (P[seen] <= 0).any() or not np.isfinite(e.log_walks(t, x) - c * x**2).all():
            return False
    return True


def printed_exponent_holds(turned: Turned, name: str) -> bool:
    """Say whether rollouts are below C_max^T walks e^(-c' x²/2), the printed exponent."""
    c, seen = turned.constants[name], intervals.distances(N) >= 0
    x = intervals.distances(N)[seen]
    for t, P in enumerate(rollout_history(turned.kernels[name], np.ones(T))[1:]):
        most = (t + 1) * np.log(c.upper) - c.c_prime * c.S * x**2 / 2
        if (np.log(P[seen]) > most + e.log_walks(t, x)).any():
            return False
    return True


def step_holds(half: float = 2.0) -> bool:
    """Say whether Σh² ≥ x²/2, equation 16, holds for the equal steps of one walk at every depth."""
    depths = np.arange(1, T + 1)
    return all(bool((depths * (x / depths) ** 2 >= x**2 / half).all()) for x in (12.0, 24.0))


def theorem_checks(turned: Turned, walks: Walks, row: str, number: str, name: str) -> list[Check]:
    """Return the checks of a theorem on many layers, which any constant meets at a fixed depth, and of its proof."""
    A, c = turned.kernels[name], turned.constants[name].c_prime * turned.constants[name].S
    deepest = int(walks.layers[-1])
    real, printed = int(walks.peak_at[deepest - 1]), formula_peak(deepest - 1, SINGLE)
    return [
        Check(
            row, f"statement of {number}", f"Theorem {number}: the published formula with one c.", theta_holds(c, A),
            f"at {name} and {T} layers the rollout over the formula lies between two positive bounds; with c = 0 and "
            f"with ten times c it does so too. At 32 layers the c that fits is {fitted_exponent(32):.2f} of its "
            "value at one layer",
            "P over the formula is 0 or infinite for a pair and a depth",
            {
                "c = 0": [theta_holds(0.0, A)], "ten times c": [theta_holds(10 * c, A)],
                "C_max^T and x²/2": [printed_exponent_holds(turned, name)],
            },
            "", {},
        ),
        Check(
            row, f"printed proof of {number}", f"The printed proof of {number} is right.", step_holds(),
            "the squares of equal steps add up to x²/T, below the x²/2 of equation 16 from three layers on. After "
            f"{deepest} layers the rollout peaks at {real} tokens, the formula with fixed c at {printed:.0f}",
            "the squared steps of a walk over x add up to less than x²/2", {"x² for x²/2": [step_holds(half=1.0)]},
            "squares of steps do not add up to half the square of the distance", {},
        ),
    ]  # fmt: skip


def wide_check(turned: Turned) -> Check:
    """Return the check of lemma I.1, and of the angles of lemma I.3."""
    wide, top = turned.constants["d = 8"], max(turned.angles.values())
    every = [*turned.kernels["d = 8"], *turned.drawn], [wide] * T + turned.found
    return Check(
        "WU-I.1-I.2", "statement of I.1", "Lemma I.1: the same at every even d.",
        gaussian_holds(*every) and top <= 1,
        f"{len(turned.layers)} random layers with d = 2 to 16, and a network with d = 8, lie within the bounds (c = "
        f"{wide.c:.2f}, c' = {wide.c_prime:.3f}) and meet the angle condition; random pairs use at most {top:.2f} of "
        "the bound of Lemma I.3",
        "a weight leaves its Gaussian bounds, or angles that of lemma I.3",
        loosened(*every) | {"bound of lemma I.3 20% smaller": [top <= 0.8]}, "", {"kind": "proved"},
    )  # fmt: skip


Slopes = Callable[[float, float], Any]


def slope_error(formula: Slopes, factor: float = 1.0) -> Any:
    """Return the largest relative errors of ∂x/∂t and of ∂x/∂θ on the grid."""
    numerical = np.array([e.numerical_slopes(t, theta) for t, theta in GRID])
    slopes = factor * np.array([formula(t, theta) for t, theta in GRID])
    return abs(slopes / numerical - 1).max(axis=0)


def slopes_hold(formula: Slopes, factor: float = 1.0) -> bool:
    """Say whether formulas for the derivatives agree with differences."""
    return bool((slope_error(formula, factor) < 1e-5).all())


def moves(power: int) -> bool:
    """Say whether x* grows with t and falls with θ if a = θ² (t + 1)^power."""
    found = np.empty((9, 40))
    for k, b in enumerate(np.geomspace(0.01, 1, 9)):
        found[k] = [e.gaussian_peak(t, b**2 * (t + 1) ** power) for t in np.arange(1.0, 41.0)]
    return bool((np.diff(found, axis=1) > 0).all() and (np.diff(found, axis=0) < 0).all())


def tokens_off() -> float:
    """Return how far x* by Stirling is at most from the largest value of the law itself, in tokens."""
    far, apart = np.arange(4000), []
    for t, theta in GRID:
        law = e.log_walks(int(t), far) - (theta * far) ** 2
        apart.append(abs(int(law.argmax()) - e.gaussian_peak(t, theta**2)))
    return max(apart)


def derivative_checks() -> list[Check]:
    """Return the checks of appendix H."""

    def meant(t: float, theta: float) -> Any:
        return e.printed_slopes(t, theta, squared=True)

    by_t, by_theta = slope_error(e.printed_slopes)
    mistakes = (1.001, *OFF)
    squared = "right" if slopes_hold(meant) else "wrong, too"
    return [
        Check(
            "WU-H", "statement", "Appendix H: the peak moves back with depth, forward with the angle.",
            slopes_hold(e.gaussian_peak_slopes) and moves(0) and moves(-1) and tokens_off() < 1.01,
            f"x* grows with t and falls with θ for all {len(GRID)} pairs (t, θ) tried, under the printed formula and "
            "under the corrected one; the derivatives derived here agree with differences",
            "x* falls with t or grows with θ, or a derivative here is off by 1e-5",
            {
                "derivatives 0.1% to 40% off": tried(lambda f: slopes_hold(e.gaussian_peak_slopes, f), mistakes),
                "a decay that sharpens with depth, θ²(t+1)²": [moves(2)],
            },
            "", {"kind": "proved"},
        ),
        Check(
            "WU-H", "printed proof", "The derivatives of appendix H are right.", slopes_hold(e.printed_slopes),
            f"the printed derivatives are off by up to {by_t:.0%} (by t) and {by_theta:.0%} (by θ); with θ² in place "
            f"of θ they are {squared}. Their signs are right as printed",
            "a printed derivative is off by 1e-5",
            {"θ² for θ, and 0.1% to 40% off": tried(lambda f: slopes_hold(meant, f), mistakes)},
            "the derivative of x²θ² has θ², not θ", {"in_part": slopes_hold(meant)},
        ),
    ]  # fmt: skip


def rope_checks(turned: Turned, walks: Walks) -> list[Check]:
    """Return the checks on RoPE."""
    two = theorem_checks(turned, walks, "WU-L4.6-T4.7", "4.7", "d = 2")
    wide = theorem_checks(turned, walks, "WU-I.1-I.2", "I.2", "d = 8")
    found = [one_layer_check(turned), *gaussian_checks(turned), exponent_check(), many_layers_check(turned), *two]
    return [*found, wide_check(turned), *wide, *derivative_checks()]

"""All forces together: profiles with and without each, when they are a U, and figures of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from posbias.plotting import LINE_STYLES
from posbias.rollout import masks, schedules
from posbias.rollout.influence import influence_history, influence_profile
from posbias.rollout.logits import alibi_slopes, position_logits
from posbias.rollout.profiles import TOLERANCE, UShape, u_shape
from posbias.rollout.structured import structured_kernels
from studies.checks import Check
from studies.palette import plot_profiles
from studies.theorems.drifts import HEADS, MIXING, N, T
from studies.theorems.forces import mean_kernel, trough_map

Profiles = dict[str, Float[np.ndarray, "n"]]
ALL, NO_RESIDUAL, LITTLE = "mask, residual, position", "no residual (λ = 1)", "little mixing (λ / 100)"
LACKING = (NO_RESIDUAL, LITTLE, "no position logits", "no mask")
EDGE = TOLERANCE / (1 + TOLERANCE)
"""Depth of a trough that is just a U: the lower end is 5% above it."""
SLOPES, STEPS = alibi_slopes(HEADS), schedules.constant(T, MIXING)
ALIBI, PLAIN = structured_kernels(T, slope=SLOPES), structured_kernels(T)
TAU, FACTORS, LENGTHS = np.geomspace(0.05, T, 61), np.geomspace(1 / 16, 64, 41), (N, 4 * N, 16 * N)


def profiles() -> Profiles:
    """Return the profile with all forces, without each, and with self-preference."""
    apart = np.abs(position_logits(N, 1.0))  # ALiBi in both directions: -m |i - j|
    both_ways = mean_kernel(-SLOPES[:, None, None] * apart, masks.full())
    found = {
        ALL: influence_profile(ALIBI, STEPS, N),
        NO_RESIDUAL: influence_profile(ALIBI, np.ones(T), N),
        LITTLE: influence_profile(ALIBI, STEPS / 100, N),
        "no position logits": influence_profile(PLAIN, STEPS, N),
        "no mask": influence_profile(np.broadcast_to(both_ways, (T, N, N)), STEPS),
    }
    for d in (4, 2, -2):
        found[f"self-preference d = {d:+d}"] = influence_profile(preferring(d), STEPS, N)
    return found


def preferring(d: float) -> Any:
    """Return ALiBi's kernels with a logit on each query's own key."""
    return structured_kernels(T, slope=SLOPES, diagonal=d)


def only_together(found: Profiles) -> bool:
    """Say whether there is a U, and none once a force is lacking."""
    present = {name: u_shape(p).present for name, p in found.items()}
    return bool(present[ALL] and not any(present[name] for name in LACKING))


def bumps(height: float) -> Float[np.ndarray, "n"]:
    """Return a flat profile whose ends are higher by a share."""
    p = np.ones(N) + height * np.isin(np.arange(N), (0, N - 2, N - 1))
    return np.asarray(p / p.sum())


def broken_runs(found: Profiles, runs: int = 20) -> dict[str, list[bool]]:
    """Say for profiles that should be rejected, drawn anew each time, whether the check passes."""
    rng = np.random.default_rng(0)

    def drawn(A: Any, high: float) -> Float[np.ndarray, "n"]:
        return influence_profile(A, schedules.constant(T, rng.uniform(0.05, high)), N)

    instead: dict[str, tuple[str, Callable[[], Float[np.ndarray, "n"]]]] = {
        "uniform attention without positions, for the three forces": (ALL, lambda: drawn(PLAIN, 1.0)),
        "a flat profile with ends up to 4% higher, for the three forces": (ALL, lambda: bumps(rng.uniform(0, 0.04))),
        "the residual left in, λ from 0.05 to 0.25": (NO_RESIDUAL, lambda: drawn(ALIBI, 0.25)),
    }
    passes = {}
    for what, (name, draw) in instead.items():
        passes[what] = [only_together(found | {name: draw()}) for _ in range(runs)]
    return passes


def maps() -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return depth and place of the trough by number of tokens, over factors of the slopes and total mixing."""
    return {n: trough_map(n, T, TAU, FACTORS[:, None] * SLOPES) for n in LENGTHS}


def own_range() -> tuple[float, float]:
    """Return the least and the largest total mixing with a U, with ALiBi's own slopes."""
    fine = np.geomspace(TAU[0], TAU[-1], 601)
    inside = fine[trough_map(N, T, fine, SLOPES[None])[0][0] > EDGE]
    return float(inside.min()), float(inside.max())


def u_numbers(found: Profiles) -> dict[str, Any]:
    """Return the numbers that the page quotes of the U."""
    at: UShape = u_shape(found[ALL])
    low, high = own_range()
    return {
        "forces_u_depth": at.depth, "forces_u_at": at.location, "forces_u_low": at.low, "forces_u_high": at.high,
        "forces_n": N, "forces_tau_low": low, "forces_tau_high": high,
    }  # fmt: skip


def u_check(found: Profiles, shown: dict[int, tuple[np.ndarray, np.ndarray]]) -> Check:
    """Return the check that all forces together can make a U, in one setting."""
    at, present = u_shape(found[ALL]), {name: u_shape(found[name]).present for name in (ALL, *LACKING)}
    mixed = u_shape(influence_profile(ALIBI, schedules.constant(T, 0.5), N))
    share = {n: (depth > EDGE).mean() for n, (depth, _) in shown.items()}
    middle = {n: ((depth > 0.5) & (abs(place - 0.5) < 0.4)).mean() for n, (depth, place) in shown.items()}
    long = LENGTHS[-1]
    return Check(
        "RA-U", "one setting", "Mask, residual and position together can make a U; without any one there is none.",
        only_together(found),
        "the paper has no criterion of 'broad' and 'often', so one setting, picked for its U, "
        f"decides (with λ = 0.5 in each layer D = {mixed.depth:.2f}). With Σλ = {T * MIXING:.1f} and {N} tokens "
        f"D = 1 - min p_j / min(p_1, p_(n-1)), last position left out, is {at.depth:.2f}, and the "
        f"trough is at {at.location:.2f} ({at.low:.2f} to {at.high:.2f}) of the sequence; there is no U without "
        "residual, with λ/100, without position logits or without mask. There is a U on "
        f"{share[N]:.0%} of the (Σλ, slope) map at {N} tokens, {share[long]:.0%} at {long}, and one with D above 0.5 "
        f"and its trough in the middle on {middle[N]:.0%} and {middle[long]:.0%}",
        "there is no U with mask, residual and position logits (ends over 5% "
        "above the trough), or there is one without one of them or with a hundredth of "
        "the mixing",
        broken_runs(found), f"U present: {present}", {"post_hoc": True},
    )  # fmt: skip


def draw_together(found: Profiles) -> Figure:
    """Draw the profile with all forces, and without each of three."""
    shown = {name: found[name] for name in (ALL, NO_RESIDUAL, "no position logits", "no mask")}
    fig, ax = plt.subplots(figsize=(6.4, 3.3))
    plot_profiles(ax, shown, styles=dict(zip(shown, LINE_STYLES, strict=False)))  # type: ignore[arg-type]
    ax.set_ylim(1e-3, 1)
    places = {ALL: (0.2, 0.62), NO_RESIDUAL: (0.02, 2), "no position logits": (0.72, 0.7), "no mask": (0.7, 1.7)}
    for line, name in zip(ax.lines, shown, strict=False):
        share, factor = places[name]
        at = int(share * N)
        ax.text(at + 0.8, factor * shown[name][at], name, color=str(line.get_color()), va="center")
    return fig


def changed() -> dict[str, Profiles]:
    """Return by force the profiles of three or four strengths of it."""
    deepest = 8 * T
    history = influence_history(structured_kernels(deepest, slope=SLOPES), schedules.constant(deepest, MIXING), N)
    constant = {x: influence_profile(ALIBI, schedules.constant(T, x), N) for x in (1.0, 0.3, MIXING, 0.03)}
    steep = {s: influence_profile(structured_kernels(T, slope=s * SLOPES), STEPS, N) for s in (0.25, 1.0, 4.0)}
    own = {d: influence_profile(preferring(d), STEPS, N) for d in (-4, 0, 2, 4)}
    return {
        "mask: number of layers": {f"{t}": history[t] for t in (deepest, 2 * T, T, 2)},
        "residual: mixing λ": {f"{x:g}": p for x, p in constant.items()},
        "position: slopes": {"none": influence_profile(PLAIN, STEPS, N)} | {f"× {s:g}": p for s, p in steep.items()},
        "self-preference: logit": {f"{d:g}": p for d, p in own.items()},
    }


def draw_forces() -> Figure:
    """Draw prefix masses for several strengths of each force."""
    axes: Any
    fig, axes = plt.subplots(2, 2, figsize=(6.4, 5.2), sharex=True, sharey=True)
    for ax, (title, strengths) in zip(axes.flat, changed().items(), strict=True):
        for (label, p), style in zip(strengths.items(), LINE_STYLES, strict=False):
            mass = np.cumsum(p)
            (line,) = ax.plot(np.arange(N), mass, linestyle=style, label=label)
            if mass[34] > 0.9:
                ax.text(34, mass[34] - 0.03, label, color=str(line.get_color()), va="top")
            elif ax in axes[0]:
                ax.text(34, mass[34] + 0.02, label, color=str(line.get_color()), ha="right")
        ax.set(title=title, ylim=(0, 1.02))
    for ax in axes[-1]:
        ax.legend(loc="upper left", fontsize=8.5)
        ax.set_xlabel("cutoff $k$ (last position counted)")
    for ax in axes[:, 0]:
        ax.set_ylabel("prefix mass")
    return fig


def draw_map(shown: dict[int, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw how deep the trough is over mixing and slopes, and where the U ends for three lengths."""
    depth, location = shown[N]
    axes: Any
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 3.3), sharey=True, width_ratios=(1.25, 1))
    left, right = axes
    filled = left.contourf(TAU, FACTORS, depth, levels=np.append(EDGE, np.linspace(0.1, 1, 10)))
    where = np.where(depth > EDGE, location, np.nan)
    places = left.contour(TAU, FACTORS, where, [0.2, 0.5, 0.9], colors="k", linewidths=0.9, linestyles=":")
    left.clabel(places, fontsize=8.5, inline_spacing=0, fmt="at %.1f")
    fig.colorbar(filled, ax=left, ticks=[0.1, 0.5, 1]).ax.set_title("$D$", fontsize=9)
    looks = (("-", "C0"), ("--", "C1"), (":", "C2"))
    for (n, (depths, _)), (style, colour) in zip(shown.items(), looks, strict=True):
        line = {"colors": colour, "linestyles": [style], "linewidths": 1.7}
        right.contour(TAU, FACTORS, depths.clip(-1), levels=[EDGE], **line)
        right.plot([], [], color=colour, linestyle=style, label=f"$n = {n}$")
    right.tick_params(labelleft=True)
    left.set(ylabel="factor on the slopes", yscale="log")
    for ax in axes:
        ax.set(xscale="log", xlabel=r"total mixing $\sum_t \lambda_t$")
    fig.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig

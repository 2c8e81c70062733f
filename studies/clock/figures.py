"""Figures of the clock, of long prompts, and of when there is a trough."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from posbias.rollout.clock import poisson_distribution
from posbias.rollout.influence import influence_profile
from studies.clock.clock_checks import Schedules
from studies.clock.hops import mix_hops, partly_exact_hops
from studies.clock.trough import critical_mixing, limit_density
from studies.clock.trough_draws import clock, is_u

LENGTHS = (256, 1024, 4096)


def draw_clock(models: Schedules, labels: dict[str, str], colours: dict[str, str]) -> Figure:
    """Draw rollout and clock of the models with the smallest and the largest error, and the errors of all."""
    axes: Any
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 3.2))
    left, right = axes
    errors = models.errors.query("exact == 0").set_index("model")["TV"].sort_values()
    for name, style, x in zip((errors.index[0], errors.index[-1]), ("-", "--"), (110, 25), strict=True):
        left.plot(models.rollout[name], color=colours[name], linestyle=style, linewidth=2.4)
        left.plot(mix_hops(models.rows[name], partly_exact_hops(models.built[name][1], 0)[0]), "k", linewidth=0.8)
        left.text(x, 1.5 * models.rollout[name][x], labels[name], color=colours[name])
    left.set(xlabel="token position $j$ (0 is first)", ylabel="influence $p_j$", yscale="log")
    for y, name in enumerate(errors.index):
        both = models.errors.query("model == @name and exact < 2")["TV"]
        look = {"color": colours[name], "markersize": 6}
        right.plot(both, [y, y], color=colours[name])
        right.plot(both.iloc[:1], [y], "o", **look)
        right.plot(both.iloc[1:], [y], "o", markerfacecolor="white", **look)
    right.set_yticks(range(len(errors)), [labels[name] for name in errors.index])
    right.set(xlabel="total variation", xlim=(0, None))
    return fig


def draw_long(models: Schedules) -> Figure:
    """Draw BLOOM-176B's profiles of three lengths, by position and by distance from the last token."""
    axes: Any
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 3.2))
    left, right = axes
    for n, style in zip(LENGTHS, ("-", "--", "-."), strict=True):
        p = influence_profile(*models.built["bloom"], n)
        (line,) = left.plot(np.arange(n) / (n - 1), n * p, linestyle=style)
        right.loglog(np.arange(1, n), p[-2::-1], linestyle=style)
        factor, side = (2.5, "bottom") if n == LENGTHS[0] else (0.5, "top")
        text = f"{n} tokens" if n == LENGTHS[0] else f"{n}"
        left.text(0.35, factor * n * p[int(0.35 * n)], text, va=side, color=line.get_color())
        right.text(0.6 * n, p.min() / 4, f"{n}", ha="right", color=line.get_color())
    left.axhline(1, color="#7f7f7f", linestyle="--", linewidth=0.9)
    left.set(xlabel="position, as a share of the prompt", ylabel="$n\\,p_j$", yscale="log", ylim=(1e-7, None))
    right.set(xlabel="distance from the last token", ylabel="influence $p_j$", ylim=(1e-11, None))
    return fig


def draw_trough() -> Figure:
    """Draw the critical total mixing of one slope, and densities of influence below and above it."""
    axes: Any
    grid = np.geomspace(0.1, 20, 60)
    critical = np.array([critical_mixing(c) for c in grid])
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 3.4))
    left, right = axes
    left.fill_between(grid, critical, color="C0", alpha=0.12)
    left.plot(grid, critical, "C0")
    left.plot(grid, -2 * np.expm1(-grid), "k--", linewidth=1)
    for c in np.geomspace(0.15, 14, 8):
        for factor in (0.3, 0.6, 0.9, 1.1, 1.5):
            total = factor * critical_mixing(c)
            left.plot(c, total, "k." if is_u(clock(c, total, 256)) else "kx", markersize=4)
    left.set(xlabel="bias over the prompt $\\ell$", ylabel=r"total mixing $\tau$", xscale="log", ylim=(0, 6))
    left.text(9.5, 0.3, "U", color="C0", weight="bold")
    left.text(0.2, 3.2, "no U")
    x, shown = np.geomspace(0.004, 1, 400), ((4, 1.5, 1.33), (4, 2.4, 0.86), (4, 2.9, 0.62), (1e-9, 1.5, 0.31))
    for (c, total, y), style in zip(shown, ("-", "--", "-.", ":"), strict=True):
        (line,) = right.plot(x, limit_density(x, c, poisson_distribution(total)), style)
        text = rf"$\tau = {total:g}$" if c > 1 else r"$\ell = 0$"
        right.text(1.02, y, text, color=line.get_color(), clip_on=False)
    right.set(xlabel="position $x$ (share of the prompt)", ylabel="density of influence $f$", xlim=(0, 1), ylim=(0, 2))
    return fig

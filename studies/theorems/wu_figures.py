"""Figures of masks as graphs and of positions as steps."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posbias.plotting import LINE_STYLES
from posbias.rollout import masks as kinds
from studies.theorems import decay, encodings, graphs, masks, prefix_checks, rope
from studies.theorems.wu import Evidence

GREY = "#7f7f7f"
KEYS = {2: (127, 1e-27), 8: (92, 1e-58), 32: (29, 1e-56)}
"""Keys of the first figure, and where their labels stand."""


def draw_collapse(ax: Axes, seen: Evidence) -> None:
    """Draw the largest predicted influence of three keys by depth, and the bound of the last."""
    depth, e = np.arange(1, masks.T + 1), seen.example.epsilon["causal"]
    for (j, at), style in zip(KEYS.items(), LINE_STYLES, strict=False):
        (line,) = ax.plot(depth, seen.example.value["causal"][:, j - 1], linestyle=style)
        ax.text(*at, f"$j = {j}$", color=line.get_color(), ha="right")
    ax.plot(depth, (1 - (masks.N - 1) * e) ** depth, GREY, linestyle="--")
    ax.text(128, 1e-7, f"bound for $j = {masks.N}$", color="#5f5f5f", ha="right")
    ax.set(xlabel="depth $T$ (layers)", yscale="log", ylim=(1e-100, 1e4), title="causal mask alone")
    ax.set_yticks(10.0 ** np.arange(-100, 1, 20))
    ax.set_ylabel("largest predicted influence of token $j$")


def draw_peaks(ax: Axes, seen: Evidence) -> None:
    """Draw the distance of the peak under ALiBi by depth, for four slopes, beside depth times mean step."""
    depth, end = np.arange(1, decay.DEPTHS + 1), decay.N_LONG - 1
    for m, peak in seen.peaks.peaks.items():
        (line,) = ax.plot(depth, peak, "o", markersize=2.5)
        ax.plot(depth, depth / np.expm1(m), ":", color="#000000", linewidth=1)
        look: Any = {"color": line.get_color(), "va": "center"}
        if peak[-1] < end:
            ax.text(42, peak[-1], f"$m = {m}$", **look)
        else:
            ax.text(20, 265, f"$m = {m}$", ha="right", **look)
    ax.axhline(end, color="0.5", linewidth=1, zorder=0)
    ax.text(1, end - 8, "first token", va="top", color="0.4")
    ax.text(36, 270, "depth ×\nmean step", va="center")
    ax.set(xlim=(0, 60), ylim=(0, 545), title="mask and ALiBi", xlabel="depth $T$ (layers)")
    ax.set_ylabel("distance of the peak (tokens)")


def draw_glance(seen: Evidence) -> Figure:
    """Draw the collapse under the mask alone, and the peak that moves back under ALiBi."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.4))
    draw_collapse(left, seen)
    draw_peaks(right, seen)
    return fig


def draw_masks() -> Figure:
    """Draw four masks and the keys on which predicted influence ends."""
    shown = {
        "causal": kinds.causal().matrix(9), "window of 3": kinds.sliding_window(3).matrix(9),
        "prefix of 3": kinds.prefix(3).matrix(9), "two documents": graphs.packed_documents([4, 5]),
    }  # fmt: skip
    axes: Any
    fig, axes = plt.subplots(1, 4, figsize=(6.4, 2.0), sharey=True)
    for ax, (name, graph) in zip(axes, shown.items(), strict=True):
        shade = graph.astype(float)
        for group in graphs.closed_groups(graph):
            shade[:, group] *= 2.5
        ax.imshow(shade, cmap="Greys", vmin=0, vmax=3)
        ax.set(title=name, xlabel="key $j$", xticks=[0, 4, 8], xticklabels=[1, 5, 9])
        ax.set(yticks=[0, 4, 8], yticklabels=[1, 5, 9])
        ax.grid(visible=False)
    axes[0].set_ylabel("query $i$")
    return fig


def draw_windows(seen: Evidence, far: int = 400) -> Figure:
    """Draw what is off the first token under four windows, and what tokens of a prefix keep."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2))
    shown = {2: 0, 3: 5, 5: 0, 32: -7}  # Windows, and by how many powers of ten a label is moved
    for (w, up), style in zip(shown.items(), LINE_STYLES, strict=False):
        off = np.exp(seen.even.logs[w][:far])
        (line,) = left.plot(np.arange(1, far + 1), off, linestyle=style)
        left.text(far + 8, off[-1] * 10.0**up, f"$w = {w}$", color=line.get_color(), va="center")
    left.set(xlabel="depth $T$ (layers)", xlim=(0, 540), yscale="log", ylim=(1e-135, 1e4), xticks=[0, 200, 400])
    left.set(ylabel="predicted influence of other tokens", yticks=10.0 ** np.arange(-120, 1, 20), title="windows")
    K = masks.PREFIXES[-1]
    low, share, high = prefix_checks.shares_kept(seen.example, K)
    tokens = np.arange(1, K + 1)
    right.bar(tokens, high - low, bottom=low, color="C0", alpha=0.3)
    right.hlines(share, tokens - 0.4, tokens + 0.4, color="#000000")
    right.axhline(1 / K, color=GREY, linestyle="--", linewidth=0.9)
    right.text(0.55, 0.255, f"dashed: uniform, 1/{K}", color="#5f5f5f")
    right.set(xlabel="prefix token $k$", ylim=(0, 0.28), title=f"a prefix of {K}", ylabel="predicted influence")
    return fig


def draw_rope(seen: Evidence) -> Figure:
    """Draw the mean weight of a walk between its bounds, and the peak beside the published formula."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.3))
    distance, sums = rope.walk_logs()
    places = {1: (185, -14), 2: (420, -14), 8: (435, -11.3), 32: (420, 0.1)}
    for (T, at), style in zip(places.items(), LINE_STYLES, strict=False):
        walks = encodings.log_walks(T - 1, distance)
        (line,) = left.plot(distance, sums[T - 1] - walks, linestyle=style)
        low, high = encodings.log_gaussian_walks(T - 1, distance, rope.SINGLE)
        left.fill_between(distance, low - walks, high - walks, color=line.get_color(), alpha=0.2, linewidth=0)
        left.text(*at, f"$T = {T}$", color=line.get_color())
    left.set(xlabel="distance $x$ (tokens)", ylim=(-20, 1.2), ylabel="log of the mean weight of a walk")
    layers = np.arange(1, int(seen.walks.layers[-1]) + 3)
    right.axhline(decay.N_LONG - 1, color="0.5", linewidth=1, zorder=0)
    right.text(0.3, decay.N_LONG - 9, "first token", va="top", color="0.4")
    right.plot(layers, layers * seen.walks.hop, ":", color="#000000", linewidth=1)
    right.plot(layers, seen.walks.peak_at[layers - 1], "C0o", markersize=5)
    fixed = [rope.formula_peak(int(T) - 1, rope.SINGLE) for T in layers]
    right.plot(layers, fixed, "C1s--", markersize=4, linewidth=1)
    right.text(7.3, 272, "rollout", color="C0", va="center")
    right.text(9.2, 72, "published formula", color="C1", ha="right")
    right.text(4.6, 290, "depth ×\nmean step", ha="right")
    right.set(xlabel="depth $T$ (layers)", xlim=(0, 10), ylim=(0, 545), ylabel="distance of the peak (tokens)")
    return fig


def draw_residual(seen: Evidence) -> Figure:
    """Draw what residual connections leave to key 4 by depth, and what becomes of the hump."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0))
    labels = {
        "1": ("no residual\nconnections", (30, 1e-10)), "constant": ("$λ_t = 0.2$", (80, 3e-4)),
        "summable": ("$λ_t = 0.9/t^2$", (70, 0.4)),
    }  # fmt: skip
    depth = np.arange(1, masks.T + 1)
    for (name, (label, at)), style in zip(labels.items(), LINE_STYLES, strict=False):
        (line,) = left.plot(depth, seen.residual[name][0], linestyle=style)
        left.text(*at, label, color=line.get_color())
    left.plot(depth, seen.residual["summable"][1], GREY, linestyle=":")
    left.text(128, 0.01, "its lower bound", color="#5f5f5f", ha="right")
    left.set(xlabel="depth $T$ (layers)", yscale="log", ylim=(1e-12, 3), title="causal mask alone, token 4")
    left.set_ylabel("largest predicted influence")
    places = {1.0: (66, 0.022), 0.5: (34, 0.029), 0.2: (10.5, 0.048), 0.1: (2.2, 0.082)}
    for (lam, spot), dashes in zip(places.items(), LINE_STYLES, strict=False):
        p = decay.residual_profile(lam)
        (line,) = right.plot(p[:101], linestyle=dashes)
        look: Any = {"color": line.get_color()}
        beyond = f" (last token: {p[0]:.2f})" if p[0] > 0.09 else ""
        right.text(*spot, f"$λ = {lam:g}${beyond}", **look)
    right.set(xlabel="distance $x$ (tokens)", xlim=(-1, 100), ylim=(0, 0.09), title="mask and ALiBi")
    right.set_ylabel("predicted influence")
    return fig

"""Figures of the page ``design``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from studies.design import tables
from studies.design.closed_forms import LENGTH
from studies.design.trained import MODELS, Designed, level

LOOKS = {
    "log": ("#0072B2", "--", (0.3, 2.1)),
    "flat": ("#D55E00", "-", (0.86, 1.2)),
    "ALiBi, 16 heads": ("#009E73", "-.", (0.6, 5)),
    "uniform attention": ("#7f7f7f", ":", (0.03, 20)),
}
"""Colour, style and place of the label of each bias."""
ROWS = {name: name for name in ("RoPE", "ALiBi", "log", "no encoding")}
ROWS |= {"half local, half flat": "half flat, half local"}
ROWS |= {"flat logits in half of the heads": "+ flat, half of heads"}
ROWS |= {"flat logits added": "+ flat, all heads"}
BODIES = {"llama-12": ("Llama", "o", "black", -0.12), "bloom-12": ("BLOOM", "s", "#CC79A7", 0.12)}
COLOURS = {"rotary": "#CC79A7", "alibi": "#009E73", "flat": "#D55E00"}


def draw_map(profiles: Mapping[str, np.ndarray], seen: Designed) -> Figure:
    """Draw rollouts under four biases, and below how uniform networks are and what they lose."""
    fig, axes = plt.subplot_mosaic([["top", "top"], ["distance", "loss"]], figsize=(6.4, 5.8))
    for name, (colour, style, place) in LOOKS.items():
        x = np.arange(1, LENGTH) / LENGTH
        axes["top"].plot(x, LENGTH * profiles[name][:-1], style, color=colour)
        axes["top"].text(*place, name, color=colour)
    axes["top"].set(xlabel="position as a share of the prompt", yscale="log")
    axes["top"].set(ylabel="influence × n", ylim=(0.03, 60))
    _draw_points(axes, seen)
    for panel, labels in (("distance", list(ROWS.values())), ("loss", [""] * len(ROWS))):
        axes[panel].set_yticks(range(len(ROWS)), labels)
        axes[panel].invert_yaxis()
        axes[panel].axhline(4.5, color="black", linewidth=0.5)
    axes["distance"].set(xlabel="distance to uniform", xlim=(0, 0.42))
    axes["loss"].set(xlabel="additional loss (nats)")
    axes["distance"].legend(loc="upper left", fontsize=8.5)
    return fig


def _draw_points(axes: Mapping[str, Any], seen: Designed) -> None:
    points = tables.map_points(seen.kept)
    for body, (name, mark, colour, shift) in BODIES.items():
        some = points[(points["body"] == body) & points["name"].isin(ROWS)]
        y = np.array([list(ROWS).index(row) for row in some["name"]]) + shift
        for panel, z in (("distance", "x"), ("loss", "y")):
            off = [some[z] - some[f"{z}_low"], some[f"{z}_high"] - some[z]]
            look: dict[str, Any] = {"fmt": mark, "color": colour, "ms": 5, "label": name}
            axes[panel].errorbar(some[z], y, xerr=off, elinewidth=1, **look)


def draw_influence(seen: Designed) -> Figure:
    """Draw rollout and measured influence of trained networks, with designed biases and with their own positions."""
    axes: Any
    fig, axes = plt.subplots(2, 2, figsize=(6.4, 4.8), sharex=True, sharey=True)
    for row, (body, name) in zip(axes, MODELS.items(), strict=True):
        for ax, rollout in zip(row, (True, False), strict=True):
            for model in (body, f"{body}-flat"):
                y, kind = level(seen, model, rollout), tables.body_and_kind(model)[1]
                style = "--" if kind == "flat" else "-"
                x = (np.arange(y.size) + 4) / (y.size + 9)
                ax.plot(x, y, style, color=COLOURS[kind], label=tables.LABELS[kind])
            ax.axhline(1, color="#7f7f7f", linewidth=0.8, linestyle=":")
            ax.set(yscale="log", xlim=(0, 1))
            ax.set_title(f"{name}, {'rollout' if rollout else 'measured influence'}")
        row[0].set_ylabel("times an equal share")
        row[0].legend(loc="upper left")
    for ax in axes[1]:
        ax.set_xlabel("place (0 first, 1 last)")
    axes[0, 0].set_ylim(0.02, 40)
    return fig

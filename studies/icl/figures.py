"""Figures of networks trained from scratch: what they prefer by depth, and by the bias of their data."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from studies.icl import tables
from studies.icl.evidence import Evidence

GREY = "#7f7f7f"
LOOK = {"none": ("C0", "o"), "decay": ("C1", "s"), "rope": ("C2", "D")}
"""Colour and marker of each encoding."""
NAMES = {"none": (4, 0.6), "decay": (4, -0.75), "rope": (4, 0.3)}
"""Where each encoding's name stands in the last panel."""
ANSWERS = {
    "ends": "answer at both ends",
    "first": "answer always first",
    "middle": "answer always in the middle",
    "last": "answer always last",
}
"""Panels of the figure of biased data."""
PLACED = {
    ("causal", "none"): (-0.24, "D", True),
    ("causal", "sinusoidal"): (-0.08, "o", True),
    ("causal", "rope"): (0.04, "s", True),
    ("full", "sinusoidal"): (0.16, "o", False),
    ("full", "rope"): (0.28, "s", False),
}
"""By mask and encoding: how far aside a symbol stands, its marker, and whether it is filled."""


def draw_line(ax: Any, rows: pd.DataFrame, aside: float, colour: str, marker: str) -> None:
    """Draw gaps against depth: a line through means over seeds, which are dots and a bar."""
    by_depth = rows.pivot(index="layers", columns="seed", values="gap")
    at = by_depth.index.to_numpy() + aside
    ax.plot(at, by_depth.mean(axis=1), f"{marker}-", markersize=5, color=colour)
    ax.vlines(at, by_depth.min(axis=1), by_depth.max(axis=1), linewidth=0.8, color=colour)
    each = np.tile(at[:, None], by_depth.shape[1])
    ax.plot(each, by_depth, ".", markersize=3, color=colour)


def label_panel(ax: Any, pair: str, depths: list[int]) -> None:
    """Write titles, ticks, and which place is preferred above and below zero."""
    ax.axhline(0, color=GREY, linewidth=0.8)
    for place, y, side in zip(pair.split(" vs "), (0.98, 0.02), ("top", "bottom"), strict=True):
        look = {"ha": "center", "va": side, "color": "#5f5f5f"}
        ax.text(0.5, y, f"{place} preferred", transform=ax.transAxes, **look)
    ax.set(title=pair, xlabel="layers", xticks=depths, ylim=(-1.3, 1.3))
    ax.set_yticks([-1, -0.5, 0, 0.5, 1])
    ax.margins(x=0.15)


def draw_places(seen: Evidence) -> Figure:
    """Draw which of two places networks with a residual prefer, by depth and encoding."""
    table = seen.gap.query("residual")
    fig, axes = plt.subplots(1, 3, figsize=(6.4, 2.9), sharey=True)
    for ax, pair in zip(axes, tables.PAIR_NAMES, strict=True):
        for k, (encoding, look) in enumerate(LOOK.items()):
            rows = table[(table["pair"] == pair) & (table["encoding"] == encoding)]
            draw_line(ax, rows, 0.15 * (k - 1), *look)
        label_panel(ax, pair, sorted(set(table["layers"])))
    axes[0].set_ylabel("gap in accuracy")
    for encoding, at in NAMES.items():
        axes[2].text(*at, tables.NAMES[encoding], color=LOOK[encoding][0], ha="center")
    return fig


def draw_biases(seen: Evidence) -> Figure:
    """Draw which of two places networks prefer whose training data favour some."""
    table = tables.gap_table(seen.joined("figure3", "figure6"))
    table = table[(table["mask"] == "causal") | (table["encoding"] != "none")]
    fig, axes = plt.subplots(2, 2, figsize=(6.4, 4.8), sharex=True, sharey=True)
    panels = dict(zip(ANSWERS, axes.flat, strict=True))
    rows = table.groupby(["bias", "pair", "mask", "encoding"], observed=True)["gap"]
    for (bias, pair, mask, encoding), x in rows:
        aside, marker, filled = PLACED[mask, encoding]
        colour = "C0" if encoding == "none" else "C1"
        at = tables.PAIR_NAMES.index(pair) + aside
        panels[bias].vlines(at, x.min(), x.max(), color=colour, linewidth=0.9)
        look = {"color": colour, "mfc": colour if filled else "white", "ms": 5.5}
        panels[bias].plot(at, x.mean(), marker, **look)
    for bias, ax in panels.items():
        ax.set_title(ANSWERS[bias], loc="left")
        ax.axhline(0, color=GREY, linewidth=0.8)
        names = [pair.replace(" vs ", "\nvs ") for pair in tables.PAIR_NAMES]
        ax.set_xticks(range(len(names)), names)
        ax.set(ylim=(-1.2, 1.2), yticks=[-1, -0.5, 0, 0.5, 1])
    for ax in axes[:, 0]:
        ax.set_ylabel("gap in accuracy")
    axes[0, 1].text(1.7, 0.25, "causal mask alone", color="C0", ha="center")
    axes[0, 1].text(1.7, -0.35, "with an encoding", color="C1", ha="center")
    return fig

"""Figures of norms and recency."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from studies.norms.simulated import NETWORKS, Simulated, last_row, opening
from studies.norms.trained import READINGS, Trained
from studies.palette import MODEL_COLOURS

GREY = "#7f7f7f"
LOOKS = {"no norm": ":", "LayerNorm": "-", "LayerNorm, residual": "--"}
LABELS = {
    "no norm": ("no norm", (5.4, 0.03), (1.5, 0.3)),
    "LayerNorm": ("LayerNorm", (2.2, 0.58), (2.1, 0.84)),
    "LayerNorm, residual": ("with residual", (5.4, 0.25), (2.75, 0.56)),
}
"""What each curve is called, and where in the left and in the right panel."""


def draw_opening(seen: Simulated) -> Figure:
    """Draw logits of the last query by key, and how often the later key has the larger logit by layer."""
    shares = opening(seen)
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.0))
    for k, kind in enumerate(NETWORKS):
        label, at_left, at_right = LABELS[kind]
        left.plot(np.arange(1, 10), last_row(kind), color=f"C{k}", linestyle=LOOKS[kind])
        right.plot([1, 2, 3, 4], shares[kind], color=f"C{k}", linestyle=LOOKS[kind])
        left.text(*at_left, label, color=f"C{k}")
        right.text(*at_right, label, color=f"C{k}")
    right.axhline(0.5, color=GREY, linestyle=":", linewidth=0.9, zorder=1)
    left.set(xlabel="key position $j$", ylabel="logit, minus that of key 1")
    right.set(xlabel="layer", ylabel="later key has larger logit", ylim=(0, 1), xticks=[1, 2, 3, 4])
    return fig


def draw_undone(seen: Trained) -> Figure:
    """Draw both readings of recency in trained models, intact and with keys of one size."""
    axes: Any
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 4.2), sharey=True)
    for ax, (what, title) in zip(axes, READINGS.items(), strict=True):
        above = seen.beyond(what)
        for k, (name, row) in enumerate(seen.keys[what].iterrows()):
            colour = MODEL_COLOURS[str(name)]
            ax.plot([0, above[name]], [0.17 - k] * 2, color=colour)
            ax.plot([0, above[name] + row["change"]], [-0.17 - k] * 2, color=colour, linestyle="--")
            ax.plot(above[name] + row[["low", "high"]], [-0.17 - k] * 2, color="#000000", linewidth=2.5)
        ax.axvline(0, color=GREY, linestyle="--", linewidth=0.9, zorder=1)
        ax.set(xlabel=f"{title},\nabove no preference", yticks=-np.arange(len(above)))
    axes[0].set_yticklabels(list(seen.kept))
    return fig

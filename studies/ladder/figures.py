"""Figures of the page on predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from studies.ladder.crossfit import GROUPS, LABELS, Judged, group_means, score_table

LOOKS = {"ALiBi": ("o", "#0072B2"), "rotary": ("s", "#D55E00"), "learned or none": ("^", "#009E73")}
LOOKS |= {"SmolLM2": ("D", "#000000")}
"""Mark and colour of each group of models."""
LEFT_OUT = ("last", "norms")
"""Rows of the table that the figure does without."""
CEILING = "ceiling"


def draw_predictions(judged: Mapping[str, Judged]) -> Figure:
    """Draw distance and rank correlation of every prediction by group of models; the last row is the ceiling."""
    table = score_table(judged)
    rows = [name for name in LABELS if name not in LEFT_OUT]
    axes: Any
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 4.4), sharey=True)
    for ax, measure in zip(axes, ("W1", "rank correlation"), strict=True):
        means = group_means(table, measure).loc[rows]
        if measure != "W1":
            tops = pd.Series({m: one.ceiling for m, one in judged.items()})
            means.loc[CEILING] = pd.Series({group: tops[list(models)].mean() for group, models in GROUPS.items()})
        for k, (group, (mark, colour)) in enumerate(LOOKS.items()):
            height = np.arange(len(means)) + 0.16 * (k - 1.5)
            ax.plot(means[group], height, mark, color=colour, markersize=5, label=group)
    names = [LABELS[name] for name in rows] + ["a perfect prediction (ceiling)"]
    axes[0].set(xscale="log", xlabel="distance $W_1$ (0 is perfect)", yticks=range(len(names)))
    axes[0].set_yticklabels(names, fontsize=9)
    axes[0].set_xticks([0.01, 0.1, 0.5], ["0.01", "0.1", "0.5"])
    axes[1].axvline(0, color="#7f7f7f", linewidth=0.9)
    axes[1].set(xlabel="rank correlation (1 is perfect)", xlim=(-0.75, 1.03))
    axes[0].invert_yaxis()
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return fig

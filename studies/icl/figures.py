"""Figures of networks trained for in-context retrieval: gaps against depth, with their seeds."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure


def depth_panels(table: pd.DataFrame) -> Figure:
    """Return a panel of gaps against depth for each pair of places, a line for each encoding.

    Lines go through means over seeds, each seed is a dot, and thin lines go from the lowest seed to the highest. What
    is above and below zero is written into each panel. ``table`` has the columns of
    :func:`studies.icl.tables.gap_table`; encodings have their colours in the order of their first rows. There is no
    legend: the caller labels the lines.
    """
    pairs = list(table["pair"].cat.categories)
    fig, axes = plt.subplots(1, len(pairs), figsize=(6.4, 2.9), sharey=True)
    encodings = list(dict.fromkeys(table["encoding"]))
    for ax, pair in zip(axes, pairs, strict=True):
        for k, encoding in enumerate(encodings):
            rows = table[(table["pair"] == pair) & (table["encoding"] == encoding)]
            by_depth = rows.pivot(index="layers", columns="seed", values="gap")
            at, look = by_depth.index.to_numpy() + 0.15 * (k - (len(encodings) - 1) / 2), {"color": f"C{k}"}
            ax.plot(at, by_depth.mean(axis=1), f"{'osD^'[k % 4]}-", markersize=5, **look)
            ax.vlines(at, by_depth.min(axis=1), by_depth.max(axis=1), linewidth=0.8, **look)
            ax.plot(np.tile(at[:, None], by_depth.shape[1]), by_depth, ".", markersize=3, **look)
        ax.axhline(0, color="#7f7f7f", linewidth=0.8)
        for place, y, side in zip(pair.split(" vs "), (0.98, 0.02), ("top", "bottom"), strict=True):
            ax.text(0.5, y, f"{place} preferred", transform=ax.transAxes, ha="center", va=side, color="#5f5f5f")
        ax.set(title=pair, xlabel="layers", xticks=sorted(set(table["layers"])), ylim=(-1.3, 1.3))
        ax.set_yticks([-1, -0.5, 0, 0.5, 1])
        ax.margins(x=0.15)
    axes[0].set_ylabel("gap in accuracy")
    return fig

"""Figures of networks trained for in-context retrieval: gaps with their seeds, and attention sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure


def gap_panels(panels: Mapping[str, Mapping[str, np.ndarray]], pairs: Sequence[str], *, columns: int = 3) -> Figure:
    """Return a panel of bars for each entry: the mean gap over seeds for each pair of places.

    An error bar goes from the lowest seed to the highest, and each seed is a dot. ``panels`` are gaps (seeds, pairs) by
    title and label.
    """
    rows = -(-len(panels) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(6.4, 0.9 + 1.8 * rows), squeeze=False, sharey=True, sharex=True)
    labels = list(dict.fromkeys(label for bars in panels.values() for label in bars))
    hatches, width, handles = ("", "///", "...", "xxx", "\\\\\\", "++"), 0.8 / len(labels), {}
    for ax, (title, bars) in zip(axes.flat, panels.items(), strict=False):
        for label, gaps in bars.items():
            k = labels.index(label)  # a label has its place, colour and hatch in every panel, also where others lack
            at = np.arange(len(pairs)) + width * (k - (len(labels) - 1) / 2)
            look = {"color": f"C{k}", "alpha": 0.75, "hatch": hatches[k % len(hatches)]}
            mean = gaps.mean(0)
            reach = np.stack([mean - gaps.min(0), gaps.max(0) - mean])
            handles[label] = ax.bar(at, mean, width, **look)
            ax.errorbar(at, mean, reach, fmt="none", ecolor="#4d4d4d", elinewidth=0.8, capsize=1.2)
            ax.plot(np.tile(at, (len(gaps), 1)), gaps, ".", color="#7f7f7f", markersize=2.5)
        ax.axhline(0, color="#7f7f7f", linewidth=0.8)
        ax.set_title(title, loc="left")
        ax.set_xticks(range(len(pairs)), [pair.replace(" vs ", "\nvs ") for pair in pairs])
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("gap in accuracy")
    fig.legend([handles[x] for x in labels], labels, loc="outside lower center", ncols=min(3, len(labels)))
    return fig


def sink_panels(
    maps: Mapping[str, np.ndarray], lines: Mapping[str, Mapping[str, np.ndarray]], even: np.ndarray
) -> Figure:
    """Return heat maps of attention above panels of the measure of sinks by token.

    ``maps`` are attention (queries, keys) by title; ``lines`` the metric (tokens,) by title and label, where what
    stands first looks the same in every panel; ``even`` is its metric if attention were spread evenly, dashed. There is
    no legend: the caller labels the curves.
    """
    fig, (above, below) = plt.subplots(2, len(lines), figsize=(6.4, 5.4), height_ratios=(1, 1.1), squeeze=False)
    for ax, (title, attention) in zip(above, maps.items(), strict=True):
        n = len(attention)
        image = ax.imshow(attention, cmap="viridis", vmin=0, extent=(0.5, n + 0.5, n + 0.5, 0.5))
        fig.colorbar(image, ax=ax, fraction=0.046, label="mean attention")
        ax.grid(visible=False)
        ticks = [1, (n + 1) // 2, n]
        ax.set(title=title, xlabel="key $j$", ylabel="query $i$", xticks=ticks, yticks=ticks)
    for ax, (title, panel) in zip(below, lines.items(), strict=True):
        tokens = range(1, len(even) + 1)
        for k, (label, metric) in enumerate(panel.items()):
            ax.plot(tokens, metric, label=label, color=f"C{k}", linestyle=("-", "--", "-.", ":")[k % 4])
        label = f"{next(iter(panel))}, uniform"
        ax.plot(tokens, even, color="#7f7f7f", linestyle=(0, (6, 3)), linewidth=0.9, label=label)
        ax.set(xlabel="token $j$", ylabel="measure of sinks", title=title)
    return fig

"""Right answers of two models by place, and from which document their answers are."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from posbias.lookup.reading import count_sources
from posbias.lookup.scores import mean_with_interval
from studies.second.evidence import LENGTHS, NAMES, Evidence

COLOURS = {"smollm2": "#000000", "gemma3": "#0072B2"}


def draw_places(seen: Evidence) -> Figure:
    """Draw right answers by place of the right document, a panel for each number of documents."""
    fig, axes = plt.subplots(1, len(LENGTHS), figsize=(7.2, 2.7), sharey=True)
    for ax, P in zip(axes, LENGTHS, strict=True):
        places = np.arange(1, P + 1)
        for model, colour in COLOURS.items():
            mean, low, high = mean_with_interval(seen.right(model, P), True)
            ax.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
            ax.plot(places, mean, "o-", color=colour, markersize=3)
        ax.set(title=f"{P} documents", xlabel="place of the right document", ylim=(-0.03, 1.05))
        ax.set_xticks([1, P // 4, P // 2, 3 * P // 4, P])
    axes[0].set_ylabel("share of right answers")
    for model, y in (("smollm2", 0.04), ("gemma3", 0.97)):
        axes[0].text(3.2, y, NAMES[model], color=COLOURS[model])
    return fig


def draw_mistakes(seen: Evidence, places: int = 16) -> Figure:
    """Draw wrong answers by how many places behind the right document they are from, as shares of each model's."""
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 2.5), sharey=True)
    for ax, (model, colour) in zip(axes, COLOURS.items(), strict=True):
        total = count_sources(seen.source(model, places)).sum(0)
        wrong = total.sum() - total.trace()
        steps = np.arange(1 - places, places)
        shares = np.array([np.trace(total, offset=k) for k in steps]) / wrong
        ax.bar(steps[steps != 0], shares[steps != 0], color=colour)
        ax.set(title=f"{NAMES[model]}, {wrong:.0f} wrong answers", xlabel="places behind the right document")
    axes[0].set_ylabel("share of wrong answers")
    return fig

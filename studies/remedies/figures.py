"""The figure of remedies: right answers by place as they are, and under the four best."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from posbias.lookup.scores import mean_with_interval
from studies.remedies.evidence import Evidence
from studies.remedies.tables import AS_IS, WORDS

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
STYLES = ("-", "--", "-.", ":")


def draw_interval(ax: Any, right: Float[np.ndarray, "C P"], colour: str, aside: float) -> None:
    """Draw the 95% interval of each place, a little aside of where it is."""
    _, low, high = mean_with_interval(right, True)
    ax.vlines(np.arange(1, right.shape[1] + 1) + aside, low, high, color=colour, linewidth=3, alpha=0.35)


ORDERED = {
    AS_IS: "all eight, in the search's order",
    "search-last": "all eight, in reverse, the best last",
    "likely-last": "all eight, the likeliest last",
    "search-alone": "the search's first alone",
    "heads-alone": "the heads' passage alone",
    "likely-two": "the two likeliest, the likeliest last",
    "one-by-one-likely": "the likeliest passage alone",
}


def draw_ordered(seen: Evidence) -> Figure:
    """Draw right answers to the new real questions under each way, beside those with the right passage alone."""
    fig, ax = plt.subplots(figsize=(6.4, 3.4))
    right, oracle = seen.confirmed.right, seen.confirmed.read_of_chosen("one-by-one-likely")
    for k, name in enumerate(ORDERED):
        mean, low, high = mean_with_interval(right[name], True)[:, 0]
        ax.barh(-k, mean, color="0.55" if name == AS_IS else COLOURS[0], height=0.62)
        ax.hlines(-k, low, high, color="black", linewidth=1.5)
        ax.text(0.01, -k, f"{mean:.1%}", va="center", color="white")
    ax.axvline(oracle, color="0.3", ls="--", lw=1)
    ax.text(oracle + 0.01, 0.1, "if the likeliest is the right one", color="0.3", fontsize=8, va="center")
    ax.set(xlabel="share of right answers", xlim=(0, 0.8), yticks=range(0, -len(ORDERED), -1))
    ax.set_yticklabels(ORDERED.values())
    return fig


def draw_remedies(seen: Evidence) -> Figure:
    """Draw the share of right answers by the place of the right document."""
    fig, ax = plt.subplots(figsize=(6.4, 3.4))
    places = np.arange(1, 9)
    draw_interval(ax, seen.right[AS_IS], "black", 0.0)
    ax.plot(places, seen.right[AS_IS].mean(0), "o-", color="black", label="as is")
    for k, (name, colour, style) in enumerate(zip(seen.tried.index, COLOURS, STYLES, strict=False)):
        y = seen.right[name].mean(0)
        draw_interval(ax, seen.right[name], colour, 0.07 * (k - 1.5))
        wide = 4 if style == "-" else 1.5  # two curves lie on one another
        ax.plot(places, y, style, marker="o", ms=3.5, lw=wide, color=colour, label=WORDS[name])
    ax.set(xlabel="place of the right document", ylabel="share of right answers")
    ax.set(xticks=places, ylim=(-0.03, 1.05))
    fig.legend(loc="outside lower center", ncols=2)
    return fig

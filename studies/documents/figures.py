"""Figures of right answers by place, and of how often each way names the source of an answer."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from posbias.lookup.scores import mean_with_interval
from studies.documents.evidence import Evidence, Right
from studies.documents.sources import LAST, PLAIN, READERS, Sources

BLACK, BLUE, GREY, WHITE = "#000000", "#0072B2", "#7f7f7f", "#ffffff"


def draw_places(ax: Any, right: Right, colour: str, label: str, at: tuple[float, float]) -> None:
    """Draw the share of right answers by place, with its interval."""
    places = np.arange(1, right.shape[1] + 1)
    mean, low, high = mean_with_interval(right, True)
    ax.vlines(places, low, high, color=colour, linewidth=3, alpha=0.35)
    ax.plot(places, mean, "o-", color=colour, markersize=4)
    ax.text(*at, label, color=colour)


def draw_answers(seen: Evidence) -> Figure:
    """Draw right answers by place of the right document: invented facts, and real questions."""
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 3.0), sharey=True)
    left, right = axes
    draw_places(left, seen.competing, BLACK, "competing documents", (2.6, 0.42))
    draw_places(left, seen.others, BLUE, "other facts", (3.6, 0.66))
    left.axhline(seen.closed.mean(), color=GREY, linestyle="--")
    left.text(2.2, 0.015, "without documents", color=GREY)
    left.set(title="invented facts", ylabel="share of right answers")
    draw_places(right, seen.real, BLACK, "rivals in a search's order", (2.2, 0.34))
    mixed = seen.questions["mixed"]["correct"]
    share, low, high = mean_with_interval(mixed.values.astype(float), True)
    right.vlines(mixed["place"] + 1.12, low, high, color=BLUE, linewidth=3, alpha=0.35)
    right.plot(mixed["place"] + 1.12, share, "s", ms=6, mfc="white", color=BLUE)
    right.text(2.2, 0.27, "in random order", color=BLUE)
    closed, oracle = seen.floors
    for value, above, label in ((closed, -0.06, "without passages"), (oracle, 0.015, "the right passage alone")):
        right.axhline(value, color=GREY, linestyle="--")
        right.text(3.2, value + above, label, color=GREY)
    right.set(title="real questions")
    for ax in axes:
        ax.set(xlabel="place of the right document", xticks=range(1, 9), ylim=(-0.03, 1.05))
    return fig


def draw_sources(seen: Sources) -> Figure:
    """Draw the share of sources that each way names, with intervals; the head that was chosen, of half of the sets."""
    drawn = seen.table.drop(index=[*[*seen.tools][1:], LAST]).rename(index=PLAIN)
    head = seen.fair_table.loc[[READERS]]
    name = f"one head, of {head['prompts'].iloc[0]:.0f}"
    head = head.rename(index={READERS: name})
    drawn = pd.concat([drawn, head]).sort_values("all", kind="stable")
    rows = np.arange(len(drawn))
    fig, ax = plt.subplots(figsize=(6.4, 2.8))
    ax.hlines(rows, drawn["low"], drawn["high"], color=BLUE, linewidth=3, alpha=0.35)
    fills = [WHITE if x == name else BLUE for x in drawn.index]
    ax.scatter(drawn["all"], rows, s=25, color=fills, edgecolors=BLUE, zorder=3)
    ax.axvline(seen.table.loc[LAST, "all"], color=GREY, linestyle="--")
    ax.set_yticks(rows, drawn.index)
    ax.set(xlabel="share of sources named", xlim=(0, 1.03))
    return fig

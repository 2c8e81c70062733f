"""Figures of looking a value up by place."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from studies.lookup import tables
from studies.lookup.evidence import Evidence
from studies.lookup.pictures import COLOURS, LABELS, STYLES
from studies.lookup.tables import TASK, Run

PANELS = {
    "1. Prior": "relative to its average",
    "2. Speed of learning": "relative to its average",
    "3. Found, trained length": "share of values found",
    "4. Found, 4 times the length": "share of values found",
}
"""Titles of the figure's panels, and what their vertical axes show."""
NAMED = {
    "steep": ((0, 0.63, 0.2), (1, 0.05, 0.76), (3, 0.4, 0.25)),
    "early": ((0, 0.2, 1.5), (1, 0.08, 1.13)),
    "flat": ((0, 0.59, 2.3), (1, 0.65, 1.26), (2, 0.72, 0.4)),
    "rope": ((0, 0.06, 0.72), (3, 0.12, 0.45)),
}
"""Panel and place of the name of each curve."""
AT_THE_ENDS = {"steep": (11, 1.03), "rope": (13, 0.68), "alibi": (19, 0.15), "flat": (25, 0.09)}
"""Where the names of curves stand in the figure of networks that were trained on the two ends."""


def chain_of(run: Run) -> list[np.ndarray]:
    """Return prior, speed of learning and what is found at the trained and at four times its length."""
    prior = tables.predicted(run, TASK)
    speed = 1 / tables.learning_times(run)
    curves = [prior / prior.mean(), (speed / speed.mean(1, keepdims=True)).mean(0)]
    for done in tables.finished([run]):
        curves += [tables.found_at_the_end(done, times) for times in (1, 4)]
    return curves


def draw_chain(seen: Evidence) -> Figure:
    """Draw the way from a position encoding to what is found, four layers and 32 pairs."""
    fig, axes = plt.subplots(2, 2, figsize=(6.4, 5.2))
    eighths = (np.arange(8) + 0.5) / 8
    for run in seen.line(4, 32):
        kind = run.results.attrs["encoding"]
        if kind not in NAMED:
            continue
        for ax, curve in zip(axes.flat, chain_of(run), strict=False):
            ax.plot(eighths, curve, STYLES[kind], color=COLOURS[kind])
        for panel, x, y in NAMED[kind]:
            axes.flat[panel].text(x, y, LABELS[kind], color=COLOURS[kind])
    for ax, (title, label) in zip(axes.flat, PANELS.items(), strict=True):
        ax.set_title(title, loc="left")
        ax.set(ylabel=label, xlim=(0, 1))
    for above, below in axes.T:
        above.set_ylim(bottom=0)
        below.set(ylim=(0, 1.03), xlabel="place (0 first, 1 last)")
    return fig


def draw_ends(seen: Evidence) -> Figure:
    """Draw what is found at each place after training on the first and the last alone."""
    fig, ax = plt.subplots(figsize=(6.4, 3.2))
    for run in seen.line(4, 32, places="ends"):
        kind = run.results.attrs["encoding"]
        if kind in AT_THE_ENDS:
            found = run.results["accuracy_1"].mean("seed")
            ax.plot(np.arange(1, 33), found, STYLES[kind], color=COLOURS[kind])
            ax.text(*AT_THE_ENDS[kind], LABELS[kind], color=COLOURS[kind])
    ax.set(xlabel="place of 32", ylabel="share of values found", xticks=[1, 8, 16, 24, 32])
    ax.set(xlim=(0.5, 32.5), ylim=(0, 1.1))
    return fig

"""Figures of the law of reading by place."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from studies.reading import network
from studies.reading.evidence import Evidence, P, answers_missed, sixteen_expected, sixteen_fitted
from studies.reading.tables import by_pulls

BLUE, SKY, RED, GREY = "#0072B2", "#56B4E9", "#D55E00", "#7f7f7f"


def draw_law(seen: Evidence) -> Figure:
    """Draw answers, what the law of other sets expects, and how far wrong ones are from the right place."""
    fig, axes = plt.subplots(1, 3, figsize=(7.2, 2.6), width_ratios=(1, 1, 1.15))
    total, asked = seen.totals["eight"], seen.totals["eight"].sum(1, keepdims=True)
    matrices = {"seen": total, "expected by the law": total - answers_missed(seen)}
    for ax, (title, matrix) in zip(axes, matrices.items(), strict=False):
        draw_matrix(ax, matrix / asked, title)
    axes[0].set_ylabel("document asked for")
    behind = np.subtract.outer(np.arange(P), np.arange(P)).T
    away = [d for d in range(1 - P, P) if d != 0]

    def by_distance(matrix: Float[np.ndarray, "P P"]) -> list[float]:
        return [float(matrix[behind == d].sum()) for d in away]

    found, law = map(by_distance, matrices.values())
    axes[2].bar(away, law, color=SKY, width=0.8)
    axes[2].plot(away, found, "o", color="#000000", markersize=4)
    axes[2].plot(away, by_distance(by_pulls(matrices["seen"])), "_", color=RED, markersize=7)
    note = "points: seen\nbars: law\ndashes: pulls\nalone"
    axes[2].text(0.03, 0.97, note, va="top", fontsize=8, transform=axes[2].transAxes)
    axes[2].set(title="wrong answers", xlabel="places after the right document", ylabel="how many")
    return fig


def draw_matrix(ax: Any, share: Float[np.ndarray, "P P"], title: str) -> None:
    """Draw shares of answers: a row for each document asked for, a column for each that answers are from."""
    ticks = np.arange(0, len(share), 1 if len(share) <= P else 3)
    ax.imshow(share, cmap="Greys", vmin=0, vmax=1)
    ax.grid(False)
    ax.set(title=title, xlabel="answer from document", xticks=ticks, yticks=ticks)
    ax.set(xticklabels=ticks + 1, yticklabels=ticks + 1)


def draw_sixteen(seen: Evidence) -> Figure:
    """Draw answers from sixteen documents, the law fitted to them, and what three numbers of eight documents expect."""
    counts = seen.totals["sixteen"]
    axes: Any
    fig, axes = plt.subplots(1, 3, figsize=(7.2, 2.8))
    draw_matrix(axes[0], counts / counts.sum(1, keepdims=True), "seen")
    draw_matrix(axes[1], sixteen_fitted(seen), "law, fitted to sixteen")
    draw_matrix(axes[2], sixteen_expected(seen), "law, from eight")
    axes[0].set_ylabel("document asked for")
    return fig


def draw_misses(seen: Evidence) -> Figure:
    """Draw by cell how many answers more or fewer were seen than the law of the other half of the sets expects."""
    more = answers_missed(seen)
    fig, ax = plt.subplots(figsize=(5.0, 3.4))
    image = ax.imshow(more, cmap="PuOr_r", vmin=-14, vmax=14)
    ax.grid(False)
    for row, column in np.ndindex(*more.shape):
        if abs(more[row, column]) >= 0.5:
            ax.text(column, row, f"{more[row, column]:+.0f}", ha="center", va="center", fontsize=8)
    ticks = np.arange(P)
    ax.set(xlabel="answer from document", ylabel="document asked for", xticks=ticks, yticks=ticks)
    ax.set(xticklabels=ticks + 1, yticklabels=ticks + 1)
    fig.colorbar(image, ax=ax, label="answers, seen − expected", shrink=0.85)
    return fig


def draw_heads(seen: Evidence) -> Figure:
    """Draw where a head points and which answers are right, with heads and without, and what a probe reads by layer."""
    right, place = network.rights(seen), network.PLACE + 1
    sets = len(right["as it is"])
    best = seen.kept["changed"].attrs["best"].split()[0]
    shown = {"pointed": network.of_head(seen, best)[:sets]} | right  # the same sets: the first of those judged
    labels: dict[str, tuple[str, str, float, float]] = {
        "pointed": (SKY, f"head {best} points at it", 2.0, 16.6),
        "as it is": ("#000000", "answer right, as it is", 2.8, 7.0),
        "ten others off": (BLUE, "answer right, ten others off", 2.1, 10.6),
        "ten best off": (RED, "answer right, ten pointing heads off", 1.3, -1.6),
    }
    axes: Any
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 2.9))
    for name, (colour, label, x, y) in labels.items():
        axes[0].plot(place, shown[name].sum(0), "o-", color=colour, markersize=3)
        axes[0].text(x, y, label, color=colour)
    axes[0].set(xlabel="place of the document asked for", ylabel=f"prompts of {sets}")
    axes[0].set(xticks=place, yticks=range(0, 17, 4), ylim=(-2.2, sets + 2.2))
    axes[1].plot(network.read_by_probe(seen), color="#000000")
    axes[1].axhline(1 / P, color=GREY, linestyle="--")
    axes[1].set(xlabel="layer", ylabel="place read by the probe", ylim=(0, 1))
    axes[1].text(13, 0.06, "guessing", color=GREY)
    return fig

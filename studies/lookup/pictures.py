"""How lookup networks are drawn: each link from the prior to what is found, and the ranks of predictors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from studies.lookup.tables import PREDICTORS, TASK, Run, finished, found_at_the_end, learning_times, predicted

LABELS = {
    "none": "no positions", "alibi": "ALiBi", "steep": "one slope", "rope": "RoPE", "log": "log", "early": "early",
    "flat": "flat",
}  # fmt: skip
"""How a figure names kinds of positions."""
COLOURS = {
    "none": "#7f7f7f", "alibi": "#009E73", "steep": "#D55E00", "rope": "#CC79A7", "log": "#0072B2", "early": "#56B4E9",
    "flat": "#E69F00",
}  # fmt: skip
SHOWN = ("one hop", "end", "influence_born", "squares_born", "rollout_born", "recency")
"""Predictors in the figure of ranks."""
LINKS = (
    ("the prior", "hops of the task"),
    ("influence at birth", "influence"),
    ("speed of learning", "of its mean"),
    ("found at 4 times the length", "accuracy"),
)
"""Panels of the chain: title, and what its axis shows."""


def draw_chain(runs: Sequence[Run], axes: Sequence[Any]) -> None:
    """Draw one line of settings from the prior to what is found, a panel for each link, on four axes.

    Profiles are over parts of the places, in multiples of their mean; what is found is of networks that have learned.
    """
    for run in runs:
        prior, influence, speed = predicted(run, TASK), predicted(run, "influence_born"), 1 / learning_times(run)
        _line(axes[0], run, prior / prior.mean())
        _line(axes[1], run, influence / influence.mean())
        _line(axes[2], run, (speed / speed.mean(1, keepdims=True)).mean(0))
    draw_accuracy(finished(runs), 4, axes[3])
    for ax, (title, label) in zip(axes, LINKS, strict=True):
        ax.set_title(title, fontsize=9)
        ax.set_ylabel(label)
        ax.set_xlabel("place (first 0, last 1)")


def draw_accuracy(runs: Sequence[Run], times: int, ax: Any) -> None:
    """Draw the share of values that networks find by part, in prompts of some times the length of those in training."""
    for run in runs:
        _line(ax, run, found_at_the_end(run, times))
    ax.set_ylim(0, 1.03)
    ax.set_xlabel("place (first 0, last 1)")


def draw_ranks(order: pd.DataFrame, ax: Any) -> None:
    """Draw each setting's rank correlation of predictors with the speed of learning, a row for each predictor."""
    rng = np.random.default_rng(0)
    for row, name in enumerate(SHOWN):
        for encoding, part in order.groupby("encoding"):
            jitter = row + 0.3 * (rng.random(len(part)) - 0.5)
            label = LABELS[str(encoding)] if row == 0 else None
            ax.plot(part[name], jitter, "o", ms=4, alpha=0.8, color=COLOURS[str(encoding)], label=label, mew=0)
        ax.plot([order[name].mean()] * 2, [row - 0.35, row + 0.35], color="0.2", lw=1.5)
    ax.set_yticks(range(len(SHOWN)), [PREDICTORS[name] for name in SHOWN])
    ax.invert_yaxis()
    ax.axvline(0, color="0.7", lw=0.8, zorder=0)
    ax.set_xlabel("rank correlation with the speed of learning")


def draw_remedies(remedies: Mapping[str, xr.Dataset], styles: Mapping[str, str], times: int, ax: Any) -> None:
    """Draw accuracy by part, mean over seeds: a colour for each kind of positions, a line style for each condition."""
    for encoding, study in remedies.items():
        for condition, style in styles.items():
            y = study["accuracy"].sel(times=times, condition=condition).mean("seed").values
            ax.plot(_places(y), y, style, color=COLOURS[encoding], lw=1.3)
    ax.set_ylim(0, 1.03)
    ax.set_xlabel("place (first 0, last 1)")


def _line(ax: Any, run: Run, y: Float[np.ndarray, "parts"]) -> None:
    encoding = str(run.results.attrs["encoding"])
    ax.plot(_places(y), y, color=COLOURS[encoding], label=LABELS[encoding], lw=1.3)


def _places(y: np.ndarray) -> Float[np.ndarray, "parts"]:
    return (np.arange(len(y)) + 0.5) / len(y)

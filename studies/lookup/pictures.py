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
STYLES = {"steep": "-", "early": "--", "flat": "-.", "rope": ":", "alibi": "--", "log": "-.", "none": ":"}
"""Line styles of kinds of positions: those that share a figure differ in grey too."""
SHOWN = ("one hop", "end", "influence_born", "recency", "rollout_born", "two hops")
"""Predictors in the figure of ranks."""
CHAIN = {
    "steep": ((0, 0.63, 0.2), (1, 0.05, 0.76), (3, 0.4, 0.25)),
    "early": ((0, 0.2, 1.5), (1, 0.08, 1.13)),
    "flat": ((0, 0.59, 2.3), (1, 0.65, 1.26), (2, 0.72, 0.4)),
    "rope": ((0, 0.06, 0.72), (3, 0.12, 0.45)),
}
"""Kinds of positions in the figure of the chain, and in which panels and where the names of their curves are."""
PANELS = (
    ("1. Prior", "relative to its average"),
    ("2. Speed of learning", "relative to its average"),
    ("3. Found, trained length", "share of values found"),
    ("4. Found, 4 times the length", "share of values found"),
)
"""Panels of the chain: title, and what its axis shows."""


def draw_chain(runs: Sequence[Run], axes: Sequence[Any]) -> None:
    """Draw one line of settings from the prior to what is found, a panel for each link, on four axes.

    Profiles are over parts of the places; what is found is of networks that have learned.
    """
    for run in runs:
        if run.results.attrs["encoding"] in CHAIN:
            prior, speed = predicted(run, TASK), 1 / learning_times(run)
            _line(axes[0], run, prior / prior.mean())
            _line(axes[1], run, (speed / speed.mean(1, keepdims=True)).mean(0))
            for times, ax in zip((1, 4), axes[2:], strict=True):
                for done in finished([run]):
                    _line(ax, done, found_at_the_end(done, times))
    for ax, (title, label) in zip(axes, PANELS, strict=True):
        ax.set_title(title, loc="left")
        ax.set_ylabel(label)
    for ax in axes[:2]:
        ax.set_ylim(bottom=0)
    for ax in axes[2:]:
        ax.set_ylim(0, 1.03)
        ax.set_xlabel("place (0 first, 1 last)")
    for ax in axes:
        ax.set_xlim(0, 1)
    for kind, places in CHAIN.items():
        for panel, x, y in places:
            axes[panel].text(x, y, LABELS[kind], color=COLOURS[kind])


def draw_ranks(order: pd.DataFrame, ax: Any) -> None:
    """Draw each setting's rank correlation of predictors with the speed of learning, and their mean, in a row each."""
    rng = np.random.default_rng(0)
    for row, name in enumerate(SHOWN):
        jitter = row + 0.3 * (rng.random(len(order)) - 0.5)
        ax.plot(order[name], jitter, "o", ms=4.5, alpha=0.6, color="#0072B2", mew=0)
        ax.plot([order[name].mean()] * 2, [row - 0.35, row + 0.35], color="black", lw=2)
        ax.text(1.12, row, f"{order[name].mean():.2f}".replace("-", "−"), va="center")
    ax.text(1.12, -0.85, "mean", va="center")
    ax.set_yticks(range(len(SHOWN)), [PREDICTORS[name] for name in SHOWN])
    ax.set_xlim(-1.08, 1.08)
    ax.set_xticks([-1, -0.5, 0, 0.5, 1])
    ax.invert_yaxis()
    ax.axvline(0, color="0.7", lw=0.8, zorder=0)
    ax.set_xlabel("rank correlation with the speed of learning")


def draw_remedies(study: xr.Dataset, styles: Mapping[str, Mapping[str, Any]], times: int, pairs: int, ax: Any) -> None:
    """Draw accuracy by part over the numbers of so many pairs, mean over seeds, for conditions that have a style."""
    for condition, style in styles.items():
        y = study["accuracy"].sel(times=times, condition=condition).mean("seed").values
        ax.plot(0.5 + pairs * _places(y), y, **{"lw": 1.5, **style})
    ax.set(xlim=(1, pairs), ylim=(0, 1.03), xticks=[1, *(pairs * k // 4 for k in (1, 2, 3, 4))])


def _line(ax: Any, run: Run, y: Float[np.ndarray, "parts"]) -> None:
    encoding = str(run.results.attrs["encoding"])
    ax.plot(_places(y), y, STYLES[encoding], color=COLOURS[encoding], label=LABELS[encoding])


def _places(y: np.ndarray) -> Float[np.ndarray, "parts"]:
    return (np.arange(len(y)) + 0.5) / len(y)

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

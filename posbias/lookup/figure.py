"""The figure of a lookup: right answers by place of what answers, as an image that can be sent."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from posbias.lookup.file import by_place, describe, of_arm, title, verdict
from posbias.lookup.tasks import ARMS, NOUNS
from posbias.plotting import STYLE

SUFFIXES = (".png", ".svg")
COLOURS = {"competing": "#000000", "not_competing": "#0072B2", "closed_book": "#7f7f7f"}
"""One colour an arm; what needs no document is a dashed line, the same at each place."""


def write_figure(path: Path, results: xr.Dataset) -> Path:
    """Draw the share of right answers by place and arm, with model, contexts and verdict, and return the path."""
    with plt.style.context(str(STYLE)), plt.rc_context({"svg.fonttype": "none"}):
        drawing, ax = plt.subplots(figsize=(6.4, 4.0))
        places, noun = np.arange(1, results.sizes["place"] + 1), NOUNS[str(results.attrs["task"])]
        for arm in map(str, results["arm"].values):
            if arm == "closed_book":
                share = of_arm(results, "correct", arm).mean()
                ax.axhline(share, color=COLOURS[arm], linestyle="--", label=ARMS[arm])
                continue
            mean, low, high = by_place(results, "correct", arm)
            label = ARMS[arm] if noun == "document" else f"with all {noun}s"
            ax.vlines(places, low, high, color=COLOURS[arm], linewidth=3, alpha=0.35)
            ax.plot(places, mean, "o-", color=COLOURS[arm], markersize=4, label=label)
        ax.set(xlabel=f"place of the {noun} that answers", ylabel="share of right answers", ylim=(-0.03, 1.05))
        ax.set_xticks(places[:: max(1, len(places) // 16)])
        ax.legend(labelcolor="linecolor", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)
        drawing.suptitle(fill(f"{title(results)}. {describe(results)}. Bars: 95% intervals.", 95), fontsize=9)
        drawing.supxlabel(fill(verdict(results), 95), fontsize=9)
        drawing.savefig(path, dpi=200, bbox_inches="tight")
        plt.close(drawing)
    return path

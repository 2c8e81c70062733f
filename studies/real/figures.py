"""Figures of SmolLM2: sensitivity and use by place (page ``tokens``), influence beside its predictions."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from posbias.predict import PREDICTORS, predict
from studies.real.evidence import Seen
from studies.real.tables import profile_of
from studies.real.use import FORMS

WAYS = {"gradient": ("#000000", "sensitivity"), "replaced": ("#CC79A7", "use")}
PANELS = {"chat_about": "chat template, with a question", "256": "plain text"}
CURVES = {"contributions": "#0072B2", "measured-attention": "#009E73", "layer-shares": "#D55E00"}
GREY = "#7f7f7f"


def draw_use(seen: Seen) -> Figure:
    """Draw what tokens count for by gradient and by replacement, in the chat template and in plain text."""
    axes: Any
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 2.9), sharey=True)
    for ax, (form, title) in zip(axes, PANELS.items(), strict=True):
        entry = seen.kept[FORMS[form][1]]
        n = entry.sizes["position"]
        for way, (colour, label) in WAYS.items():
            p = pd.Series(profile_of(entry[way].values))
            p *= n
            smooth = p.rolling(n // 32, center=True, min_periods=1).mean()
            ax.plot(np.arange(n), smooth, color=colour, label=label)
            ax.plot(0, p.iloc[0], "o", color=colour, markersize=5)
        ax.axhline(1, color=GREY, linestyle="--", linewidth=0.9)
        ax.set(xlabel="token of the text", xlim=(-n / 64, n), yscale="log", title=title)
        ax.set_ylim(0.4, 40)
    axes[0].set_ylabel("× average token")
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].legend(loc="upper center", labelcolor="linecolor")
    return fig


def draw_influence(seen: Seen) -> Figure:
    """Draw SmolLM2's measured influence, with its band, beside three predictions."""
    one, n = seen.evidence, seen.evidence.p.size
    assert one.band is not None
    fig, ax = plt.subplots(figsize=(6.4, 3.4))
    low, high = n * np.array(one.band)
    ax.fill_between(np.arange(n), low, high, color="#000000", alpha=0.2, linewidth=0)
    curves = {"measured": one.p} | {x: predict(seen.whole, x) for x in CURVES}
    for name, p in curves.items():
        label = PREDICTORS[name].label.split(",")[0] if name in CURVES else name
        colour = CURVES.get(name, "#000000")
        ax.plot(n * np.asarray(p), color=colour, label=label)
        at = (0, n * float(p[0]))
        ax.annotate(f"{at[1]:.3g}", at, (-4, at[1]), color=colour, ha="right", va="center")
    ax.axhline(1, color=GREY, linestyle="--", linewidth=0.9)
    ax.set(xlabel="token position $j$ (0 is first)", ylabel="influence (× average token)")
    ax.set(yscale="log", ylim=(0.12, 200), xlim=(-26, 1.01 * n))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(loc="upper center", labelcolor="linecolor")
    return fig

"""The table of any models, and its figure; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from posbias.comparison.distances import normalised_wasserstein, spearman

TRAINED = ("contributions", "measured-attention", "layer-shares", "even")
COLUMNS = {
    "first": "first token",
    "last": "last token",
    "rank contributions": "contributions",
    "rank measured-attention": "measured attention",
    "rank layer-shares": "layer shares",
    "W1 contributions": "contributions",
    "W1 measured-attention": "measured attention",
    "W1 layer-shares": "layer shares",
    "W1 even": "equal shares",
    "W1 halves": "halves (noise)",
    "untrained first": "first token",
    "untrained W1": "$W_1$ of the law",
}
"""Columns of the table → what the figure writes above them."""
GROUPS = {"influence,\n× average": 2, "rank correlation": 3, "$W_1$": 5, "before\ntraining": 2}


def field_table(kept: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return a row for each model, by encoding and size: :data:`COLUMNS`, nan where nothing is known."""
    rows: dict[str, dict[str, Any]] = {}
    for x in kept.values():
        n, p = x.sizes["position"], x["influence"].values
        row = {"position": x.attrs.get("position", "other"), "parameters": x.attrs["parameters"]}
        row |= {"first": n * p[0], "last": n * p[-1], "W1 halves": normalised_wasserstein(*x["halves"].values)}
        for name, q in zip(TRAINED, x["profile"].values if "profile" in x else (), strict=False):
            row |= {f"W1 {name}": normalised_wasserstein(q, p), f"rank {name}": spearman(q, p)}
        if "law" in x:
            row["untrained first"] = n * x["untrained"].values[0]
            row["untrained W1"] = normalised_wasserstein(x["law"].values, x["untrained"].values)
        rows[x.attrs["model"].removeprefix("reference/")] = row
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["position", "parameters", *COLUMNS])
    return table.sort_values(["position", "parameters"])


def draw_field(table: pd.DataFrame) -> Figure:
    """Draw the table, darker where influence is further from the average token, or a prediction from what it predicts.

    Shades are |log10| / 2 of multiples from 0.01 to 100, (1 - rank) / 2 of rank correlations, and twice W₁.
    """
    fig, ax = plt.subplots(figsize=(6.8, 1.7 + 0.24 * len(table)))
    for j, name in enumerate(COLUMNS):
        x = table[name].to_numpy(dtype=float)
        if name.endswith(("first", "last")):
            shade, said = abs(np.log10(x.clip(0.01, 100))) / 2, [f"{v:.2g}" if v >= 0.01 else "<0.01" for v in x]
        elif name.startswith("rank"):
            shade, said = (1 - x) / 2, [f"{v:+.2f}" for v in x]
        else:
            shade, said = 2 * x, [f"{v:.3f}" for v in x]
        ax.imshow(shade[:, None], "Blues", vmin=0, vmax=1.2, extent=(j, j + 1, len(x), 0), aspect="auto")
        for i in np.flatnonzero(np.isfinite(x)):
            colour = "white" if shade[i] > 0.7 else "black"
            ax.text(j + 0.5, i + 0.5, said[i], color=colour, fontsize=8, ha="center", va="center")
    ends = np.cumsum([0, *GROUPS.values()])
    labels = [f"{name} ({size / 1e6:.3g} M)" for name, size in table["parameters"].items()]
    ax.set(xlim=(0, ends[-1]), ylim=(len(table), 0))
    ax.set_yticks(np.arange(len(table)) + 0.5, labels)
    ax.set_xticks(np.arange(len(COLUMNS)) + 0.5, COLUMNS.values(), rotation=90)
    ax.xaxis.tick_top()
    ax.grid(visible=False)
    kinds = table["position"].to_numpy()
    ax.vlines(ends[1:-1], 0, len(table), color="black", linewidth=0.8)
    ax.hlines(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1, 0, ends[-1], color="black", linewidth=0.8)
    for title, low, high in zip(GROUPS, ends, ends[1:], strict=False):
        ax.text((low + high) / 2, len(table) + 0.2, title, fontsize=8, ha="center", va="top")
    return fig

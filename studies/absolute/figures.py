"""The figure of absolute position in attention by layer."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from studies.absolute.evidence import TEXT, Evidence


def by_layer(seen: Evidence) -> dict[str, np.ndarray]:
    """Return what each part leaks in each layer of llama-12, mean over heads."""
    here = seen.kept.data["variance"].sel(condition=TEXT).mean("head")
    return {str(part): here.sel(part=part).values for part in here["part"].values}


def draw_layers(seen: Evidence) -> Figure:
    """Draw leaked variance by layer: denominators, on them logits without the mask and with it, and log A."""
    leaked = by_layer(seen)
    mask, total = leaked["denominators"], leaked["total"]
    both, free = mask + leaked["logits"], mask + leaked["residual"]
    fig, ax = plt.subplots(figsize=(6.4, 3.3))
    layer = np.arange(1, len(total) + 1)
    ax.fill_between(layer, mask, color="C0", alpha=0.5, linewidth=0)
    ax.fill_between(layer, mask, free, color="C1", linewidth=0)
    ax.fill_between(layer, free, both, color="C1", alpha=0.4, linewidth=0)
    ax.plot(layer, total, "k")
    ax.text(6.5, 0.05, "denominators", ha="center")
    ax.text(9.2, 0.42, "attention weights", ha="center")
    arrow = {"arrowstyle": "-", "color": "0.4", "linewidth": 0.8}
    ax.annotate("logits: more with the mask", (5.9, 0.183), (3.9, 0.37), arrowprops=arrow, ha="center")
    ax.annotate("logits without the mask", (7.1, 0.315), (4.6, 0.48), arrowprops=arrow, ha="center")
    ax.set(xlabel="layer", xticks=[1, 4, 8, 12], ylim=(0, None), ylabel="leaked variance (nats²)")
    return fig

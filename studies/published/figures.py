"""The figure of the published predictions: as published and as built, beside the measured curve."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from posbias.plotting import profile_axes
from studies.palette import FAMILY_COLOURS
from studies.published.audit import Audit
from studies.published.tables import VARIANTS, variant_profile

STYLES = {"as published": ("--", "as published"), "both": ("-", "as built")}
"""By reading: line style and name."""


def draw_audit(seen: Audit) -> Figure:
    """Draw (b) and (c) of BLOOM-176B as published and as built, on a logarithmic axis."""
    n = seen.measured.size
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 3.4), sharey=True)
    for ax, v in zip(axes, "bc", strict=True):
        for reading, (style, name) in STYLES.items():
            p = variant_profile("bloom", v, n, reading=reading)
            ax.plot(p, style, color=FAMILY_COLOURS["bloom"], label=name)
        ax.plot(seen.measured, color=FAMILY_COLOURS["measured"], linewidth=0.8, label="measured")
        profile_axes(ax, n).set_ylabel("influence $p_j$" if v == "b" else "")
        ax.set(yscale="log", title=VARIANTS[v])
    ticks = (0.002, 0.005, 0.01, 0.02, 0.05)
    axes[0].set_yticks(ticks, labels=map(str, ticks))
    axes[0].minorticks_off()
    fig.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return fig

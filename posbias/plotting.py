"""Figures: one style, and the panels that reports and chapters share."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from posbias import errors

STYLE = files("posbias") / "posbias.mplstyle"
"""The book's style file."""

UNIFORM = "uniform $1/n$"
"""Label of the line of equal shares."""


def use_style() -> None:
    """Make the book's style file the style of all figures that follow."""
    plt.style.use(str(STYLE))


def profile_axes(ax: Axes, n: int) -> Axes:
    """Label axes for influence profiles over n positions and draw the uniform 1/n as a dashed line."""
    ax.axhline(1 / n, color="#7f7f7f", linestyle="--", linewidth=0.9, zorder=1, label=UNIFORM)
    ax.set_xlim(-0.01 * n, 1.01 * n)
    ax.set_xlabel("token position $j$ (0 is first)")
    ax.set_ylabel("influence $p_j$")
    return ax


def draw_profile(p: np.ndarray, *, ax: Any = None, **look: Any) -> Axes:
    """Draw a profile with what matplotlib's ``plot`` takes, in a new figure unless ``ax`` is given."""
    if ax is not None and not hasattr(ax, "plot"):
        raise errors.invalid("ax", "one axes of matplotlib", type(ax).__name__)
    with plt.style.context(str(STYLE)):
        axes = plt.subplots(figsize=(6.4, 4.0))[1] if ax is None else ax
        axes.plot(np.arange(len(p)), p, **look)
        if not any(line.get_label() == UNIFORM for line in axes.lines):
            profile_axes(axes, len(p))
        axes.set_yscale("log")
        axes.legend(fontsize=8)
    return axes


LINE_STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)))
"""Line styles in the order in which unnamed curves of one figure take them, so that they part without colour."""


def plot_prediction(
    measured: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    *,
    title: str = "",
    band: tuple[np.ndarray, np.ndarray] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw measured influence as a broad black curve, its interval, and predictions of it, and return the axes."""
    with plt.style.context(str(STYLE)):
        figure, axes = plt.subplots(figsize=(6.4, 4.4)) if ax is None else (None, ax)
        for k, (label, p) in enumerate(predictions.items()):
            style = LINE_STYLES[1 + k % (len(LINE_STYLES) - 1)]
            axes.plot(np.arange(len(p)), p, label=label, color=to_hex(f"C{k}"), linestyle=style)
        axes.plot(np.arange(len(measured)), measured, label="measured", color="black", linewidth=2.2, zorder=1.5)
        if band is not None:
            axes.fill_between(np.arange(len(measured)), *band, color="#7f7f7f", alpha=0.4, linewidth=0, zorder=1.4)
        profile_axes(axes, len(measured))
        axes.set(yscale="log", ylim=(float(np.max(measured)) * 1e-4, 1.3))
        axes.set_title(title, loc="left")
        if figure is None:
            axes.legend()
        else:
            figure.legend(loc="outside lower center", ncols=2)
    return axes

"""Colours and line styles of model families and reference models, one for all figures, and curves of profiles."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from posbias.plotting import profile_axes

FAMILY_COLOURS = {
    "bloom": "#0072B2",
    "mpt": "#D55E00",
    "falcon": "#009E73",
    "llama": "#CC79A7",
    "mistral": "#56B4E9",
    "gpt2": "#8C6D00",
    "measured": "#000000",
}
"""One colour for each model family in every figure; black is what was measured."""

MODEL_COLOURS = {
    **dict.fromkeys(("bloom-8", "bloom-12", "bloom-24"), FAMILY_COLOURS["bloom"]),
    "mpt-12": FAMILY_COLOURS["mpt"],
    "falcon-12": FAMILY_COLOURS["falcon"],
    **dict.fromkeys(("llama-12", "llama-ntk-12"), FAMILY_COLOURS["llama"]),
    "mistral-12": FAMILY_COLOURS["mistral"],
    "gpt2-12": FAMILY_COLOURS["gpt2"],
    "nope-12": "#5E3C99",
}
"""The colour of each reference model: its family's; the model without positions has its own."""

MODEL_STYLES = {
    **dict.fromkeys(MODEL_COLOURS, "-"),
    **{"bloom-8": "--", "bloom-24": ":", "mpt-12": "-.", "llama-ntk-12": "--", "gpt2-12": "-.", "nope-12": ":"},
}
"""Line styles of the reference models: those of one colour differ."""


def plot_profiles(ax: Axes, profiles: Mapping[str, np.ndarray], *, styles: Mapping[str, str]) -> Axes:
    """Draw influence profiles of one length on a logarithmic influence axis; line ``styles`` are by label, too."""
    n = len(next(iter(profiles.values())))
    for label, p in profiles.items():
        ax.plot(np.arange(n), p, label=label, linestyle=styles.get(label, "-"))
    profile_axes(ax, n).set_yscale("log")
    return ax

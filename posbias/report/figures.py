"""The figures of a report: profiles, mixing, kernels and content as images of modest size."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.colors import LogNorm, to_hex
from matplotlib.ticker import MaxNLocator

from posbias.plotting import STYLE, plot_prediction
from posbias.report.page import Figure, close_figure
from posbias.report.stats import Evidence

CELLS = 96
"""Rows and columns of a kernel's picture at most."""
PANELS = 12
"""Layers whose kernels are drawn at most, evenly spaced."""
LEAST_SHARE = 0.1
"""Weights are drawn from this share of 1/n on; what is less has the darkest colour."""

in_style = plt.style.context(str(STYLE))


def profile_figure(evidence: Evidence) -> Figure:
    """Return the measured profile with its interval, and the nearest prediction with (b) and (a)."""
    subject = evidence.subject
    known = [evidence.nearest, "layer-shares", "attention-only", *subject.of_model]
    drawn = [name for name in dict.fromkeys(known) if name in subject.predictions][:3]
    curves = {subject.label(name): p.values for name, p in subject.predictions.items() if name in drawn}
    drawing = plot_prediction(subject.influence.values, curves, band=evidence.band).figure
    lines = repr(subject.influence).splitlines()
    description = f"Influence of {len(evidence.p)} positions on a logarithmic axis, measured and predicted. {lines[1]}."
    if evidence.nearest is None:
        return close_figure(drawing, description, "Measured influence.")
    nearest = subject.label(evidence.nearest)
    shade = " with its 95% interval" if evidence.band is not None else ""
    caption = f"Measured influence (thick{shade}) and predictions of it, of which {nearest} comes closest."
    caption += " The table of predictions has the others." if len(subject.predictions) > len(drawn) else ""
    return close_figure(drawing, description, caption)


@in_style
def mixing_figure(mixing: Float[np.ndarray, "T"], band: tuple[np.ndarray, np.ndarray] | None) -> Figure:
    """Return λ by depth with its interval."""
    drawing, ax = plt.subplots(figsize=(6.4, 2.4))
    layers = np.arange(1, len(mixing) + 1)
    ax.bar(layers, mixing, color=to_hex("C0"))
    if band is not None:
        ax.vlines(layers, *band, color="black", linewidth=1.2)
    ax.set(xlabel="layer $t$ (1 is first)", ylabel=r"mixing $\lambda_t$")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    description = f"Mixing coefficient of {len(mixing)} layers: {', '.join(f'{x:.3f}' for x in mixing)}."
    if not np.isfinite(mixing).all():
        return close_figure(drawing, description, "Mixing by layer; what is no number is not drawn.")
    most, least = int(mixing.argmax()), int(mixing.argmin())
    caption = f"Attention adds most in layer {most + 1}, λ = {mixing[most]:.3f}, and least in layer {least + 1}, "
    caption += f"λ = {mixing[least]:.3f}." + ("" if band is None else " Lines are 95% intervals.")
    return close_figure(drawing, description, caption)


def shrink(A: Float[np.ndarray, "n n"], most: int = CELLS) -> Float[np.ndarray, "cells cells"]:
    """Return a matrix with at most ``most`` rows and columns, each entry the mean of a rectangle.

    >>> shrink(np.array([[1.0, 0.0], [0.5, 0.5]]), 1).tolist()
    [[0.5]]
    """
    n = len(A)
    starts = np.unique(np.linspace(0, n, min(most, n) + 1).round().astype(int))
    sizes = np.diff(starts)
    sums = np.add.reduceat(np.add.reduceat(A, starts[:-1], axis=0), starts[:-1], axis=1)
    return np.asarray(sums / sizes[:, None] / sizes)


@in_style
def kernel_figure(results: xr.Dataset) -> Figure | None:
    """Return mean attention kernels, a panel each for at most :data:`PANELS` layers, or None without kernels."""
    if "attention" not in results:
        return None
    images = np.stack([shrink(A.astype(np.float64)) for A in results["attention"].values])
    n, T = int(results.attrs["length"]), len(images)
    layers = np.unique(np.linspace(0, T - 1, min(PANELS, T)).round().astype(int))
    columns = min(4, len(layers))
    rows = -(-len(layers) // columns)
    drawing, axes = plt.subplots(rows, columns, figsize=(6.4, 0.6 + 1.55 * rows), squeeze=False)
    for k, (ax, t) in enumerate(zip(axes.flat, layers, strict=False)):
        image = _heat(ax, images[t], (-0.5, n - 0.5, n - 0.5, -0.5), least=LEAST_SHARE / n)
        ax.set_title(f"layer {t + 1}", fontsize=9)
        ax.set(xticks=[0, n - 1], yticks=[0, n - 1], yticklabels=["0", n - 1] if k % columns == 0 else [])
        ax.set_xticklabels(["0", n - 1] if k + columns >= len(layers) else [])
    for ax in axes.flat[len(layers) :]:
        ax.set_visible(False)
    drawing.supxlabel("key $j$", fontsize=9)
    drawing.supylabel("query $i$", fontsize=9)
    drawing.colorbar(image, ax=axes, fraction=0.03, aspect=30, label="mean weight")
    shape, size = "queries down and keys across, on a logarithmic colour scale", images.shape[-1]
    description = f"Mean attention of {len(layers)} layers, {shape}."
    which = f"{len(layers)} of {T} layers" if len(layers) < T else f"all {T} layers"
    coarse = f" {n} tokens are drawn as {size} × {size} squares." if size < n else ""
    return close_figure(
        drawing, description, f"Mean attention over prompts and heads, {which}.{coarse} Bright is much."
    )


def _heat(ax: Any, image: np.ndarray, extent: tuple[float, float, float, float], *, least: float) -> Any:
    """Draw weights on a logarithmic colour scale; the pixels are kept as they are."""
    drawn = np.clip(np.nan_to_num(image, nan=0.0), least, 1.0)
    ax.grid(visible=False)
    return ax.imshow(drawn, norm=LogNorm(least, 1), interpolation="none", extent=extent)

"""Figures: one style, one colour for each model family, and the panels that chapters share."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posbias.figuretext import STYLE, describe_when_shown

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

FAMILY_STYLES = {"bloom": "-", "mpt": "--", "falcon": "-.", "measured": "-"}
"""Line styles that tell families apart without colour."""


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


def use_style() -> None:
    """Make the book's style file the style of all figures that follow, and let a notebook keep them as text too."""
    plt.style.use(str(STYLE))
    describe_when_shown()


def profile_axes(ax: Axes, n: int, *, xlabel: bool = True, ylabel: bool = True) -> Axes:
    """Label axes for influence profiles over n positions and draw the uniform 1/n as a dashed line."""
    ax.axhline(1 / n, color="#7f7f7f", linestyle="--", linewidth=0.9, zorder=1, label="uniform $1/n$")
    ax.set_xlim(-0.01 * n, 1.01 * n)
    if xlabel:
        ax.set_xlabel("token position $j$ (0 is first)")
    if ylabel:
        ax.set_ylabel("influence $p_j$")
    return ax


def plot_profiles(
    ax: Axes,
    profiles: Mapping[str, np.ndarray],
    *,
    colours: Mapping[str, str] | None = None,
    styles: Mapping[str, str] | None = None,
    log: bool = True,
) -> Axes:
    """Draw influence profiles of one length on common axes, with a logarithmic influence axis unless told.

    Parameters
    ----------
    ax
        Where to draw.
    profiles
        Label → probability vector.
    colours, styles
        Label → colour or line style; the style file's cycle otherwise.
    log
        Whether the influence axis is logarithmic.
    """
    n = len(next(iter(profiles.values())))
    for label, p in profiles.items():
        colour, style = (colours or {}).get(label), (styles or {}).get(label, "-")
        ax.plot(np.arange(n), p, label=label, color=colour, linestyle=style)
    profile_axes(ax, n)
    if log:
        ax.set_yscale("log")
    return ax


def four_panels(panels: Mapping[str, np.ndarray], *, colour: str, title: str | None = None) -> Figure:
    """Return the paper's figure: up to four influence profiles, a panel each, titles as given.

    Parameters
    ----------
    panels
        Title → profile. A title that says ``measured`` is drawn black.
    colour
        Colour of the model's family.
    title
        Heading over the panels.

    Source: residual-aware paper, figures 1 and 2.
    """
    rows = (len(panels) + 1) // 2
    fig, axes = plt.subplots(rows, 2, figsize=(6.4, 2.55 * rows), squeeze=False)
    for k, (name, p) in enumerate(panels.items()):
        ax = axes.flat[k]
        ax.plot(np.arange(p.size), p, color=FAMILY_COLOURS["measured"] if "measured" in name else colour)
        profile_axes(ax, p.size, xlabel=k // 2 == rows - 1, ylabel=k % 2 == 0)
        ax.set_ylim(0, min(1.02, 1.08 * float(p.max())))
        ax.set_title(name, loc="left")
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    if title:
        fig.suptitle(title, x=0.02, ha="left")
    return fig


LINE_STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)))
"""Line styles in the order in which unnamed curves of one figure take them, so that they part without colour."""


def ordered_panels(profiles: Mapping[str, np.ndarray]) -> Figure:
    """Return two panels: influence profiles, and their prefix masses, which do not cross if they are ordered.

    Parameters
    ----------
    profiles
        Label → probability vector, all of one length; at most seven.
    """
    n = len(next(iter(profiles.values())))
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.3))
    for (label, p), style in zip(profiles.items(), LINE_STYLES, strict=False):
        left.plot(np.arange(n), p, linestyle=style)
        right.plot(np.arange(n), np.cumsum(p), linestyle=style, label=label)
    profile_axes(left, n)
    left.set_yscale("log")
    right.set_xlim(-0.01 * n, 1.01 * n)
    right.set_xlabel("cutoff $k$ (last position counted)")
    right.set_ylabel(r"prefix mass $\sum_{j \leq k} p_j$")
    fig.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=min(4, len(profiles)))
    return fig


def saved_panels(profiles: Mapping[str, np.ndarray], kind: str) -> bytes:
    """Return the figure of :func:`ordered_panels` as what a file of this kind, ``png`` or ``svg``, holds."""
    into = io.BytesIO()
    with plt.style.context(str(STYLE)):
        figure = ordered_panels(profiles)
        figure.savefig(into, format=kind, metadata={"Date": None} if kind == "svg" else None)
        plt.close(figure)
    return into.getvalue()


def gap_panels(
    panels: Mapping[str, Mapping[str, np.ndarray]], pairs: Sequence[str], *, columns: int = 3, note: str = ""
) -> Figure:
    """Return a panel of bars for each entry: the mean gap over seeds for each pair of places.

    An error bar goes from the lowest seed to the highest, and each seed is a dot.

    Parameters
    ----------
    panels
        Title → label → gaps (seeds, pairs).
    pairs
        Names of the pairs, groups of bars.
    columns
        Panels in a row.
    note
        How the results were made, above the panels.
    """
    rows = -(-len(panels) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(6.4, 0.9 + 1.8 * rows), squeeze=False, sharey=True, sharex=True)
    fig.suptitle(note, fontsize=8)
    labels = list(dict.fromkeys(label for bars in panels.values() for label in bars))
    hatches, width, handles = ("", "///", "...", "xxx", "\\\\\\", "++"), 0.8 / len(labels), {}
    for ax, (title, bars) in zip(axes.flat, panels.items(), strict=False):
        for label, gaps in bars.items():
            k = labels.index(label)  # a label has its place, colour and hatch in every panel, also where others lack
            at = np.arange(len(pairs)) + width * (k - (len(labels) - 1) / 2)
            look = {"color": f"C{k}", "alpha": 0.75, "hatch": hatches[k % len(hatches)]}
            mean = gaps.mean(0)
            reach = np.stack([mean - gaps.min(0), gaps.max(0) - mean])
            handles[label] = ax.bar(at, mean, width, **look)
            ax.errorbar(at, mean, reach, fmt="none", ecolor="#4d4d4d", elinewidth=0.8, capsize=1.2)
            ax.plot(np.tile(at, (len(gaps), 1)), gaps, ".", color="#7f7f7f", markersize=2.5)
        ax.axhline(0, color="#7f7f7f", linewidth=0.8)
        ax.set_title(title, loc="left")
        ax.set_xticks(range(len(pairs)), [pair.replace(" vs ", "\nvs ") for pair in pairs], fontsize=7)
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("gap in accuracy")
    fig.legend([handles[x] for x in labels], labels, loc="outside lower center", ncols=min(3, len(labels)))
    return fig


def sink_panels(
    maps: Mapping[str, np.ndarray], lines: Mapping[str, Mapping[str, np.ndarray]], even: np.ndarray, *, note: str = ""
) -> Figure:
    """Return heat maps of attention above panels of the sink metric by token.

    Parameters
    ----------
    maps
        Title → attention (queries, keys).
    lines
        Title → label → metric (tokens,); what stands first looks the same in every panel.
    even
        The metric (tokens,) of what stands first if attention were spread evenly; dashed.
    note
        How the results were made, above the panels.
    """
    fig, (above, below) = plt.subplots(2, len(lines), figsize=(6.4, 5.4), height_ratios=(1, 1.1), squeeze=False)
    fig.suptitle(note, fontsize=8)
    for ax, (title, attention) in zip(above, maps.items(), strict=True):
        n = len(attention)
        image = ax.imshow(attention, cmap="viridis", vmin=0, extent=(0.5, n + 0.5, n + 0.5, 0.5))
        fig.colorbar(image, ax=ax, fraction=0.046)
        ax.grid(visible=False)
        ticks = [1, (n + 1) // 2, n]
        ax.set(title=title, xlabel="key $j$", ylabel="query $i$", xticks=ticks, yticks=ticks)
    for ax, (title, panel) in zip(below, lines.items(), strict=True):
        tokens = range(1, len(even) + 1)
        for k, (label, metric) in enumerate(panel.items()):
            ax.plot(tokens, metric, label=label, color=f"C{k}", linestyle=("-", "--", "-.", ":")[k % 4])
        ax.plot(tokens, even, color="#7f7f7f", linestyle=(0, (6, 3)), linewidth=0.9, label=f"{next(iter(panel))}, even")
        ax.set(xlabel="token $j$", ylabel="sink metric", title=title)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2, fontsize=7)
    return fig


# The front door: one measurement and the rollouts that predict it.

PREDICTION_DECADES = 4
"""Powers of ten below the measured maximum that a prediction is drawn over."""


Band = tuple[np.ndarray, np.ndarray]
"""Lower and upper end of an interval, for each position or layer."""


def plot_prediction(
    measured: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    *,
    title: str = "",
    band: Band | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw measured influence as a broad black curve, with predictions of it, and return the axes.

    Parameters
    ----------
    measured
        The measured profile.
    predictions
        Label → predicted profile, each with a colour and a line style of its own.
    title
        Heading of the axes.
    band
        Interval of the measured profile, shaded.
    ax
        Where to draw; a new figure in the book's style unless given.
    """
    with plt.style.context(str(STYLE)):
        figure, axes = plt.subplots(figsize=(6.4, 4.4)) if ax is None else (None, ax)
        for k, (label, p) in enumerate(predictions.items()):
            style = LINE_STYLES[1 + k % (len(LINE_STYLES) - 1)]
            axes.plot(np.arange(len(p)), p, label=label, color=to_hex(f"C{k}"), linestyle=style)
        black = FAMILY_COLOURS["measured"]
        axes.plot(np.arange(len(measured)), measured, label="measured", color=black, linewidth=2.2, zorder=1.5)
        if band is not None:
            axes.fill_between(np.arange(len(measured)), *band, color="#7f7f7f", alpha=0.4, linewidth=0, zorder=1.4)
        profile_axes(axes, len(measured))
        axes.set(yscale="log", ylim=(float(np.max(measured)) * 10**-PREDICTION_DECADES, 1.3))
        axes.set_title(title, loc="left")
        if figure is None:
            axes.legend()
        else:
            figure.legend(loc="outside lower center", ncols=2)
    return axes


def plot_mixing(mixing: np.ndarray, *, band: Band | None = None, ax: Axes | None = None) -> Axes:
    """Draw the mixing coefficient λ of each layer, and return the axes.

    Parameters
    ----------
    mixing
        One value for each layer, first layer first.
    band
        Their intervals, drawn as lines.
    ax
        Where to draw; a new figure in the book's style unless given.
    """
    with plt.style.context(str(STYLE)):
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 2.4))
        layers = np.arange(1, len(mixing) + 1)
        ax.bar(layers, mixing, color=to_hex("C0"))
        if band is not None:
            ax.vlines(layers, *band, color=FAMILY_COLOURS["measured"], linewidth=1.2)
        ax.set(xlabel="layer $t$ (1 is first)", ylabel=r"mixing $\lambda_t$")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


def place_panels(
    scores: Mapping[str, Mapping[str, Sequence[np.ndarray]]],
    groups: np.ndarray,
    profiles: Mapping[str, np.ndarray],
    places: np.ndarray,
    *,
    chance: float | None = None,
    xlabel: str = "place",
) -> Figure:
    """Return panels over the places of a prompt: scores with intervals, and profiles below them.

    Parameters
    ----------
    scores
        Label of an axis → label of a score → mean and the ends of its interval, for each group of places.
    groups
        Where groups of places are drawn.
    profiles
        Label → share of influence at each place; what was measured comes first. No panel without them.
    places
        Where places are drawn.
    chance
        A score of the first panel, from 0 to 1, that a guess would have; dashed.
    xlabel
        What a place is.
    """
    count, drawn = len(scores) + bool(profiles), 0
    with plt.style.context(str(STYLE)):
        figure, axes = plt.subplots(count, 1, figsize=(6.4, 1.4 + 1.7 * count), sharex=True)
        for ax, (unit, curves) in zip(axes, scores.items(), strict=False):
            for label, (mean, low, high) in curves.items():
                look = {"color": to_hex(f"C{drawn}"), "linestyle": LINE_STYLES[drawn]}
                ax.plot(groups, mean, marker="." if len(groups) < 3 else None, label=label, **look)
                ax.fill_between(groups, low, high, color=look["color"], alpha=0.25, linewidth=0)
                drawn += 1
            ax.set_ylabel(unit)
        if chance is not None:
            axes[0].axhline(chance, color="#7f7f7f", linestyle="--", linewidth=0.9, label="chance among values")
            axes[0].set_ylim(-0.03, 1.03)
        for k, (label, p) in enumerate(profiles.items()):
            look = {"color": to_hex(f"C{drawn + k - 1}"), "linestyle": LINE_STYLES[(drawn + k - 1) % len(LINE_STYLES)]}
            measured = {"color": FAMILY_COLOURS["measured"], "linewidth": 2.0}
            axes[-1].plot(places, p, label=label, **(look if k else measured))
            if not k:
                axes[-1].set(yscale="log", ylabel="share of influence", ylim=(float(p.max()) * 1e-3, None))
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[-1].set_xlabel(xlabel)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure


def inline_svg(figure: Figure, description: str) -> str:
    """Return a figure as an ``<svg>`` element that takes black and its ground from the page, and close it.

    Parameters
    ----------
    figure
        Any figure.
    description
        What it shows, for those who cannot see it.

    >>> fig, ax = plt.subplots()
    >>> text = inline_svg(fig, "Nothing <yet>")
    >>> text.startswith("<svg"), "http" in text, 'aria-label="Nothing &lt;yet&gt;"' in text
    (True, False, True)
    """
    content = io.StringIO()
    with plt.style.context([str(STYLE), {"svg.fonttype": "none", "svg.hashsalt": description}]):
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(content, format="svg", transparent=True, metadata=metadata)
    plt.close(figure)
    text = content.getvalue()
    text = text[text.index("<svg") :]
    for pattern in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r' xmlns(:\w+)?="[^"]*"'):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href").replace("#000000", "currentColor")
    text = text.replace("stroke: #d9d9d9", "stroke: currentColor; stroke-opacity: 0.15")
    text = re.sub(r"<text\b", '<text fill="currentColor"', text)
    text = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"| height="[\d.]+pt"| width="[\d.]+pt"', "", text, count=2)
    label = html.escape(description, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()

"""What a figure shows, in words and numbers: its axes, and every curve, bar, area and label in parts of its axes.

A notebook keeps this text beside the picture, so that a figure can be compared as numbers and read without eyes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

POINTS = 48
"""Of a longer curve so many points are described, evenly spaced, the first and the last among them."""


def describe_when_shown() -> None:
    """Let a notebook keep :func:`describe` as the plain text of a figure.

    IPython asks a class for ``_repr_pretty_``; a printer registered with its formatter would be dropped when
    matplotlib's inline backend starts.
    """
    setattr(Figure, "_repr_pretty_", lambda figure, printer, cycle: printer.text(describe(figure)))  # noqa: B010


def describe(figure: Figure) -> str:
    """Return a figure as text: a line for each axes, and below it an indented line for each thing drawn.

    Notes
    -----
    Points are pairs ``x y`` in parts of the axes, (0, 0) at the lower left and (1, 1) at the upper right, so that
    scales, linear or logarithmic, are those of the eye. What lies outside is given as one half beyond the edge;
    colours and line widths are not told.

    >>> import matplotlib.pyplot as plt
    >>> fig, ax = plt.subplots()
    >>> _ = ax.plot([0, 1, 2], [1, 10, 100], label="influence"), ax.set(xlim=(0, 2), ylim=(1, 100), yscale="log")
    >>> print(describe(fig)); plt.close(fig)
    figure 6.4 x 4.8 in
    axes x linear 0.000e+00 to 2.000e+00, y log 1.000e+00 to 1.000e+02
      curve influence: 0.000 0.000, 0.500 0.500, 1.000 1.000
    """
    width, height = figure.get_size_inches()
    lines = [f"figure {width:.1f} x {height:.1f} in", *(" ".join(text.get_text().split()) for text in figure.texts)]
    for ax in figure.axes:
        if ax.get_visible():
            lines += _axes(ax)
    return "\n".join(lines)


def _axes(ax: Axes) -> Iterator[str]:
    ax.apply_aspect()
    titles = [title for title in (ax.get_title(where) for where in ("left", "center", "right")) if title]
    spans = [
        f"{axis} {scale} {low:.3e} to {high:.3e}{label and f' ({label})'}"
        for axis, scale, (low, high), label in (
            ("x", ax.get_xscale(), ax.get_xlim(), ax.get_xlabel()),
            ("y", ax.get_yscale(), ax.get_ylim(), ax.get_ylabel()),
        )
    ]
    yield " ".join(["axes", *titles, ", ".join(spans)])
    for artist in (*ax.images, *ax.collections, *ax.patches, *ax.lines, *ax.texts):
        if artist.get_visible():
            yield f"  {' '.join(_artist(ax, artist).split())}"


def _artist(ax: Axes, artist: Artist) -> str:
    name = "" if str(artist.get_label()).startswith("_") else f" {artist.get_label()}"
    if isinstance(artist, Line2D):
        return f"curve{name}: {_points(ax, artist.get_transform().transform(artist.get_xydata()))}"
    if isinstance(artist, Text):
        at = artist.get_transform().transform([artist.get_position()])
        return f"text {artist.get_text()}: {_points(ax, at)}"
    if isinstance(artist, AxesImage):
        return f"image{name}: {_values(artist)}"
    if isinstance(artist, Collection):
        if isinstance(artist, PathCollection):
            offsets: np.ndarray = np.ma.filled(np.ma.asarray(artist.get_offsets()), np.nan)
            return f"dots{name}: {_points(ax, artist.get_offset_transform().transform(offsets))}{_colours(artist)}"
        paths = [np.empty((0, 2)), *(np.asarray(path.vertices) for path in artist.get_paths())]
        return f"area{name}: {_points(ax, artist.get_transform().transform(np.concatenate(paths)))}{_colours(artist)}"
    if isinstance(artist, Patch):
        corners = np.asarray(artist.get_path().vertices)
        return f"patch{name}: {_points(ax, artist.get_transform().transform(corners))}"
    return ""


def _points(ax: Axes, shown: np.ndarray) -> str:
    """Return page coordinates as points in parts of the axes."""
    with np.errstate(invalid="ignore"):
        at = ax.transAxes.inverted().transform(np.ma.filled(shown, np.nan))
    at = np.clip(at[np.isfinite(at).all(axis=1)], -0.5, 1.5)
    return ", ".join(f"{x:.3f} {y:.3f}" for x, y in _few(at) + 0.0)


def _colours(artist: Collection) -> str:
    return "" if artist.get_array() is None else f"; colours {_values(artist)}"


def _values(artist: Collection | AxesImage) -> str:
    """Return the values of a map in parts of its colours."""
    values = np.ma.filled(artist.norm(np.ma.asarray(artist.get_array())), np.nan)
    return " ".join(f"{value:.3f}" for value in _few(values.ravel()))


def _few(rows: np.ndarray) -> np.ndarray:
    if len(rows) <= POINTS:
        return rows
    return rows[np.linspace(0, len(rows) - 1, POINTS).round().astype(int)]


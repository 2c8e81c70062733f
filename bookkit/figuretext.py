"""What a figure shows, in words and numbers: its axes, and every curve, bar, area and label in parts of its axes.

A notebook keeps this text beside the picture, so that a figure can be compared as numbers and read without eyes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter

from posbias.plotting import STYLE

POINTS = 48
"""Of a longer curve, or a larger map, so many points are described, the first and the last among them."""


def describe_when_shown() -> None:
    """Let a notebook keep :func:`describe` as the plain text of a figure; a registered printer would be dropped."""
    setattr(Figure, "_repr_pretty_", lambda figure, printer, cycle: printer.text(describe(figure)))  # noqa: B010


def describe(figure: Figure) -> str:
    r"""Return a figure as text: a line for each axes, and below it an indented line for each axis and each thing drawn.

    Notes
    -----
    Points are pairs ``x y`` in parts of the axes, (0, 0) at the lower left and (1, 1) at the upper right, so that
    scales, linear or logarithmic, are those of the eye; what lies outside is given as one half beyond the edge.
    Names, colours and ticks with labels of their own stand before the colon, numbers behind it. ``style`` is a checksum
    of the book's style file.

    >>> import matplotlib.pyplot as plt
    >>> fig, ax = plt.subplots()
    >>> _ = ax.plot([0, 1, 2], [1, 10, 100], "k--", label="influence"), ax.set(xlim=(0, 2), ylim=(1, 100), yscale="log")
    >>> print(describe(fig).partition("style")[0]); print(*describe(fig).splitlines()[1:], sep="\n"); plt.close(fig)
    figure 6.4 x 4.8 in,
    axes
      x-axis linear: 0.000e+00 to 2.000e+00
      y-axis log: 1.000e+00 to 1.000e+02
      curve influence #000000 --: 0.000 0.000, 0.500 0.500, 1.000 1.000
    """
    width, height = figure.get_size_inches()
    lines = [f"figure {width:.1f} x {height:.1f} in, style {zlib.crc32(STYLE.read_bytes()):08x}"]
    lines += [_line(text.get_text()) for text in figure.texts]
    for legend in figure.legends:
        lines.append(_line("legend", *(text.get_text() for text in legend.get_texts())))
    for ax in figure.axes:
        if ax.get_visible():
            lines += _axes(ax)
    return "\n".join(lines)


def _line(*parts: str) -> str:
    return " ".join(" ".join(parts).split())


def _axes(ax: Axes) -> Iterator[str]:
    ax.apply_aspect()
    yield _line("axes", *(ax.get_title(where) for where in ("left", "center", "right")))
    yield f"  {_axis(ax.xaxis, 'x-axis', ax.get_xscale())}"
    yield f"  {_axis(ax.yaxis, 'y-axis', ax.get_yscale())}"
    for artist in (*ax.images, *ax.collections, *ax.patches, *ax.lines, *ax.texts):
        if artist.get_visible():
            yield f"  {_artist(ax, artist)}"
    legend = ax.get_legend()
    if legend is not None:
        yield f"  {_line('legend', *(text.get_text() for text in legend.get_texts()))}: "


def _axis(axis: Axis, name: str, scale: str) -> str:
    low, high = axis.get_view_interval()
    ticks = axis.get_major_formatter()
    own = isinstance(ticks, FixedFormatter | FuncFormatter)
    named = ticks.format_ticks(list(axis.get_major_locator()())) if own else []
    return f"{_line(name, scale, axis.get_label_text(), *map(str, named))}: {low:.3e} to {high:.3e}"


def _artist(ax: Axes, artist: Artist) -> str:
    name = "" if str(artist.get_label()).startswith("_") else str(artist.get_label())
    if isinstance(artist, Line2D):
        look = to_hex(artist.get_color()), str(artist.get_linestyle())
        return f"{_line('curve', name, *look)}: {_points(ax, artist.get_transform().transform(artist.get_xydata()))}"
    if isinstance(artist, Text):
        at = artist.get_transform().transform([artist.get_position()])
        return f"{_line('text', artist.get_text())}: {_points(ax, at)}"
    if isinstance(artist, AxesImage):
        return f"{_line('image', name, artist.get_cmap().name)}: {_values(artist)}"
    if isinstance(artist, Collection):
        mapped = artist.get_array() is not None
        plain = [to_hex(tuple(colour)) for colour in np.atleast_2d(artist.get_facecolor())[:1]]
        transform, drawn = artist.get_transform(), [np.asarray(path.vertices) for path in artist.get_paths()]
        if isinstance(artist, PathCollection):
            transform, drawn = artist.get_offset_transform(), [np.asarray(artist.get_offsets())]
        values = f"; {_values(artist)}" if mapped else ""
        points = _points(ax, transform.transform(np.concatenate([np.empty((0, 2)), *drawn])))
        return f"{_line('area', name, *([artist.get_cmap().name] if mapped else plain))}: {points}{values}"
    if isinstance(artist, Patch):
        surface = to_hex(artist.get_facecolor()), artist.get_hatch() or ""
        corners = np.asarray(artist.get_path().vertices)
        return f"{_line('patch', name, *surface)}: {_points(ax, artist.get_transform().transform(corners))}"
    return f"{_line(type(artist).__name__, name)}: "


def _points(ax: Axes, shown: np.ndarray) -> str:
    """Return page coordinates as points in parts of the axes."""
    with np.errstate(invalid="ignore"):
        at = ax.transAxes.inverted().transform(np.ma.filled(shown, np.nan))
    at = np.clip(at[np.isfinite(at).all(axis=1)], -0.5, 1.5)
    return ", ".join(f"{x:.3f} {y:.3f}" for x, y in _few(at) + 0.0)


def _values(artist: Collection | AxesImage) -> str:
    """Return the values of a map, and what its first and last colours stand for."""
    shares = np.ma.filled(artist.norm(_few(np.asarray(artist.get_array(), dtype=float).ravel())), np.nan)
    low, high = artist.get_clim()
    return " ".join(f"{share:.3f}" for share in shares) + f"; colours {low:.3e} to {high:.3e}"


def _few(rows: np.ndarray) -> np.ndarray:
    """Return at most :data:`POINTS` rows, the first and the last among them, in steps that fit no period of a map."""
    if len(rows) <= POINTS:
        return rows
    golden = np.arange(POINTS - 2) * (np.sqrt(5) - 1) / 2 % 1
    return rows[np.sort(np.concatenate([[0, len(rows) - 1], (golden * len(rows)).astype(int)]))]

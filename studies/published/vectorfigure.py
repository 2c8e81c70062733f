"""Curves recovered from matplotlib's vector figures: marker positions in a PDF are the data, to many digits."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from pathlib import Path

import numpy as np
from jaxtyping import Float

from posbias import errors

UNREAD = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Curve:
    """Hold the points of a curve in data units, in the order in which they were drawn.

    Parameters
    ----------
    x, y
        Coordinates of the markers.
    residual
        Largest distance of an axis tick from the straight line through all of them, in points of the page:
        how well the axes are known.
    """

    x: Float[np.ndarray, "points"]
    y: Float[np.ndarray, "points"]
    residual: float


def recover_curve(path: Path | str) -> Curve:
    """Return the markers of the one curve in a matplotlib PDF figure, in data units.

    The page's drawing instructions hold every marker as a shift from the one before (ten decimals), every
    grid line (six) and the labels of the ticks; linear axes follow from the ticks by least squares.

    Raises
    ------
    ValueError
        If the page has no markers, fewer than two labelled ticks on an axis, or an axis that is not linear.
    """
    from pypdf import PdfReader
    from pypdf.errors import PdfReadError
    from pypdf.generic import ContentStream

    try:
        reader = PdfReader(path)
        page = reader.pages[0]
        operations = ContentStream(page["/Contents"].get_object(), reader).operations
    except (PdfReadError, KeyError, IndexError) as error:
        raise errors.invalid(str(path), "a PDF with a page of drawing instructions", str(error)) from None
    markers, ticks = _read(operations)
    if len(markers) < 2:
        raise errors.invalid(str(path), "a curve drawn with markers", f"{len(markers)} markers")
    points = np.cumsum(markers, axis=0)
    x, off_x = _to_data(points[:, 0], ticks["x"], f"{path}: horizontal axis")
    y, off_y = _to_data(points[:, 1], ticks["y"], f"{path}: vertical axis")
    return Curve(x, y, max(off_x, off_y))


def _read(operations: list) -> tuple[list[tuple[float, float]], dict[str, list[tuple[float, float]]]]:
    """Collect marker shifts, and (page coordinate, label) of the ticks of both axes.

    A label is drawn after its grid line and before the next path. One that holds a character from outside the
    font's own codes, as matplotlib's minus sign is, drawn as a glyph of its own or in another font, is left out.
    """
    markers: list[tuple[float, float]] = []
    ticks: dict[str, list[tuple[float, float]]] = {"x": [], "y": []}
    shift, corner, grid, label = (0.0, 0.0), (0.0, 0.0), None, ""
    for operands, operator in operations:
        if operator == b"cm":
            shift = (float(operands[4]), float(operands[5]))
        elif operator == b"Do" and str(operands[0]).startswith("/M"):
            markers.append(shift)
        elif operator == b"Do":
            label += UNREAD
        elif operator == b"m":
            number = _number(label)
            if grid is not None and number is not None:
                ticks[grid[0]].append((grid[1], number))
                grid = None
            corner, label = (float(operands[0]), float(operands[1])), ""
        elif operator == b"l":
            grid = _grid_line(corner, (float(operands[0]), float(operands[1]))) or grid
        elif operator in (b"Tj", b"TJ"):  # one string, or strings with the kerning between them
            parts = operands[0] if operator == b"TJ" else operands
            label += "".join(_text(part) for part in parts)
    return markers, ticks


def _text(part: object) -> str:
    """Return a piece of a label; kerning is none, and what the font's codes do not give is unread."""
    if isinstance(part, int | float):
        return ""
    return part if isinstance(part, str) and part.isprintable() else UNREAD


def _grid_line(a: tuple[float, float], b: tuple[float, float]) -> tuple[str, float] | None:
    """Return the axis and place of a line drawn across the figure; tick marks are a few points long."""
    if a[0] == b[0] and abs(a[1] - b[1]) > 20:
        return "x", a[0]
    if a[1] == b[1] and abs(a[0] - b[0]) > 20:
        return "y", a[1]
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _to_data(page: np.ndarray, ticks: list[tuple[float, float]], axis: str) -> tuple[np.ndarray, float]:
    """Return page coordinates in data units, and the ticks' largest distance from a linear axis."""
    labels = {value for _, value in ticks}
    if len(labels) < 2:
        raise errors.invalid(axis, "at least two labelled ticks", len(labels))
    scale, offset = _straight_line(ticks)
    off = max(abs(scale * value + offset - place) for place, value in ticks)
    if off > 1e-3:
        raise errors.invalid(axis, "ticks on a straight line", f"one {off:.3g} points away")
    return (page - offset) / scale, off


def _straight_line(ticks: list[tuple[float, float]]) -> tuple[float, float]:
    """Return scale and offset of the least-squares line from label to place.

    Sums are correctly rounded, so that a figure gives the same digits on every machine.
    """
    middle_place, middle_value = (fsum(column) / len(ticks) for column in zip(*ticks, strict=True))
    spread = fsum((value - middle_value) ** 2 for _, value in ticks)
    scale = fsum((value - middle_value) * (place - middle_place) for place, value in ticks) / spread
    return scale, middle_place - scale * middle_value

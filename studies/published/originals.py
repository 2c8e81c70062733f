"""The authors' own files: where they are, what is there, and what makes and checks the published numbers from them.

The book works without them (:mod:`studies.published.numbers`). Nothing here removes or replaces a file that is
there: a download that is not what it should be is discarded before it gets its name. Curves come from matplotlib's
vector figures: marker positions in a PDF are the data, to many digits.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from math import fsum
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.configuration import read_config
from posbias.files import data_folder, write_whole
from studies.published import numbers
from studies.published.numbers import PrintedRecency

UNREAD = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Curve:
    """Hold the points of a curve in data units, in the order in which they were drawn."""

    x: Float[np.ndarray, "points"]
    y: Float[np.ndarray, "points"]
    residual: float  # Largest distance of an axis tick from the straight line through all, in points of the page


def recover_curve(path: Path | str) -> Curve:
    """Return the markers of the one curve in a matplotlib PDF figure, in data units.

    The page's drawing instructions hold every marker as a shift from the one before (ten decimals), every
    grid line (six) and the labels of the ticks; linear axes follow from the ticks by least squares.
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


PAPER, LAYERNORM = "position-bias", "layernorm_recency_bias"
"""Whose files: folders below ``POSBIAS_DATA``."""
URL = "https://github.com/ml-uhh/position-bias/raw/a514e09/"
FIGURES = {
    "measured": "figures/iti_bigscience_bloom_HuggingFaceFW_fineweb-edu_256.pdf",
    "bloom": "figures/bloom.pdf",
    "bloom_content": "figures/bloom_content.pdf",
    "no_residual": "figures/no_residual.pdf",
}
"""The authors' vector figures, all of BLOOM-176B at 256 tokens: measured, and rollouts (b), (c) and (a)."""
RECENCY_FIGURES = ("fig1_d16_d64_L1L2.pdf", "fig3_d16_d64_L3L4.pdf")
"""The LayerNorm authors' figures of layers 1 and 2, and 3 and 4, at widths 16 and 64."""

State = Literal["ok", "missing", "differs"]
"""A file by its checksum: the one that numbers were read from, no such file, or another one."""


def path(name: str, collection: str = PAPER) -> Path:
    """Return where one of the authors' files belongs: below ``POSBIAS_DATA``, or the user's cache folder."""
    return data_folder() / collection / name


def states() -> Iterator[tuple[dict[str, Any], str, State]]:
    """Yield the source, the name and the state of every file that numbers were read from, and of the licences."""
    for source in numbers.sources():
        for file in source["files"]:
            here = path(file["name"], source["collection"])
            same = here.is_file() and _checksum(here) == file["sha256"]
            missing = not (here.exists() or here.is_symlink())
            yield source, file["name"], "ok" if same else "missing" if missing else "differs"


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def download(url: str | None = None) -> list[Path]:
    """Fetch the residual-aware paper's missing files into the data folder; return those that were fetched.

    A file that is there is never fetched again, whatever it holds. What comes with another checksum is discarded.
    """
    import pooch
    import requests

    url = url or URL
    known = {x["name"]: f"sha256:{x['sha256']}" for s in numbers.sources() for x in s["files"] if s["commit"]}
    store = pooch.create(path=path(""), base_url=url, registry=known, retry_if_failed=1, allow_updates=False)
    pooch.get_logger().setLevel("ERROR")  # else it tells of every file
    missing = [name for source, name, state in states() if source["commit"] and state == "missing"]
    try:
        return [Path(store.fetch(name)) for name in missing]
    except requests.RequestException as error:
        raise OSError(f"{url}: could not be reached ({type(error).__name__}); the rest works without") from None


def read_recency_figure(figure: Path | str) -> list[PrintedRecency]:
    """Return what is printed in a figure of heat maps: rows are settings, columns are widths and layers."""
    from pypdf import PdfReader
    from pypdf.generic import ContentStream

    reader = PdfReader(figure)
    text = ""
    for operands, operator in ContentStream(reader.pages[0]["/Contents"].get_object(), reader).operations:
        if operator in (b"Tj", b"TJ"):
            piece = operands[0] if operator == b"Tj" else "".join(x for x in operands[0] if isinstance(x, str))
            text += piece if len(piece) == 1 else f"\n{piece}\n"  # row labels are drawn letter by letter
    columns = re.findall(r"d=(\d+), Layer (\d+)", text)
    settings = re.findall(r"=([\d.]+), (noLN|LN), (noRes|Res)", text)
    values = re.findall(r"RP=([\d.]+)", text)
    if not values or len(values) != len(columns) * len(settings):
        expected = f"{len(settings)} × {len(columns)} probabilities"
        raise errors.invalid(str(figure), expected, len(values))
    norm, residual = {"LN": "layernorm", "noLN": "none"}, {"Res": "pre", "noRes": "none"}
    panels = [(setting, column) for setting in settings for column in columns]
    return [
        PrintedRecency(int(d), float(alpha), norm[ln], residual[res], int(layer), float(value))
        for ((alpha, ln, res), (d, layer)), value in zip(panels, values, strict=True)
    ]


def read_curve(figure: Path | str) -> Float[np.ndarray, "n"]:
    """Return the influence at positions 0..n-1 that a figure draws."""
    curve = recover_curve(figure)
    off = float(np.abs(curve.x - np.arange(curve.x.size)).max())
    if off > 1e-4:
        raise errors.invalid(str(figure), "points at positions 0, 1, 2, …", f"one that is {off:.3g} away")
    return curve.y


def verify() -> list[tuple[str, str]]:
    """Return each file's outcome with its place: ``equal``, ``other numbers``, ``missing``, ``differs`` or ``unread``.

    Configurations must be equal field by field, curves and probabilities number by number, and the number of tabs and
    checksums must be those that were kept. Figures are ``unread`` where pypdf is not installed.
    """
    return [
        (_compared(source, name) if state == "ok" else state, f"{source['collection']}/{name}")
        for source, name, state in states()
    ]


def _compared(source: dict[str, Any], name: str) -> str:
    file = path(name, source["collection"])
    if name.endswith(".pdf") and find_spec("pypdf") is None:
        return "unread"
    same = _described(file, name) in source["files"]
    curves = {place: curve for curve, place in FIGURES.items()}
    if name.endswith(".yaml"):
        same &= name in numbers.configuration_names() and numbers.configuration(name) == read_config(file)
    elif name in curves:
        same &= np.array_equal(numbers.figure_points(curves[name]), read_curve(file))
    elif name in RECENCY_FIGURES:
        same &= set(read_recency_figure(file)) <= set(numbers.printed_recency())
    return "equal" if same else "other numbers"


def _described(file: Path, name: str) -> dict[str, Any]:
    tabs = None if name.endswith(".pdf") else file.read_bytes().count(b"\t")
    return {"name": name, "sha256": _checksum(file), "tabs": tabs}


def rebuild(output: Path) -> None:
    """Read all of the authors' files and write :data:`studies.published.numbers.SHIPPED` again, in the same bytes."""
    bad = [f"{state}: {path(name, source['collection'])}" for source, name, state in states() if state != "ok"]
    if bad:
        expected = "all of them, with the checksums that were kept"
        raise errors.invalid("authors' files", expected, f"{len(bad)} others, first {bad[0]}")
    text = json.dumps(_content(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    write_whole(output, gzip.compress(text.encode(), mtime=0))


def _content() -> dict[str, Any]:
    """Return what the file holds; :func:`studies.published.numbers.read_shipped` is its reader."""
    arrays: dict[str, dict[str, Any]] = {}
    kept = numbers.read_shipped(numbers.SHIPPED)
    configurations = {name: _fields(name, arrays) for name in numbers.configuration_names()}
    curves = {
        curve: {**kept["curves"][curve], "influence": read_curve(path(name)).tolist()}
        for curve, name in FIGURES.items()
    }
    recency = [entry for name in RECENCY_FIGURES for entry in read_recency_figure(path(name, LAYERNORM))]
    return {
        **{name: kept[name] for name in ("format", "about", "fields")},
        "sources": [
            source | {"files": [_described(path(x["name"], source["collection"]), x["name"]) for x in source["files"]]}
            for source in numbers.sources()
        ],
        "arrays": dict(sorted(arrays.items())),
        "configurations": configurations,
        "curves": curves,
        "recency": [asdict(entry) for entry in sorted(recency, key=_order)],
    }


def _order(entry: PrintedRecency) -> tuple[int, float, bool, bool, int]:
    return entry.d, entry.alpha, entry.norm != "none", entry.residual != "none", entry.layer


def _fields(name: str, arrays: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a configuration's fields, with what is long put into ``arrays`` once and named in its place."""
    fields = read_config(path(name)).model_dump()
    assert fields.pop("position_bias") is None  # which no file of theirs can hold
    attention, content = fields["attention_config"], fields["content_config"]
    parent, model = Path(name).parent.name, Path(name).stem.removesuffix("-noresidual")
    corpus = parent if parent in numbers.CORPORA else numbers.CORPORA[0]
    parts = {
        f"slopes/{attention['num_heads']}": (attention, "alibi_slopes"),
        f"diagonal/{model}/{corpus}": (content, "diagonal_scores"),
        f"base/{model}/{corpus}": (content, "base_scores"),
        f"lambda/{model}/{corpus}": (fields["lambda_schedule_config"], "lambdas_custom"),
    }
    for key, (part, field) in parts.items():
        if np.size(part.get(field, 0)) > 1:
            if arrays.setdefault(key, _packed(part[field])) != _packed(part[field]):
                raise errors.invalid(f"{name}: {field}", f"the same as in every other file with {key}", "another")
            part[field] = {"array": key}
    return fields


def _packed(values: list) -> dict[str, Any]:
    """Return numbers with the fewest digits that give them back; single precision where that is enough."""
    single = np.array(values, dtype=np.float32)
    if not np.array_equal(single.astype(np.float64), np.array(values)):
        return {"precision": "double", "values": values}
    shortest = np.array([float(str(x)) for x in single.ravel()]).reshape(single.shape).tolist()
    return {"precision": "single", "values": shortest}

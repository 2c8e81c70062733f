"""The authors' own files: where they are, what is there, and what checks the published numbers by them.

The book works without them (:mod:`studies.published.numbers`). Nothing here removes or replaces a file that is
there: a download that is not what it should be is discarded before it gets its name. Curves come from matplotlib's
vector figures: marker positions in a PDF are the data, to many digits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from math import fsum
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.configuration import read_config
from posbias.files import data_folder
from studies.published import numbers
from studies.published.numbers import PrintedRecency

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


def _operations(figure: Path) -> list[tuple[list, bytes]]:
    """Return the drawing instructions of a PDF's only page."""
    from pypdf import PdfReader
    from pypdf.generic import ContentStream

    reader = PdfReader(figure)
    return ContentStream(reader.pages[0]["/Contents"].get_object(), reader).operations


def read_recency_figure(figure: Path) -> list[PrintedRecency]:
    """Return what is printed in a figure of heat maps: rows are settings, columns are widths and layers."""
    text = ""
    for operands, operator in _operations(figure):
        if operator in (b"Tj", b"TJ"):
            piece = operands[0] if operator == b"Tj" else "".join(x for x in operands[0] if isinstance(x, str))
            text += piece if len(piece) == 1 else f"\n{piece}\n"  # row labels are drawn letter by letter
    columns = re.findall(r"d=(\d+), Layer (\d+)", text)
    settings = re.findall(r"=([\d.]+), (noLN|LN), (noRes|Res)", text)
    norm, residual = {"LN": "layernorm", "noLN": "none"}, {"Res": "pre", "noRes": "none"}
    panels = [(setting, column) for setting in settings for column in columns]
    return [
        PrintedRecency(int(d), float(alpha), norm[ln], residual[res], int(layer), float(value))
        for ((alpha, ln, res), (d, layer)), value in zip(panels, re.findall(r"RP=([\d.]+)", text), strict=True)
    ]


def read_curve(figure: Path) -> Float[np.ndarray, "n"]:
    """Return the influence at positions 0..n-1 that a figure draws with markers.

    The drawing instructions hold every marker as a shift from the one before (ten decimals), every grid line (six) and,
    after it, the label of its tick; the linear axis follows from the ticks by least squares.
    """
    markers: list[float] = []
    ticks: dict[float, float] = {}  # place of a horizontal grid line → its label
    shift, corner, grid, label = 0.0, (0.0, 0.0), None, ""
    for operands, operator in _operations(figure):
        if operator == b"cm":
            shift = float(operands[5])
        elif operator == b"Do" and str(operands[0]).startswith("/M"):
            markers.append(shift)
        elif operator == b"m":
            if grid is not None and label:
                ticks[grid], grid = float(label), None
            corner, label = (float(operands[0]), float(operands[1])), ""
        elif operator == b"l" and max(abs(corner[0] - float(operands[0])), abs(corner[1] - float(operands[1]))) > 20:
            grid = corner[1] if corner[1] == float(operands[1]) else None  # tick marks are a few points long
        elif operator in (b"Tj", b"TJ"):  # one string, or strings with the kerning between them
            label += "".join(x for x in (operands[0] if operator == b"TJ" else operands) if isinstance(x, str))
    scale, offset = _straight_line(ticks)
    return (np.cumsum(markers) - offset) / scale


def _straight_line(ticks: dict[float, float]) -> tuple[float, float]:
    """Return scale and offset of the least-squares line from label to place.

    Sums are correctly rounded, so that a figure gives the same digits on every machine.
    """
    middle_place, middle_value = fsum(ticks) / len(ticks), fsum(ticks.values()) / len(ticks)
    spread = fsum((value - middle_value) ** 2 for value in ticks.values())
    scale = fsum((value - middle_value) * (place - middle_place) for place, value in ticks.items()) / spread
    return scale, middle_place - scale * middle_value


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

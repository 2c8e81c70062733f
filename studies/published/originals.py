"""The authors' own files: where they are, what is there, and what makes and checks the shipped numbers from them.

The package works without them (:mod:`posbias.published.numbers`). Nothing here removes or replaces a file that is
there: a download that is not what it should be is discarded before it gets its name. Curves come from matplotlib's
vector figures: marker positions in a PDF are the data, to many digits.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from math import fsum
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.files import data_folder, write_whole
from posbias.published import numbers as published
from posbias.published.configuration import OURS, read_config
from posbias.published.numbers import PrintedRecency, Source, SourceFile

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


Collection = Literal["position-bias", "layernorm_recency_bias"]
"""Whose files: a folder below ``POSBIAS_DATA``, and a registry in the package."""
COLLECTIONS: tuple[Collection, ...] = ("position-bias", "layernorm_recency_bias")
REPOSITORIES = {
    "position-bias": "https://github.com/ml-uhh/position-bias",
    "layernorm_recency_bias": "https://github.com/starmpcc/layernorm_recency_bias",
}
COMMITS = {"position-bias": "a514e09", "layernorm_recency_bias": None}
"""State of each repository; that of the LayerNorm paper's was not recorded, its files are known by checksum."""
URL = f"{REPOSITORIES['position-bias']}/raw/{COMMITS['position-bias']}/"
FIGURES = {
    "measured": "figures/iti_bigscience_bloom_HuggingFaceFW_fineweb-edu_256.pdf",
    "bloom": "figures/bloom.pdf",
    "bloom_content": "figures/bloom_content.pdf",
    "no_residual": "figures/no_residual.pdf",
}
"""The authors' vector figures, all of BLOOM-176B at 256 tokens: measured, and rollouts (b), (c) and (a)."""
RECENCY_FIGURES = ("fig1_d16_d64_L1L2.pdf", "fig3_d16_d64_L3L4.pdf")
"""The LayerNorm authors' figures of layers 1 and 2, and 3 and 4, at widths 16 and 64."""

ABOUT = (
    "Numbers that two papers' authors published, read from the files named under sources by 'python -m "
    "studies.published rebuild'. Papers: arXiv 2602.16837 (position-bias), and the LayerNorm paper of "
    "layernorm_recency_bias."
)
FIELDS = {
    "sources": "the authors' files; tabs: how many tab characters a file has, which strict YAML readers refuse",
    "arrays": (
        "named parts of configurations, layers first: lambda (layer), slopes (1 or layer, head), diagonal and base "
        "(layer, head). precision single: read a value as a 32-bit float and widen it; it then equals the YAML's"
    ),
    "configurations": (
        "the authors' fields by file; {array: NAME} stands for an array. lambdas_custom: share of attention in a "
        "layer's mixture with the identity; alibi_slopes m: -m (i - j) is added to the logit of query i and key j; "
        "diagonal_scores: added where i = j; base_scores: added everywhere, cancel. Stem bloom: BLOOM-176B"
    ),
    "curves": (
        "BLOOM-176B, FineWeb-Edu, 256 tokens, as drawn, not normalised: measured influence, and rollouts (b) bloom, "
        "(c) bloom_content, (a) no_residual. Read off vector figures to about 1e-9: a zero can be negative"
    ),
    "recency": (
        "printed in figures: share of keys k < j before a query i with a larger logit at j than at k, in an "
        "untrained network of width d, for tokens with cosine alpha, by norm, residual and layer, from 1"
    ),
}
"""What the parts of the shipped file mean, for whoever reads it without this package."""
State = Literal["ok", "missing", "differs"]
"""A file against the registry: its checksum is the registry's, there is no such file, or the checksum is another."""
Outcome = Literal["equal", "other numbers", "unread", "missing", "differs"]


def data_dir(collection: Collection = "position-bias") -> Path:
    """Return the folder of the authors' files: ``POSBIAS_DATA``, or the user's cache folder."""
    return data_folder() / collection


@cache
def registry(collection: Collection = "position-bias") -> dict[str, str]:
    """Return the name and ``sha256:`` checksum of every file that numbers were read from, and of the licence."""
    lines = (published.DATA / f"{collection}.registry").read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def state(name: str, collection: Collection = "position-bias") -> State:
    """Return whether a file of the registry is in the data folder, and is what the registry says."""
    file = data_dir(collection) / name
    if not os.path.lexists(file):
        return "missing"
    return "ok" if _checksum(file) == registry(collection)[name] else "differs"


def states() -> Iterator[tuple[Collection, str, State]]:
    """Yield collection, name and state of every file of both registries."""
    for collection in COLLECTIONS:
        for name in registry(collection):
            yield collection, name, state(name, collection)


def path(name: str, collection: Collection = "position-bias") -> Path:
    """Return where one of the authors' files is, after checking its checksum."""
    known = registry(collection)
    if name not in known:
        names = f"one of the {len(known)} names that 'python -m studies.published list' prints"
        raise errors.invalid("published file", names, name)
    file = data_dir(collection) / name
    found = state(name, collection)
    if found == "missing":
        fetch = "or run 'python -m studies.published download'"
        get = fetch if collection == "position-bias" else f"from {REPOSITORIES[collection]}"
        raise FileNotFoundError(f"{file}: not there. Set POSBIAS_DATA to a folder that has it, {get}")
    if found == "differs":
        raise errors.invalid(f"{file}: checksum", known[name], f"{_checksum(file)} (the file was left as it is)")
    return file


def _checksum(file: Path) -> str:
    if not file.is_file():
        return "no file of that name"  # a folder, or a link to nothing: it is not ours to replace
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def download(url: str | None = None) -> list[Path]:
    """Fetch the residual-aware paper's missing files into the data folder; return those that were fetched.

    A file that is there is never fetched again, whatever it holds. What comes with another checksum than the
    registry's is discarded.
    """
    import pooch
    import requests

    url = url or URL
    store = pooch.create(path=data_dir(), base_url=url, registry=registry(), retry_if_failed=1, allow_updates=False)
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # else it tells of every file
    fetched = []
    try:
        for name in [name for name in registry() if state(name) == "missing"]:
            fetched.append(Path(store.fetch(name)))
    except requests.RequestException as error:
        why = f"{url}{name}: could not be reached ({type(error).__name__})"
        raise OSError(f"{why}; only verify and rebuild need it, all else works without it") from None
    finally:
        logger.setLevel(level)
    differ = ", ".join(str(data_dir() / name) for name in registry() if state(name) == "differs")
    if differ:
        raise errors.invalid("checksum", "the registry's", f"another (nothing was changed): {differ}")
    return fetched


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


@dataclass(frozen=True)
class Verification:
    """Say how a file of the authors' compares with the shipped numbers."""

    collection: Collection
    name: str
    # ``equal`` (for a licence, which holds no numbers, the same file); ``other numbers``; ``unread``, a figure
    # where pypdf is not installed; ``missing``; or ``differs``, not the authors' file by its checksum
    outcome: Outcome


def verify() -> list[Verification]:
    """Compare the shipped numbers with those in the files that are at hand.

    Configurations must be equal field by field, curves and probabilities number by number, and tabs and
    checksums must be those that ship.
    """
    published.read_shipped(published.SHIPPED)
    return [
        Verification(collection, name, _compared(collection, name) if found == "ok" else found)
        for collection, name, found in states()
    ]


def _compared(collection: Collection, name: str) -> Outcome:
    file = path(name, collection)
    if name.endswith(".pdf") and find_spec("pypdf") is None:
        return "unread"
    shipped = {(s.collection, f.name): f for s in published.sources() for f in s.files}
    same = shipped.get((collection, name)) == _source_file(name, file)
    curves = {place: curve for curve, place in FIGURES.items()}
    if name.endswith(".yaml"):
        same &= name in published.configuration_names() and published.configuration(name) == read_config(file)
    elif name in curves:
        same &= np.array_equal(published.figure_points(curves[name]), read_curve(file))
    elif name in RECENCY_FIGURES:
        same &= set(read_recency_figure(file)) <= set(published.printed_recency())
    return "equal" if same else "other numbers"


def _source_file(name: str, file: Path) -> SourceFile:
    tabs = None if name.endswith(".pdf") else file.read_bytes().count(b"\t")
    return SourceFile(name, _checksum(file).removeprefix("sha256:"), tabs)


def rebuild(output: Path) -> None:
    """Read all of the authors' files and write the file that ships, :data:`posbias.published.numbers.SHIPPED`.

    The same files give the same bytes.
    """
    bad = [(found, data_dir(collection) / name) for collection, name, found in states() if found != "ok"]
    if bad:
        missing = sum(found == "missing" for found, _ in bad)
        first = dict(reversed(bad)).values()  # of each kind
        received = f"{missing} missing and {len(bad) - missing} that differ, first {' and '.join(map(str, first))}"
        raise errors.invalid("authors' files", "all of them, with the registry's checksums", received)
    text = json.dumps(_content(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as stream:
        stream.write(text.encode())
    write_whole(output, packed.getvalue())


def _content() -> dict[str, Any]:
    """Return what the shipped file holds; :func:`posbias.published.numbers.read_shipped` is its reader."""
    arrays: dict[str, dict[str, Any]] = {}
    names = [name for name in registry() if name.endswith(".yaml")]
    configurations = {name: _fields(name, arrays) for name in names}
    curves = {
        curve: {"file": name, "what": "influence at positions 0..n-1", "influence": read_curve(path(name)).tolist()}
        for curve, name in FIGURES.items()
    }
    recency = [entry for name in RECENCY_FIGURES for entry in read_recency_figure(path(name, "layernorm_recency_bias"))]
    return {
        "format": published.FORMAT,
        "about": ABOUT,
        "fields": FIELDS,
        "sources": [asdict(_read_source(collection)) for collection in COLLECTIONS],
        "arrays": dict(sorted(arrays.items())),
        "configurations": configurations,
        "curves": curves,
        "recency": [asdict(entry) for entry in sorted(recency, key=_order)],
    }


def _order(entry: PrintedRecency) -> tuple[int, float, bool, bool, int]:
    return entry.d, entry.alpha, entry.norm != "none", entry.residual != "none", entry.layer


def _read_source(collection: Collection) -> Source:
    """Return where a collection is from; its licence file says under which terms."""
    licence = path("LICENSE", collection).read_text(encoding="utf-8")
    return Source(
        collection=collection,
        repository=REPOSITORIES[collection],
        commit=COMMITS[collection],
        licence=licence.splitlines()[0].removesuffix(" License"),
        copyright=next(line for line in licence.splitlines() if line.startswith("Copyright")),
        files=tuple(_source_file(name, path(name, collection)) for name in registry(collection)),
    )


def _fields(name: str, arrays: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a configuration's fields, with what is long put into ``arrays`` once and named in its place."""
    fields = read_config(path(name)).model_dump()
    assert [fields.pop(name) for name in OURS] == [None] * len(OURS)  # which no file of theirs can hold
    attention, content = fields["attention_config"], fields["content_config"]
    parent, model = Path(name).parent.name, Path(name).stem.removesuffix("-noresidual")
    corpus = parent if parent in published.CORPORA else published.CORPORA[0]
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

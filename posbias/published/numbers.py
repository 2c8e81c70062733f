"""What the authors published, as numbers that ship: configurations, curves, tables and recency probabilities.

Nothing here needs a network or the authors' files. Those, and what makes and checks the shipped numbers from
them, are in :mod:`studies.published.originals`.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.published.configuration import RolloutConfig, config_text

DATA = Path(__file__).parents[1] / "data"
SHIPPED = DATA / "published.json.gz"
"""The numbers that come out of the authors' files; ``python -m studies.published rebuild`` makes it."""
TABLES = DATA / "printed_tables.csv"
"""Tables 2 to 4, copied from the paper's text: there is no file of the authors' that holds them."""
ENTRIES = 75
"""How many there are: 5 models in 3 variants, then twice 5 models on 3 corpora in 2 variants."""
FORMAT = "posbias published numbers, format 1"
"""First field of the shipped file."""

ROLLOUTS = "config/rollout/alibi"
"""Folder of the models' configurations in the authors' repository."""
CONTENTS = ("none", "mean", "all")
"""Content logits of a configuration: 0, one value for all layers and heads, or one for each layer and head."""
CORPORA = ("fineweb-edu", "dclm", "wikipedia")
"""Texts on which λ and content were measured; configurations without content exist for the first only."""


@dataclass(frozen=True)
class PublishedModel:
    """Describe one of the five models of the paper."""

    name: str  # Stem of its configuration files
    label: str  # Its name in the paper's tables
    family: Literal["bloom", "mpt", "falcon"]
    head_dim: int  # Size of a head (hidden size over heads, from the model's public configuration)
    billions: int  # Parameters, in billions, as the paper's Table 1 gives them


MODELS: dict[str, PublishedModel] = {
    m.name: m
    for m in (
        PublishedModel("falcon-rw-7b", "Falcon-RW-7B", "falcon", 64, 7),
        PublishedModel("mpt-7b", "MPT-7B", "mpt", 128, 7),
        PublishedModel("mpt-30b", "MPT-30B", "mpt", 112, 30),
        PublishedModel("bloom-7b1", "BLOOM-7B1", "bloom", 128, 7),
        PublishedModel("bloom", "BLOOM-176B", "bloom", 128, 176),
    )
}
"""The models of the paper in the order of its tables."""


@dataclass(frozen=True)
class SourceFile:
    """Name one file of the authors' and what identifies it."""

    name: str  # Its place in the repository (of the LayerNorm paper's, without the folder)
    sha256: str  # Checksum of its bytes, in hexadecimal
    tabs: int | None  # How many tab characters the text has; None for a figure


@dataclass(frozen=True)
class Source:
    """Say where numbers come from."""

    collection: str  # Folder of the files below ``POSBIAS_DATA``
    repository: str
    commit: str | None  # State of the repository, None where it was not recorded
    licence: str
    copyright: str
    files: tuple[SourceFile, ...]  # Every file that numbers were read from, and the licence


@dataclass(frozen=True)
class PrintedRecency:
    """Hold one printed recency probability, four decimals, with the setting of its panel."""

    d: int  # Width
    alpha: float  # Cosine between tokens
    norm: str
    residual: str
    layer: int  # Counted from 1
    probability: float


@dataclass(frozen=True)
class Shipped:
    """Hold what the shipped file holds."""

    sources: tuple[Source, ...]
    configurations: dict[str, dict[str, Any]]  # The fields of every configuration by the name of the authors' file
    # Influence at positions 0..n-1 by the name of the curve, as the figure holds it
    curves: dict[str, Float[np.ndarray, "n"]]
    recency: tuple[PrintedRecency, ...]


BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, LookupError, TypeError, AttributeError, RecursionError, ValueError)
"""What comes of a file that is not the one that ships."""


@cache
def read_shipped(path: Path) -> Shipped:
    """Read a file that :func:`studies.published.originals.rebuild` wrote.

    Numbers come back exactly: those of double precision as they stand, those of single precision as the double
    that equals the single nearest to what stands.
    """
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        arrays = {name: _numbers(**array) for name, array in content["arrays"].items()}
        for source in content["sources"]:
            source["files"] = tuple(SourceFile(**file) for file in source["files"])
        return Shipped(
            sources=tuple(Source(**source) for source in content["sources"]),
            configurations={name: _filled(fields, arrays) for name, fields in content["configurations"].items()},
            curves={name: np.array(curve["influence"], dtype=float) for name, curve in content["curves"].items()},
            recency=tuple(PrintedRecency(**entry) for entry in content["recency"]),
        )
    except BROKEN as error:
        received = " ".join(f"{type(error).__name__}: {error}".split())
        raise errors.invalid(str(path), f"the file that ships ({FORMAT})", received) from None


def _numbers(precision: str, values: list) -> list:
    """Return nested lists of doubles."""
    array = np.array(values, dtype={"single": np.float32, "double": np.float64}[precision])
    return array.astype(np.float64).tolist()


def _filled(value: Any, arrays: dict[str, list]) -> Any:
    """Return the fields of a configuration with its arrays in place of their names."""
    if not isinstance(value, dict):
        return value
    if set(value) == {"array"}:
        return arrays[value["array"]]
    return {key: _filled(part, arrays) for key, part in value.items()}


def sources() -> tuple[Source, ...]:
    """Return where the shipped numbers come from, with the checksum of every file."""
    return read_shipped(SHIPPED).sources


def configuration_names() -> tuple[str, ...]:
    """Return the names of the authors' configuration files, their example among them."""
    return tuple(read_shipped(SHIPPED).configurations)


def configuration(name: str) -> RolloutConfig:
    """Return the configuration of one of the authors' files; it equals what ``read_config`` makes of the file."""
    known = read_shipped(SHIPPED).configurations
    if name not in known:
        raise errors.invalid("configuration", f"one of the {len(known)} files that were published", name)
    try:
        return RolloutConfig.model_validate(known[name])
    except ValueError as error:
        received = " ".join(str(error).split())
        raise errors.invalid(f"{SHIPPED}: {name}", "a rollout configuration", received) from None


def config(model: str, content: str = "all", dataset: str = "fineweb-edu", residual: bool = True) -> RolloutConfig:
    """Return a published configuration.

    Parameters
    ----------
    model
        A key of :data:`MODELS`.
    content
        One of :data:`CONTENTS`: ``none`` (λ from FineWeb-Edu only), ``mean`` (one value for all; FineWeb-Edu
        only) or ``all`` (per layer and head).
    dataset
        One of :data:`CORPORA`: what λ and content were measured on.
    residual
        False for λ = 1 in every layer. Where the authors have no file of that, it is derived from the one with
        the measured λ.

    Raises
    ------
    ValueError
        For an unknown model, content or corpus, with those that there are, and for a combination that was not
        published, with those that were.
    """
    name, derived = _find(model, content, dataset, residual)
    return configuration(name).without_residual() if derived else configuration(name)


def corpora(model: str, content: str) -> tuple[str, ...]:
    """Return the corpora for which configurations of a model with this content were published."""
    for field, value, there in (("model", model, tuple(MODELS)), ("content", content, CONTENTS)):
        if value not in there:
            raise errors.invalid(field, f"one of {', '.join(there)}", value)
    measured = CORPORA[:1] if content == "none" else CORPORA
    return tuple(x for x in measured if f"{_folder(content, x)}/{model}.yaml" in configuration_names())


def written_config(model: str, content: str = "all", dataset: str = "fineweb-edu", residual: bool = True) -> str:
    """Return :func:`config` as text in the authors' YAML format, under comments that say where it is from.

    Takes and refuses what :func:`config` does; ``read_config`` reads the same configuration back.
    """
    name, derived = _find(model, content, dataset, residual)
    source, file = next((s, f) for s in sources() for f in s.files if f.name == name)
    lines = [
        f"{MODELS[model].label}: rollout {'with' if residual else 'without'} residual, content {content}, {dataset}",
        f"Numbers of {source.repository} at {source.commit}, {name}",
        f"sha256:{file.sha256}; {source.licence} licence, {source.copyright}",
    ]
    if derived:
        lines.append("Derived: lambda = 1 in every layer in place of that file's schedule; no such file was published.")
    settings = config(model, content, dataset, residual)
    return "".join(f"# {line}\n" for line in lines) + "\n" + config_text(settings)


def _find(model: str, content: str, dataset: str, residual: bool) -> tuple[str, bool]:
    """Return the authors' file that holds a configuration, and whether λ = 1 must still take its λ's place."""
    there = corpora(model, content)
    if dataset not in CORPORA:
        raise errors.invalid("corpus", f"one of {', '.join(CORPORA)}", dataset)
    if dataset not in there:
        what = f"{', '.join(there)} (all that was published with content '{content}')"
        raise errors.invalid("corpus", what, dataset)
    name, own = (f"{_folder(content, dataset)}/{model}{suffix}.yaml" for suffix in ("", "-noresidual"))
    if residual:
        return name, False
    return (own, False) if own in configuration_names() else (name, True)


def _folder(content: str, dataset: str) -> str:
    return f"{ROLLOUTS}/no_content" if content == "none" else f"{ROLLOUTS}/{content}_content/{dataset}"


def figure_points(figure: str) -> Float[np.ndarray, "n"]:
    """Return the influence at positions 0..n-1 that a figure of BLOOM-176B draws, to the digits that it holds.

    The points of each figure sum to 1 within 2e-7. What is 0 in a figure may be as far below it as the figure's
    digits reach, about 1e-9.

    Source: residual-aware paper, figure 1, bloom-176b, recovered from the authors' vector figures.
    """
    curves = read_shipped(SHIPPED).curves
    if figure not in curves:
        raise errors.invalid("figure", f"one of {', '.join(curves)}", figure)
    return curves[figure].copy()


def figure_profile(figure: str) -> Float[np.ndarray, "n"]:
    """Return :func:`figure_points` as an influence profile: divided by their sum.

    Source: residual-aware paper, figure 1, bloom-176b.
    """
    y = figure_points(figure)
    return y / y.sum()


def measured_profile() -> Float[np.ndarray, "n"]:
    """Return the influence measured on BLOOM-176B (1,000 FineWeb-Edu prompts of 256 tokens), summing to 1.

    Source: residual-aware paper, figure 1 (d), bloom-176b, recovered from the authors' vector figure.
    """
    return figure_profile("measured")


@dataclass(frozen=True)
class PrintedEntry:
    """Hold one printed Wasserstein distance, with where it stands and its rounding interval."""

    table: int
    n: int
    dataset: str
    model: str
    variant: str
    wasserstein: float  # As printed, two decimals

    @property
    def low(self) -> float:
        """Smallest value that rounds to the printed one."""
        return self.wasserstein - 0.005

    @property
    def high(self) -> float:
        """Largest value that rounds to the printed one."""
        return self.wasserstein + 0.005


@cache
def printed_tables() -> tuple[PrintedEntry, ...]:
    """Return the entries of tables 2 to 4.

    Tables 3 and 4 are held without column (a), which our copy of the text has lost.

    Source: residual-aware paper, tables 2, 3 and 4.
    """
    return read_tables(TABLES)


def read_tables(path: Path) -> tuple[PrintedEntry, ...]:
    """Read the file that holds tables 2 to 4, or raise ValueError naming it if it is cut off or another one."""
    try:
        text = path.read_text(encoding="utf-8")
        entries = tuple(
            PrintedEntry(int(r["table"]), int(r["n"]), r["dataset"], r["model"], r["variant"], float(r["wasserstein"]))
            for r in csv.DictReader(text.splitlines())
        )
    except (KeyError, TypeError, ValueError) as error:
        raise errors.invalid(str(path), "the entries of tables 2 to 4", f"{type(error).__name__}: {error}") from None
    if len(entries) != ENTRIES or not text.endswith("\n"):
        received = f"{len(entries)}, the last cut off" if len(entries) == ENTRIES else len(entries)
        raise errors.invalid(str(path), f"{ENTRIES} entries of tables 2 to 4", received)
    return entries


def printed(table: int, model: str, variant: str, dataset: str = "fineweb-edu") -> PrintedEntry:
    """Return one printed entry, or raise ValueError if the tables have none there."""
    for entry in printed_tables():
        if (entry.table, entry.model, entry.variant, entry.dataset) == (table, model, variant, dataset):
            return entry
    raise errors.invalid("entry", "one that tables 2 to 4 print", f"table {table}, {model} ({variant}), {dataset}")


def printed_recency() -> tuple[PrintedRecency, ...]:
    """Return the 32 recency probabilities that the LayerNorm authors print in two figures.

    Source: github.com/starmpcc/layernorm_recency_bias, its figures 1 and 3.
    """
    return read_shipped(SHIPPED).recency

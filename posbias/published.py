"""What the authors published: their files, checksummed, and the numbers printed in their tables and figures."""

from __future__ import annotations

import csv
import hashlib
import os
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float

from posbias import checks
from posbias.config import RolloutConfig, read_config
from posbias.vectorfigure import recover_curve

if TYPE_CHECKING:
    import pooch

COMMIT = "a514e09"
URL = f"https://github.com/ml-uhh/position-bias/raw/{COMMIT}/"
FIGURES = {
    "measured": "figures/iti_bigscience_bloom_HuggingFaceFW_fineweb-edu_256.pdf",
    "bloom": "figures/bloom.pdf",
    "bloom_content": "figures/bloom_content.pdf",
    "no_residual": "figures/no_residual.pdf",
}
"""The authors' vector figures, all of BLOOM-176B at 256 tokens: measured, and rollouts (b), (c) and (a)."""
RECENCY_URL = "https://github.com/starmpcc/layernorm_recency_bias"
RECENCY_FIGURES = ("fig1_d16_d64_L1L2.pdf", "fig3_d16_d64_L3L4.pdf")
"""The LayerNorm authors' figures of layers 1 and 2, and 3 and 4, at widths 16 and 64."""
Dataset = Literal["fineweb-edu", "dclm"]
Collection = Literal["position-bias", "layernorm_recency_bias"]
"""Whose files: a folder below ``POSBIAS_DATA``, and a registry in the package."""


@dataclass(frozen=True)
class PublishedModel:
    """Describe one of the five models of the paper.

    Parameters
    ----------
    name
        Stem of its configuration files.
    label
        Its name in the paper's tables.
    family
        Architecture: ``bloom``, ``mpt`` or ``falcon``.
    head_dim
        Size of a head (hidden size over heads, from the model's public configuration).
    """

    name: str
    label: str
    family: Literal["bloom", "mpt", "falcon"]
    head_dim: int


MODELS: dict[str, PublishedModel] = {
    m.name: m
    for m in (
        PublishedModel("falcon-rw-7b", "Falcon-RW-7B", "falcon", 64),
        PublishedModel("mpt-7b", "MPT-7B", "mpt", 128),
        PublishedModel("mpt-30b", "MPT-30B", "mpt", 112),
        PublishedModel("bloom-7b1", "BLOOM-7B1", "bloom", 128),
        PublishedModel("bloom", "BLOOM-176B", "bloom", 128),
    )
}
"""The models of the paper in the order of its tables."""


def data_dir(collection: Collection = "position-bias") -> Path:
    """Return the folder of the published files: ``POSBIAS_DATA``, or the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("POSBIAS_DATA") or platformdirs.user_cache_dir("posbias")).expanduser() / collection


@cache
def registry(collection: Collection = "position-bias") -> dict[str, str]:
    """Return the name and SHA-256 of every file of the authors' that the book reads."""
    lines = (files("posbias") / "data" / f"{collection}.registry").read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def available(collection: Collection = "position-bias") -> bool:
    """Say whether every file of the registry is in the data folder (checksums are checked when one is read)."""
    folder = data_dir(collection)
    return all((folder / name).is_file() for name in registry(collection))


def path(name: str, collection: Collection = "position-bias") -> Path:
    """Return where a published file is, after checking its checksum.

    Raises
    ------
    ValueError
        If the registry has no such file, or the file's checksum is not the registry's; a bad file is removed.
    FileNotFoundError
        If it is not in the data folder; the message says how to get it.
    """
    known = registry(collection)
    if name not in known:
        names = f"one of the {len(known)} names that 'posbias published' lists"
        raise checks.refuse("published file", names, name)
    file = data_dir(collection) / name
    if not file.is_file():
        get = "or run 'posbias published --download'" if collection == "position-bias" else f"from {RECENCY_URL}"
        raise FileNotFoundError(f"{file}: not there. Set POSBIAS_DATA to a folder that has it, {get}")
    with file.open("rb") as stream:
        received = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    if received != known[name]:
        raise checks.refuse(f"{file}: checksum", known[name], f"{received} ({_discard(file)})")
    return file


def _discard(file: Path) -> str:
    try:
        file.unlink()
    except OSError:
        return "the file could not be removed"
    return "the bad file was removed"


def download(url: str = URL) -> list[Path]:
    """Fetch the files that are missing into the data folder and return the paths of all of them.

    A file whose checksum is not the registry's is not kept.

    Parameters
    ----------
    url
        Where the registry's names are found; the authors' repository at the pinned commit unless given.

    Raises
    ------
    ValueError
        For a checksum mismatch.
    OSError
        If a file cannot be reached (``requests``' errors are of this kind) or written.
    """
    import pooch

    store: pooch.Pooch = pooch.create(path=data_dir(), base_url=url, registry=registry(), retry_if_failed=2)
    return [Path(store.fetch(name)) for name in registry()]


def config(
    model: str, content: Literal["none", "mean", "all"] = "all", dataset: Dataset = "fineweb-edu"
) -> RolloutConfig:
    """Return a published configuration as published.

    Parameters
    ----------
    model
        A key of :data:`MODELS`.
    content
        ``none`` (λ from FineWeb-Edu only), ``mean`` (one value for all; FineWeb-Edu only) or ``all`` (per layer
        and head).
    dataset
        ``fineweb-edu`` or ``dclm``.
    """
    if model not in MODELS:
        raise checks.refuse("model", f"one of {', '.join(MODELS)}", model)
    folder = "no_content" if content == "none" else f"{content}_content/{dataset}"
    return read_config(path(f"config/rollout/alibi/{folder}/{model}.yaml"))


def figure_profile(figure: str) -> Float[np.ndarray, "n"]:
    """Return the influence profile that one of :data:`FIGURES` draws, summing to 1.

    The points of each figure sum to 1 within 2e-7 before they are normalised.

    Source: residual-aware paper, figure 1, bloom-176b.
    """
    if figure not in FIGURES:
        raise checks.refuse("figure", f"one of {', '.join(FIGURES)}", figure)
    y = recover_curve(path(FIGURES[figure])).y
    return y / y.sum()


def measured_profile() -> Float[np.ndarray, "n"]:
    """Return the influence measured on BLOOM-176B (1,000 FineWeb-Edu prompts of 256 tokens), summing to 1.

    Source: residual-aware paper, figure 1 (d), bloom-176b, recovered from the authors' vector figure.
    """
    return figure_profile("measured")


@dataclass(frozen=True)
class PrintedEntry:
    """Hold one printed Wasserstein distance, with where it stands and its rounding interval.

    Parameters
    ----------
    table, n, dataset, model, variant
        Where it stands: table number, prompt length, data set, model, and a, b or c.
    wasserstein
        As printed, two decimals.
    """

    table: int
    n: int
    dataset: str
    model: str
    variant: str
    wasserstein: float

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
    text = (files("posbias") / "data" / "printed_tables.csv").read_text(encoding="utf-8")
    return tuple(
        PrintedEntry(int(r["table"]), int(r["n"]), r["dataset"], r["model"], r["variant"], float(r["wasserstein"]))
        for r in csv.DictReader(text.splitlines())
    )


def printed(table: int, model: str, variant: str, dataset: str = "fineweb-edu") -> PrintedEntry:
    """Return one printed entry, or raise ValueError if the tables have none there."""
    for entry in printed_tables():
        if (entry.table, entry.model, entry.variant, entry.dataset) == (table, model, variant, dataset):
            return entry
    raise checks.refuse("entry", "one that tables 2 to 4 print", f"table {table}, {model} ({variant}), {dataset}")


@dataclass(frozen=True)
class PrintedRecency:
    """Hold one printed recency probability, four decimals, with the setting of its panel.

    Parameters
    ----------
    d, alpha, layer
        Width, cosine between tokens, and layer counted from 1.
    norm, residual
        As :mod:`posbias.recency` names them.
    probability
        As printed.
    """

    d: int
    alpha: float
    norm: str
    residual: str
    layer: int
    probability: float


@cache
def printed_recency() -> tuple[PrintedRecency, ...]:
    """Return the 32 recency probabilities that the LayerNorm authors print in two figures.

    Source: github.com/starmpcc/layernorm_recency_bias, the figures of :data:`RECENCY_FIGURES`.
    """
    text = (files("posbias") / "data" / "printed_recency.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple(
        PrintedRecency(
            int(r["d"]), float(r["alpha"]), r["norm"], r["residual"], int(r["layer"]), float(r["probability"])
        )
        for r in csv.DictReader(lines)
    )


def read_recency_figure(figure: Path | str) -> list[PrintedRecency]:
    """Return what is printed in a figure of heat maps: rows are settings, columns are widths and layers.

    Raises
    ------
    ValueError
        If the page does not hold one probability for every setting, width and layer that it names.
    """
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
        raise checks.refuse(str(figure), expected, len(values))
    norm, residual = {"LN": "layernorm", "noLN": "none"}, {"Res": "pre", "noRes": "none"}
    panels = [(setting, column) for setting in settings for column in columns]
    return [
        PrintedRecency(int(d), float(alpha), norm[ln], residual[res], int(layer), float(value))
        for ((alpha, ln, res), (d, layer)), value in zip(panels, values, strict=True)
    ]

"""What the authors published: their files, checksummed, and the numbers printed in their tables."""

from __future__ import annotations

import csv
import hashlib
import os
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
Dataset = Literal["fineweb-edu", "dclm"]


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


def data_dir() -> Path:
    """Return the folder of the published files: ``POSBIAS_DATA``, or the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("POSBIAS_DATA") or platformdirs.user_cache_dir("posbias")).expanduser() / "position-bias"


@cache
def registry() -> dict[str, str]:
    """Return the name and SHA-256 of every file of the authors' that the book reads."""
    lines = (files("posbias") / "data" / "position-bias.registry").read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def available() -> bool:
    """Say whether every file of the registry is in the data folder (checksums are checked when one is read)."""
    folder = data_dir()
    return all((folder / name).is_file() for name in registry())


def path(name: str) -> Path:
    """Return where a published file is, after checking its checksum.

    Raises
    ------
    ValueError
        If the registry has no such file, or the file's checksum is not the registry's; a bad file is removed.
    FileNotFoundError
        If it is not in the data folder; the message says how to get it.
    """
    if name not in registry():
        names = f"one of the {len(registry())} names that 'posbias published' lists"
        raise checks.refuse("published file", names, name)
    file = data_dir() / name
    if not file.is_file():
        raise FileNotFoundError(
            f"{file}: not there. Set POSBIAS_DATA to a folder that has it, or run 'posbias published --download'"
        )
    with file.open("rb") as stream:
        received = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    if received != registry()[name]:
        raise checks.refuse(f"{file}: checksum", registry()[name], f"{received} ({_discard(file)})")
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

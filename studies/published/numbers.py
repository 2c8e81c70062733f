"""What the authors published, as numbers: configurations, curves, tables and recency probabilities.

Nothing here needs a network or the authors' files. Those, and what makes and checks these numbers from them, are in
:mod:`studies.published.originals`.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias import errors
from posbias.configuration import ConstantSchedule, ContentConfig, RolloutConfig, config_text

SHIPPED = Path(__file__).with_name("published.json.gz")
"""The numbers that came out of the authors' files; ``python -m studies.published verify`` compares them again."""
TABLES = Path(__file__).with_name("printed_tables.csv")
"""Tables 2 to 4, copied from the paper's text: there is no file of the authors' that holds them."""

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
class PrintedRecency:
    """Hold one printed recency probability, four decimals, with the setting of its panel."""

    d: int  # Width
    alpha: float  # Cosine between tokens
    norm: str
    residual: str
    layer: int  # Counted from 1
    probability: float


@cache
def read_shipped(path: Path) -> dict[str, Any]:
    """Return the sources, configurations, curves and probabilities of a file such as :data:`SHIPPED`.

    Numbers come back exactly: those of double precision as they stand, those of single precision as the double
    that equals the single nearest to what stands.
    """
    content = json.loads(gzip.decompress(path.read_bytes()))
    arrays = {name: unpacked(**array) for name, array in content.pop("arrays").items()}
    return content | {"configurations": _filled(content["configurations"], arrays)}


def unpacked(precision: str, values: list) -> list:
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


def sources() -> list[dict[str, Any]]:
    """Return where the numbers come from: collection, repository, commit, licence, copyright and files.

    A file has its name, the sha256 of its bytes, and how many tab characters its text has.
    """
    return list(read_shipped(SHIPPED)["sources"])


def configuration_names() -> tuple[str, ...]:
    """Return the names of the authors' configuration files, their example among them."""
    return tuple(read_shipped(SHIPPED)["configurations"])


def configuration(name: str) -> RolloutConfig:
    """Return the configuration of one of the authors' files; it equals what ``read_config`` makes of the file."""
    return RolloutConfig.model_validate(read_shipped(SHIPPED)["configurations"][name])


def config(model: str, content: str = "all", dataset: str = "fineweb-edu", residual: bool = True) -> RolloutConfig:
    """Return a published configuration, or raise ValueError with those that there are.

    ``model`` is one of :data:`MODELS`, ``content`` one of :data:`CONTENTS` (without content and with one value for all,
    λ is from FineWeb-Edu only), ``dataset`` one of :data:`CORPORA`, on which λ and content were measured. Without
    ``residual`` λ is 1 in every layer, derived from the file with the measured λ where the authors have no other.
    """
    name, derived = _find(model, content, dataset, residual)
    return without_residual(configuration(name)) if derived else configuration(name)


def without_residual(config: RolloutConfig) -> RolloutConfig:
    """Return a configuration with λ = 1 in every layer: attention only."""
    schedule = ConstantSchedule(schedule_type="constant", lambda_const=1.0)
    return config.model_copy(update={"lambda_schedule_config": schedule})


def without_content(config: RolloutConfig) -> RolloutConfig:
    """Return a configuration with content logits 0."""
    content = ContentConfig(diagonal_scores=[[0.0]], base_scores=[[0.0]])
    return config.model_copy(update={"content_config": content})


def corpora(model: str, content: str) -> tuple[str, ...]:
    """Return the corpora for which configurations of a model with this content were published."""
    for field, value, there in (("model", model, tuple(MODELS)), ("content", content, CONTENTS)):
        if value not in there:
            raise errors.invalid(field, f"one of {', '.join(there)}", value)
    measured = CORPORA[:1] if content == "none" else CORPORA
    return tuple(x for x in measured if f"{_folder(content, x)}/{model}.yaml" in configuration_names())


def written_config(model: str, content: str = "all", dataset: str = "fineweb-edu", residual: bool = True) -> str:
    """Return :func:`config` as text in the authors' YAML format, under comments that say where it is from."""
    name, derived = _find(model, content, dataset, residual)
    source, file = next((s, f) for s in sources() for f in s["files"] if f["name"] == name)
    lines = [
        f"{MODELS[model].label}: rollout {'with' if residual else 'without'} residual, content {content}, {dataset}",
        f"Numbers of {source['repository']} at {source['commit']}, {name}",
        f"sha256:{file['sha256']}; {source['licence']} licence, {source['copyright']}",
    ]
    if derived:
        lines.append("Derived: lambda = 1 in every layer in place of that file's schedule; no such file was published.")
    settings = config(model, content, dataset, residual)
    return "".join(f"# {line}\n" for line in lines) + "\n" + config_text(settings)


def _find(model: str, content: str, dataset: str, residual: bool) -> tuple[str, bool]:
    """Return the authors' file that holds a configuration, and whether λ = 1 must still take its λ's place."""
    there = corpora(model, content)
    if dataset not in there:
        raise errors.invalid("corpus", f"{', '.join(there)} (all that was published with content {content})", dataset)
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
    curves = read_shipped(SHIPPED)["curves"]
    if figure not in curves:
        raise errors.invalid("figure", f"one of {', '.join(curves)}", figure)
    return np.array(curves[figure]["influence"], dtype=float)


def figure_profile(figure: str) -> Float[np.ndarray, "n"]:
    """Return :func:`figure_points` as an influence profile: divided by their sum."""
    y = figure_points(figure)
    return y / y.sum()


def measured_profile() -> Float[np.ndarray, "n"]:
    """Return the influence measured on BLOOM-176B (1,000 FineWeb-Edu prompts of 256 tokens), summing to 1."""
    return figure_profile("measured")


@cache
def printed_tables() -> pd.DataFrame:
    """Return tables 2 to 4: table, n, dataset, model, variant, and wasserstein as printed, two decimals.

    Tables 3 and 4 are held without column (a), which our copy of the text has lost.

    Source: residual-aware paper, tables 2, 3 and 4.
    """
    return pd.read_csv(TABLES)


def printed(table: int, model: str, variant: str, dataset: str = "fineweb-edu") -> Any:
    """Return the row of one printed entry.

    >>> printed(2, "bloom", "c").wasserstein
    0.01
    """
    rows = printed_tables().query("table == @table and model == @model and variant == @variant and dataset == @dataset")
    return next(rows.itertuples(index=False))


def printed_recency() -> tuple[PrintedRecency, ...]:
    """Return the 32 recency probabilities that the LayerNorm authors print in two figures.

    Source: github.com/starmpcc/layernorm_recency_bias, its figures 1 and 3.
    """
    return tuple(PrintedRecency(**entry) for entry in read_shipped(SHIPPED)["recency"])

"""The table of known models that ships with the package: ``python -m studies.reference.known_models`` makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from posbias.comparison.distances import normalised_wasserstein, unit
from posbias.files import write_whole
from posbias.report.known_models import COLUMNS, TABLE, shape_numbers
from studies.published import numbers
from studies.results import load

SIZES = ("gpt2", "gpt2-medium", "opt-125m", "mpt-125m", "pythia-160m", "qwen2-0.5b", "bloom-560m", "tinyllama-1.1b")
"""Architectures of real size that were measured untrained, on random tokens."""
HEADER = """\
# Models that reports set others beside. Made by studies.reference.known_models from results/ and from the numbers of
# Herasimchyk et al. that ship with the package; "source" names where a row's numbers are from.
"""


def rebuild(path: Path = TABLE) -> Path:
    """Write the table from the book's results and the published numbers, and return its path."""
    text = pd.DataFrame(rows(), columns=COLUMNS).to_csv(index=False, float_format="%.5f", lineterminator="\n")
    write_whole(path, HEADER + text)
    return path


def rows() -> Iterator[dict[str, Any]]:
    """Yield reference models and their architectures untrained, others of real size, and published models."""
    models, untrained = load("models"), load("untrained")
    for name in models:
        if name.endswith(".builtin") and ".seed-" not in name:
            yield _measured(models[name], name) | {"source": f"results/models.nc, {name}"}
    for name in SIZES:
        yield _untrained(untrained[f"{name}.random"]) | {"source": f"results/untrained.nc, {name}.random"}
    for model in numbers.MODELS.values():
        yield _published(model)


def _measured(x: xr.Dataset, entry: str) -> dict[str, Any]:
    """Return the row of a summary."""
    p, name = unit(x["influence"].values), entry.split(".")[0]
    return {
        "name": name,
        "kind": "untrained" if "-untrained-" in name else "reference",
        "architecture": str(x.attrs["architecture"]),
        "layers": x.sizes["layer"],
        "length": x.sizes["position"],
        "corpus": str(x.attrs["dataset"]),
        "mixing": float(x["lambda_frobenius"].sum()),
        **shape_numbers(p),
        **{v: normalised_wasserstein(x["rollout"].sel(variant=v).values, p) for v in "abc"},
    }


def _untrained(x: xr.Dataset) -> dict[str, Any]:
    """Return the row of untrained networks of one size: the mean profile over seeds, and the mean distances."""
    profiles = unit(x["influence"].values)
    distances: Mapping[str, float] = {
        v: float(np.mean([normalised_wasserstein(q, p) for q, p in zip(predicted, profiles, strict=True)]))
        for v, predicted in ((v, unit(x["profile"].sel(prediction=v).values)) for v in "ab")
    }
    return {
        "name": str(x.attrs["model"]),
        "kind": "untrained",
        "architecture": str(x.attrs["architecture"]),
        "layers": x.sizes["layer"],
        "length": x.sizes["position"],
        "corpus": "random tokens",
        "mixing": float(x["lambda_frobenius"].sum("layer").mean()),
        **shape_numbers(profiles.mean(0)),
        **distances,
    }


def _published(model: numbers.PublishedModel) -> dict[str, Any]:
    """Return the row of a published model: printed distances, and the shape of the one whose curve was published."""
    settings = numbers.config(model.name)
    shape = shape_numbers(numbers.measured_profile()) if model.name == "bloom" else {}
    return {
        "name": model.label,
        "kind": "published",
        "architecture": model.family,
        "layers": len(settings.lambdas()),
        "length": settings.sequence_length,
        "corpus": "fineweb-edu",
        "mixing": float(settings.lambdas().sum()),
        "source": "Herasimchyk et al., table 2" + (" and figure 1" if shape else ""),
        **shape,
        **{v: numbers.printed(2, model.name, v).wasserstein for v in "abc"},
    }


if __name__ == "__main__":
    print(rebuild())

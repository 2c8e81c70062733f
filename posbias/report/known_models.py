"""Where a model stands: the reference models, networks at birth and the published models, in one small table.

The table ships with the package as ``data/standing.csv``. :func:`rebuild` makes it from a project's ``results/`` and
from the authors' numbers: ``python -c "from posbias.report import standing as s; s.rebuild('results')"``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein
from posbias.files import write_whole
from posbias.published import numbers
from posbias.rollout.profiles import mean_position, u_shape
from studies.reference.influence_tables import SMOOTH

TABLE = Path(__file__).parents[1] / "data" / "standing.csv"
"""Where the table ships."""
KINDS = ("reference", "published", "untrained")
"""Trained for this project, measured by the paper's authors, and networks with the weights they were born with."""
SIZES = ("gpt2", "gpt2-medium", "opt-125m", "mpt-125m", "pythia-160m", "qwen2-0.5b", "bloom-560m", "tinyllama-1.1b")
"""Architectures of real size that were measured at birth, on random tokens."""
DIGITS = 5
HEADER = """\
# Models that reports set others beside. Made by posbias.report.known_models.rebuild from results/ and from the
# numbers of Herasimchyk et al. that ship with the package; "source" names where a row's numbers are from.
"""


@dataclass(frozen=True)
class Standing:
    """Hold what is known of one model; None where it is not.

    Parameters
    ----------
    name, kind
        The model, and one of :data:`KINDS`.
    architecture, layers, length, corpus
        Its family and depth, the tokens of each prompt, and what they are cut from.
    mean, first, last
        Of the measured influence: its mean position, and the shares of the first and the last token.
    depth
        Of the trough (:func:`~posbias.rollout.profiles.u_shape`); above 0.05 there is a U.
    mixing
        Σ_t λ_t.
    a, b, c
        W₁ of these rollouts to the measured influence.
    source
        File or table.
    """

    name: str
    kind: str
    architecture: str
    layers: int
    length: int
    corpus: str
    mean: float | None
    first: float | None
    last: float | None
    depth: float | None
    mixing: float | None
    a: float | None
    b: float | None
    c: float | None
    source: str


NUMBERS = ("mean", "first", "last", "depth", "mixing", "a", "b", "c")


def shape_numbers(influence: Float[np.ndarray, "n"]) -> dict[str, float | None]:
    """Return ``mean``, ``first``, ``last`` and ``depth`` of a measured profile.

    Parameters
    ----------
    influence
        Sums to 1; of fewer than :data:`SMOOTH` + 1 positions the depth is not known.

    >>> shape_numbers(np.array([0.5, 0.0, 0.5]))
    {'mean': 0.5, 'first': 0.5, 'last': 0.5, 'depth': None}
    """
    depth = u_shape(influence, smooth=SMOOTH).depth if influence.size > SMOOTH else None
    if depth is not None and not np.isfinite(depth):
        depth = None
    return {
        "mean": mean_position(influence),
        "first": float(influence[0]),
        "last": float(influence[-1]),
        "depth": depth,
    }


@cache
def known_models(path: Path | None = None) -> tuple[Standing, ...]:
    """Read the table.

    Parameters
    ----------
    path
        The one that ships unless given.

    Raises
    ------
    ValueError
        If a row is not as it should be.
    """
    path = TABLE if path is None else path
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    try:
        return tuple(_standing(row) for row in csv.DictReader(lines))
    except (KeyError, TypeError, ValueError) as error:
        raise errors.invalid(str(path), "the table of known models", f"{type(error).__name__}: {error}") from None


def rebuild(results: Path | str, path: Path = TABLE) -> Path:
    """Write the table from a project's results and the published numbers, and return its path.

    Parameters
    ----------
    results
        The folder ``results/`` of the project.
    path
        The file; the one that ships unless given.

    Raises
    ------
    OSError, ValueError
        If a file is missing or not as it should be.
    """
    text = io.StringIO()
    table = csv.DictWriter(text, [field.name for field in fields(Standing)], lineterminator="\n")
    table.writeheader()
    for row in standings(Path(results)):
        cells = vars(row) | {name: _written(getattr(row, name)) for name in NUMBERS}
        table.writerow(cells)
    write_whole(path, HEADER + text.getvalue())
    return path


def standings(results: Path) -> Iterator[Standing]:
    """Yield the rows of the table: reference models and their untrained twins, networks at birth, published models."""
    from posbias.measure.summary import read_summary
    from posbias.netcdf import load

    for file in sorted((results / "models").glob("*.builtin.nc")):
        if ".seed-" not in file.name:
            yield _of_summary(read_summary(file), file)
    for name in SIZES:
        file = results / "untrained_models" / f"{name}.random.nc"
        yield _of_birth(load(file), file)
    for model in numbers.MODELS.values():
        yield _of_published(model)


def _of_summary(x: xr.Dataset, file: Path) -> Standing:
    """Return the row of a summary; of twins the scale of the weights is in the name."""
    p = x["influence"].values.astype(np.float64)
    p = p / p.sum()
    rollouts = {v: normalised_wasserstein(x["rollout"].sel(variant=v).values, p) for v in "abc"}
    name = file.name.split(".")[0]
    return Standing(
        name=name,
        kind="untrained" if "-untrained-" in name else "reference",
        architecture=str(x.attrs["architecture"]),
        layers=x.sizes["layer"],
        length=x.sizes["position"],
        corpus=str(x.attrs["dataset"]),
        mixing=float(x["lambda_frobenius"].sum()),
        source=_source(file),
        **shape_numbers(p),
        **rollouts,
    )


def _of_birth(x: xr.Dataset, file: Path) -> Standing:
    """Return the row of a study of networks at birth: the mean profile over its seeds, and the mean distances."""
    per_seed = x["influence_prompts"].values.astype(np.float64).sum(1)
    per_seed /= per_seed.sum(-1, keepdims=True)
    found: dict[str, float | None] = {}
    for variant in "ab":
        predicted = x["profile"].sel(prediction=variant).values.astype(np.float64)
        pairs = zip(predicted, per_seed, strict=True)
        found[variant] = float(np.mean([normalised_wasserstein(q / q.sum(), p) for q, p in pairs]))
    return Standing(
        name=str(x.attrs["model"]),
        kind="untrained",
        architecture=str(x.attrs["architecture"]),
        layers=x.sizes["layer"],
        length=x.sizes["position"],
        corpus="random tokens",
        mixing=float(x["lambda_frobenius"].sum("layer").mean()),
        c=None,
        source=_source(file),
        **shape_numbers(per_seed.mean(0)),
        **found,
    )


def _of_published(model: numbers.PublishedModel) -> Standing:
    """Return the row of a published model: printed distances, and the curve of the one whose curve was published."""
    settings = numbers.config(model.name)
    shape = dict.fromkeys(("mean", "first", "last", "depth"))
    if model.name == "bloom":
        shape |= shape_numbers(numbers.measured_profile())
    printed = {v: numbers.printed(2, model.name, v).wasserstein for v in "abc"}
    return Standing(
        name=model.label,
        kind="published",
        architecture=model.family,
        layers=len(settings.lambdas()),
        length=settings.sequence_length,
        corpus="fineweb-edu",
        mixing=float(settings.lambdas().sum()),
        source="Herasimchyk et al., table 2" + (" and figure 1" if shape["mean"] is not None else ""),
        **shape,
        **printed,
    )


def _source(file: Path) -> str:
    return f"results/{file.parent.name}/{file.name}"


def _written(value: float | None) -> str:
    return "" if value is None else f"{value:.{DIGITS}f}"


def _standing(row: dict[str, str]) -> Standing:
    """Return a row of the file; empty cells are None."""
    if row["kind"] not in KINDS:
        raise errors.invalid("kind", f"one of {', '.join(KINDS)}", row["kind"])
    found = {name: float(row[name]) if row[name] else None for name in NUMBERS}
    return Standing(**{**row, **found, "layers": int(row["layers"]), "length": int(row["length"])})  # type: ignore[arg-type]

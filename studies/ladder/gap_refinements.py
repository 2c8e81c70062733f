"""Refinements of the rollout, each rolled out and set against measured influence, and choices among them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.scores import Gain, paired_gain
from posbias.measure.prompt_units import known_units
from posbias.report.scoring import Kept, unit, with_decisions

PLAIN = {"kernel": "uniform", "mixing": "norms", "step": "kept", "join": "sizes"}
"""The rollout of measured kernels, as :func:`~studies.ladder.gap.measure_refinements` names it."""

ANGLES = {"join": "angles"}
FREE = {"kernel": "content-free"}

WAYS = {
    "rollout": {},
    "λ at every position": {"mixing": "positions"},
    "λ along g": {"mixing": "direction"},
    "λ of the gradient": {"mixing": "gradient"},
    "λ of values": {"mixing": "values"},
    "gain of the MLPs": {"step": "gain"},
    "heads by value norm": {"kernel": "values"},
    "heads by output norm": {"kernel": "projected"},
    "heads as vectors": {"kernel": "vectors"},
    "right angles": ANGLES,
    "right angles, λ of the gradient": ANGLES | {"mixing": "gradient"},
    "right angles, λ of values": ANGLES | {"mixing": "values"},
    "right angles, heads as vectors": ANGLES | {"kernel": "vectors"},
    "right angles, all three": ANGLES | {"kernel": "vectors", "mixing": "values", "step": "gain"},
    "(b)": FREE,
    "(b), right angles": FREE | ANGLES,
    "(b), right angles, λ of values": FREE | ANGLES | {"mixing": "values"},
}
"""Name of a refinement → how it differs from :data:`PLAIN`."""

OTHERS = ("each prompt's own kernels", "squares over paths")
"""Refinements beside those: rollouts prompt by prompt, and paths of one hop count added in squares."""


def refined_profiles(x: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the profile that each refinement of :data:`WAYS` and :data:`OTHERS` makes for one model.

    Parameters
    ----------
    x
        Results of :func:`~studies.ladder.gap.measure_refinements`.
    """
    found = {way: unit(x["prediction"].sel(PLAIN | change).values) for way, change in WAYS.items()}
    others = x["own"].values, x["quadrature"].sel(kernel="uniform").values
    return found | dict(zip(OTHERS, map(unit, others), strict=True))


def refinement_table(gap: Mapping[str, xr.Dataset], kept: Kept, *, resamples: int = 1000) -> pd.DataFrame:
    """Return ``model``, ``way``, ``W1``, ``gain`` over the plain rollout with its interval, and ``decided``.

    Refinements of (b) are held against (b), the others against the rollout of measured kernels. The interval is over
    the documents of the kept measurement, the same ones for both distances.

    Parameters
    ----------
    gap
        Model → results of :func:`~studies.ladder.gap.measure_refinements`.
    kept
        Summaries that hold MODEL.builtin.
    resamples
        Of the bootstrap over documents.
    """
    rows = []
    for name, x in gap.items():
        measured, found = kept[f"{name}.builtin"], refined_profiles(x)
        prompts, p, units = measured["influence_prompts"].values, measured["influence"].values, known_units(measured)
        for way, q in found.items():
            base = found["(b)" if way.startswith("(b)") else "rollout"]
            gain = paired_gain(prompts, base, q, units=units, resamples=resamples)
            rows.append((name, way, normalised_wasserstein(q, p), *gain))
    return with_decisions(pd.DataFrame(rows, columns=["model", "way", "W1", *Gain._fields]), ["way"])


def way_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each way the mean W₁, and in how many models it is better or worse by ``decided``.

    >>> rows = [("m", "right angles", 0.1, 1), ("l", "right angles", 0.3, 0)]
    >>> table = pd.DataFrame(rows, columns=["model", "way", "W1", "decided"])
    >>> way_summary(table).to_dict("list")
    {'way': ['right angles'], 'W1': [0.2], 'better': [1], 'worse': [0]}
    """
    counted = table.assign(better=table["decided"] > 0, worse=table["decided"] < 0)
    return counted.groupby("way", sort=False, as_index=False).agg({"W1": "mean", "better": "sum", "worse": "sum"})


def _forward(way: Mapping[str, str]) -> bool:
    """Say whether a combination can be read in a forward pass alone."""
    return way["mixing"] in ("norms", "positions") and way["step"] == "kept"


CHOICES: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "any measured kernel": lambda way: way["kernel"] != "content-free",
    "forward pass alone": lambda way: way["kernel"] != "content-free" and _forward(way),
    "content-free, forward pass": lambda way: way["kernel"] == "content-free" and _forward(way),
}
"""What a choice among all combinations may use."""


def combinations(x: xr.Dataset) -> list[dict[str, str]]:
    """Return every combination of kernel, mixing, step and join that was rolled out."""
    return [dict(zip(PLAIN, way, strict=True)) for way in itertools.product(*(x[dim].values.tolist() for dim in PLAIN))]


def held_out_choices(gap: Mapping[str, xr.Dataset], kept: Kept) -> pd.DataFrame:
    """Return the combination with the lowest mean W₁ on all other models, judged on the one that was left out.

    Columns are ``model`` (left out), ``choice`` (one of :data:`CHOICES`), ``way`` and ``W1``.

    Parameters
    ----------
    gap, kept
        As for :func:`refinement_table`; at least two models.
    """
    ways = combinations(next(iter(gap.values())))
    distances = {name: _distances(x, kept[f"{name}.builtin"]["influence"].values, ways) for name, x in gap.items()}
    rows = []
    for choice, allowed in CHOICES.items():
        here = [k for k, way in enumerate(ways) if allowed(way)]
        for name, own in distances.items():
            others = np.mean([found for other, found in distances.items() if other != name], axis=0)
            best = min(here, key=others.__getitem__)
            rows.append((name, choice, way_name(ways[best]), own[best]))
    return pd.DataFrame(rows, columns=["model", "choice", "way", "W1"])


def _distances(x: xr.Dataset, p: np.ndarray, ways: Sequence[Mapping[str, str]]) -> np.ndarray:
    return np.array([normalised_wasserstein(unit(x["prediction"].sel(way).values), p) for way in ways])


def way_name(way: Mapping[str, str]) -> str:
    """Return in what a combination differs from the plain rollout, in words.

    >>> way_name(PLAIN | {"join": "angles", "mixing": "values"}), way_name(PLAIN)
    ('values, angles', 'plain')
    """
    return ", ".join(way[dim] for dim, plain in PLAIN.items() if way[dim] != plain) or "plain"

"""Checks of the estimator itself: on synthetic logits of known leakage, and of every kept figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from posbias.comparison.resampling import interval
from studies.absolute import leakage as theory
from studies.absolute.checks import LATER
from studies.absolute.evidence import Evidence
from studies.absolute.tables import LEVEL, Estimate, significant
from studies.checks import Check

SIZE, PROMPTS = 48, 16
"""Tokens and prompts of the synthetic logits."""
SMALL = theory.position_basis(theory.sample_pairs(SIZE, 24, first_key=0))
A, B = SMALL.pairs
KNOWN: dict[str, Float[np.ndarray, "m"]] = {
    "none": 0.0 * A,
    "denominators": -np.log(A + 1.0),
    "two functions": 0.5 * np.sqrt(A) - 3 / (1 + B),
}
"""What leaks in the synthetic logits."""


def content(seed: Any, each: int, heads: int) -> Float[np.ndarray, "N H m"]:
    """Return random keys, noise, and a function of the offset, for ``each`` prompts of a document."""
    rng = np.random.default_rng(seed)
    keys = 2 * rng.normal(size=(PROMPTS // each, heads, SIZE))
    keys = np.repeat(keys, each, axis=0)[..., B]
    noise = rng.normal(size=(*keys.shape[:2], A.size))
    return np.asarray(keys + noise + np.cos(A - B))


def what_is_found(
    name: str, values: np.ndarray, added: np.ndarray, basis: theory.PositionBasis, plain: bool
) -> dict[str, Any]:
    """Return the leakage of known functions of position, as the estimator finds it."""
    found = theory.leakage(basis.both, values)
    p, draws = found.p_values(), found.resampled_variance(400)
    mean = found.pooled(0).resampled_variance(400) / found.variance.size
    scale: Any = theory.deviation_scale(found.gram) if plain else 1.0
    low, high = found.variance + interval((draws - found.variance) / scale)
    true = float(np.square(basis.both.T @ added).sum() / added.size)
    return {
        "leakage": name,
        "true": true,
        "estimate": Estimate(float(found.variance.mean()), mean),
        "raw": float((p <= LEVEL).mean()),
        "controlled": significant(p),
        "covered": float(((low <= true) & (true <= high)).mean()),
    }


def estimated(
    seed: int, basis: theory.PositionBasis = SMALL, truth: float = 1.0, each: int = 1, plain: bool = False
) -> pd.DataFrame:
    """Return what is found on synthetic prompts, a row for each of :data:`KNOWN`.

    ``truth`` multiplies the true variances, ``each`` prompts share a document that are taken as independent, and
    ``plain`` intervals have no correction.
    """
    rows = []
    for k, (name, added) in enumerate(KNOWN.items()):
        heads = 400 if name == "none" else 100
        values = content((seed, k), each, heads) + added
        rows.append(what_is_found(name, values, np.sqrt(truth) * added, basis, plain))
    return pd.DataFrame(rows)


def estimator_sound(found: pd.DataFrame) -> bool:
    """Say whether known leakage is found: true variances, the null, and intervals at zero."""
    error = np.array([x.draws.std() for x in found["estimate"]])
    value = np.array([x.value for x in found["estimate"]])
    null = found[found["true"] == 0]
    right = np.abs(value - found["true"]) <= 4 * error
    inside = null["covered"].between(0.9, 0.985)
    return bool(right.all() and (null["raw"] <= 0.1).all() and inside.all())


def linear_baseline(pairs: Int[np.ndarray, "2 m"]) -> theory.PositionBasis:
    """Return a basis beyond a line in the offset, not beyond a parameter for each."""
    i, j = pairs
    line = np.linalg.qr(np.stack([np.ones(i.size), i - j], axis=1))[0]
    both = [i[:, None] == np.unique(i), j[:, None] == np.unique(j)]
    positions = np.hstack(both).astype(float)
    u, s, _ = np.linalg.svd(positions - line @ (line.T @ positions), full_matrices=False)
    return theory.PositionBasis(pairs, u[:, s > 1e-9 * s[0]], u[:, :0])


def estimator_check() -> Check:
    """Return the check that the estimator finds what is known."""

    def sound(**broken: Any) -> list[bool]:
        return [estimator_sound(estimated(seed, **broken)) for seed in range(1, 9)]

    found = estimated(0)
    null, covers = found.set_index("leakage").loc["none"], found.query("true > 0")["covered"]
    said = ", ".join(f"{x.estimate.value:.3f} for {x.true:.3f}" for x in found.itertuples())  # type: ignore[union-attr]
    return Check(
        "AP-3", "", "The estimator finds what is known.", estimator_sound(found),
        f"it estimates {said}; where nothing leaks {null.raw:.0%} of heads have p ≤ 0.05 and "
        f"{null.covered:.1%} of intervals contain zero; elsewhere {covers.min():.0%} or "
        "more contain the truth",
        "an estimate is four standard errors off, the null rejects in more than "
        "10% of heads, or not 90 to 98.5% of intervals contain zero",
        {
            "a baseline linear in the offset": sound(basis=linear_baseline(SMALL.pairs)),
            "two prompts a document taken as independent": sound(each=2),
            "plain intervals, √3 too wide at zero": sound(plain=True),
            "true variances 10% larger": sound(truth=1.1),
        },
        "the estimator does not find what is known", LATER,
    )  # fmt: skip


def every_figure_has_an_interval(data: xr.Dataset) -> bool:
    """Say whether each figure has an interval that contains it and a p-value of the flips."""
    places = ("layer", "head")
    share = data["variance"].sum(places) / data["spread"].sum(places)
    layers = data["variance"].sum("head")
    for value, draws in ((share, data["resampled_share"]), (layers, data["resampled"])):
        if not np.isfinite(draws.values).all():
            return False
        low, high = (draws.quantile(x, "resample") for x in (0.025, 0.975))
        slack = 1e-5 * abs(value)  # draws are kept in 32 bits
        inside = (low < high) & (low - slack <= value) & (value <= high + slack)
        if not bool(inside.all()):
            return False
    steps = data["p_value"].values * (int(data.attrs["permutations"]) + 1)
    whole = np.abs(steps - np.round(steps)) < 1e-3  # kept in 32 bits
    return bool(np.isfinite(steps).all() and whole.all() and (steps >= 1 - 1e-3).all())


def without_intervals(data: xr.Dataset, conditions: int = 5) -> dict[str, list[bool]]:
    """Return whether copies pass in which one condition's figures have no interval of their own."""
    where = np.linspace(0, data.sizes["condition"] - 2, conditions).astype(int)
    kinds: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "resamples lost": lambda here, other: np.nan * here,
        "resamples all alike": lambda here, other: here.mean(1, keepdims=True) + 0 * here,
        "the next condition's resamples": lambda here, other: other,
    }
    found: dict[str, list[bool]] = {kind: [] for kind in kinds}
    for k in where:
        for kind, change in kinds.items():
            wrong = data.copy(deep=True)
            for name in ("resampled", "resampled_share"):
                here, other = wrong[name].values[k], data[name].values[k + 1]
                wrong[name].values[k] = change(here, other)
            found[kind].append(every_figure_has_an_interval(wrong))
    return found


def strata_are_equal(pairs: Int[np.ndarray, "2 m"], per_stratum: int, n: int) -> bool:
    """Say whether each octave of queries and offsets has ``per_stratum`` pairs, or all it has."""
    first = int(pairs[1].min())

    def counted(i: np.ndarray, j: np.ndarray) -> dict[tuple[int, int], int]:
        octaves = np.floor(np.log2(np.stack([i + 1, i - j + 1]))).astype(int)
        names, counts = np.unique(octaves, axis=1, return_counts=True)
        pairs_of = zip(names.T.tolist(), counts.tolist(), strict=True)
        return {(a, b): count for (a, b), count in pairs_of}

    i, j = np.tril_indices(n)
    there = counted(i[j >= first], j[j >= first])
    return counted(*pairs) == {name: min(per_stratum, count) for name, count in there.items()}


def statistics_check(seen: Evidence) -> Check:
    """Return the check that every figure has its interval, and that tests reject no more than they should."""
    more, tests = seen.results["components"], seen.kept.tests()
    null = estimated(0).set_index("leakage").loc["none"]
    drawn = theory.sample_pairs(256, int(more.attrs["per_stratum"]), first_key=0)
    anywhere = np.stack(np.tril_indices(256))
    anywhere = anywhere[:, np.random.default_rng(4).permutation(anywhere.shape[1])]
    equal = strata_are_equal(anywhere[:, : drawn.shape[1]], 48, 256)
    sound = every_figure_has_an_interval(more) and strata_are_equal(drawn, 48, 256)
    return Check(
        "AP-stat", "", "Tests reject what is not there no more often than they should.",
        bool(null["raw"] <= 0.1 and sound),
        "pairs are stratified, and 999 sign flips and resamples of documents are used "
        f"throughout; {tests['controlled']} of {tests['tests']} tests are significant "
        f"after control, {tests['raw']} before",
        "the null rejects more than one head in ten of content, a figure has no "
        "interval that contains it or no p-value, or strata differ in size",
        without_intervals(more) | {"pairs drawn anywhere": [equal]},
        "a figure has no interval, or the null rejects too often", {},
    )  # fmt: skip

"""Scores of predicted profiles against the influence of many models, in tidy tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from posbias.comparison.distances import normalised_wasserstein, unit
from posbias.comparison.fits import power_fit, recency_fit
from posbias.comparison.multiplicity import decide
from posbias.comparison.resampling import resampled_profiles
from posbias.measure.corpus import known_units
from posbias.measured_kernels import position_kernels
from posbias.predict import find
from posbias.report.scoring import gain_rows, score_rows
from posbias.rollout.clock import poisson_distribution
from posbias.rollout.influence import influence_history
from posbias.rollout.profiles import mean_position
from studies.reference.trained import training_record

NEW_NAMES = {"aligned": "head-gains-added", "uniform": "even", "power": "power-law"}
"""Names in these tables that are neither a predictor's nor former ones."""
OTHERS = {"first": "first token", "recency": "exponential (one fitted number)", "clock": "clock"}
OTHERS |= {"untrained-default": "untrained, small weights", "untrained-unit": "untrained, large weights"}
LABELS = {
    name: OTHERS.get(name) or find(NEW_NAMES.get(name, name)).label
    for name in ("a", "b", "c", "kernels", "own", "untrained", "aligned", "uniform", "first", "last", "recency")
    + ("power", "clock", "contributions", "untrained-default", "untrained-unit")
}
"""Every prediction: its name in the tables, and how a page writes it."""

OF_MEANS = ("a", "b", "c", "kernels")
"""Rollouts of kernels that are the same for all prompts, as summaries name them."""
TWINS = ("default", "unit")
"""Initial scales of the untrained networks."""

Kept = Mapping[str, xr.Dataset]
"""Summaries by stem, MODEL.CORPUS."""
Others = Mapping[str, Mapping[str, np.ndarray]]
"""Model → further predictions by name, made of other files."""


def baselines(influence: Float[np.ndarray, "n"]) -> dict[str, Float[np.ndarray, "n"]]:
    """Return by name the predictions that know nothing of a model.

    ``recency``, an exponential, and ``power``, a power law, have one number that is fitted to the measured profile.

    >>> {name: p.round(3).tolist() for name, p in baselines(np.array([0.5, 0.5])).items()}
    {'uniform': [0.5, 0.5], 'first': [1.0, 0.0], 'last': [0.0, 1.0], 'recency': [0.5, 0.5], 'power': [0.5, 0.5]}
    """
    n = influence.size
    blind = {"uniform": np.full(n, 1 / n), "first": np.eye(n)[0], "last": np.eye(n)[-1]}
    return blind | {"recency": recency_fit(influence), "power": power_fit(influence)}


def measured_clock(measurement: xr.Dataset) -> Float[np.ndarray, "n"]:
    """Return the clock's profile: the first layer's content-free kernel run for the time τ = Σ_t λ_t."""
    kernels, tau = position_kernels(measurement), float(measurement["lambda_frobenius"].sum())
    first_layer = kernels[0] if isinstance(kernels, np.ndarray) else kernels.dense(0, int(measurement.attrs["length"]))
    hops = poisson_distribution(tau)
    return hops @ influence_history(first_layer, np.ones(hops.size - 1))


def predictions(measurement: xr.Dataset, twins: Mapping[str, xr.Dataset] | None = None) -> dict[str, np.ndarray]:
    """Return the profiles that are set against the influence of a summary, by the names of :data:`LABELS`.

    ``twins`` are summaries of the same architecture with random weights by initial scale; those of another length are
    left out.
    """
    rollouts = measurement["rollout"]
    known = [variant for variant in (*OF_MEANS, "own", "untrained") if variant in rollouts["variant"]]
    found = {variant: unit(rollouts.sel(variant=variant).values) for variant in known}
    found |= baselines(measurement["influence"].values) | {"clock": measured_clock(measurement)}
    for scale, twin in (twins or {}).items():
        if twin.sizes["position"] == measurement.sizes["position"]:
            found[f"untrained-{scale}"] = unit(twin["influence"].values)
    return found


def twins_of(kept: Kept, model: str, corpus: str = "builtin") -> dict[str, xr.Dataset]:
    """Return the summaries of a model's architecture untrained, by initial scale."""
    stems = {scale: f"{model}-untrained-{scale}.{corpus}" for scale in TWINS}
    return {scale: kept[stem] for scale, stem in stems.items() if stem in kept}


def scored(
    measurement: xr.Dataset,
    twins: Mapping[str, xr.Dataset] | None = None,
    *,
    others: Mapping[str, np.ndarray] | None = None,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Return the score of every prediction, and of ``others`` of the same length, for one measurement, a row each."""
    influence = measurement["influence_prompts"].values
    n = influence.shape[1]
    further = {name: profile for name, profile in (others or {}).items() if profile.size == n}
    profiles = predictions(measurement, twins) | further
    return score_rows(influence, profiles, resampled_profiles(influence, resamples, units=known_units(measurement)))


def gain_table(
    kept: Kept,
    models: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    *,
    corpus: str = "builtin",
    others: Others | None = None,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Return how much nearer the second prediction of each pair is than the first, for every model."""
    rows = []
    for model in models:
        x = kept[f"{model}.{corpus}"]
        profiles = predictions(x, twins_of(kept, model)) | dict((others or {}).get(model, {}))
        influence = x["influence_prompts"].values
        drawn = resampled_profiles(influence, resamples, units=known_units(x))
        own = gain_rows(influence, profiles, pairs, drawn)
        rows.append(own.assign(model=model)[["model", *own.columns]])
    return with_decisions(pd.concat(rows, ignore_index=True), ["before", "after"])


def with_decisions(table: pd.DataFrame, family: Sequence[str]) -> pd.DataFrame:
    """Add ``decided``, the sign of each gain that stands in its family of comparisons, 0 where it is open.

    Rows whose columns ``family`` are equal make a family, such as all models with one pair of predictions.

    >>> table = pd.DataFrame({"way": ["a", "a"], "gain": [0.1, -0.2], "p_value": [0.04, 0.01]})
    >>> with_decisions(table, ["way"])["decided"].tolist()
    [1, -1]
    """
    signs = pd.Series(0, index=table.index)
    for _, own in table.groupby(list(family), sort=False):
        signs[own.index] = decide(own["gain"].to_numpy(), own["p_value"].to_numpy())
    return table.assign(decided=signs)


def rearranged(measurement: xr.Dataset, order: Int[np.ndarray, "n"]) -> xr.Dataset:
    """Return a measurement whose measured influence has its positions permuted; what predicts it is unchanged."""
    moved = {name: measurement[name] for name in ("influence", "influence_prompts")}
    return measurement.assign({name: (x.dims, x.values[..., order]) for name, x in moved.items()})


def rollout_distances(kept: Kept) -> pd.DataFrame:
    """Return W₁ of the rollouts of every summary: ``model``, ``corpus``, ``prediction``, ``W1`` and ``difference``.

    ``difference`` is the mean position of the rollout less that of the measured influence. Untrained twins are models
    of their own; a stage of training stands where others have a corpus, as in the files' names.
    """
    rows = [row for stem in kept for row in _distances(stem, kept[stem])]
    return pd.DataFrame(rows, columns=["model", "corpus", "prediction", "W1", "difference"])


def _distances(stem: str, x: xr.Dataset) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield the rows of one summary."""
    model, corpus = stem.split(".", 1)
    p = unit(x["influence"].values)
    for variant in OF_MEANS:
        q = unit(x["rollout"].sel(variant=variant).values)
        yield model, corpus, variant, normalised_wasserstein(q, p), mean_position(q) - mean_position(p)


def training_distances(stages: Kept, kept: Kept, *, without: Sequence[str] = ()) -> pd.DataFrame:
    """Return W₁ of rollout (b) through training: ``model``, ``step`` and ``W1``, in the order of steps."""
    found = rollout_distances(stages).query("prediction == 'b' and model not in @without")
    steps = found["corpus"].str.removeprefix("step-").astype(int)
    rows = [found.assign(step=steps)]
    for model in found["model"].unique():
        done = rollout_distances({f"{model}.builtin": kept[f"{model}.builtin"]}).query("prediction == 'b'")
        rows.append(done.assign(step=int(training_record(model)["steps"])))
    return pd.concat(rows).sort_values(["model", "step"], ignore_index=True)[["model", "step", "W1"]]

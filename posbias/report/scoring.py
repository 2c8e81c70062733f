"""Scores of predicted profiles against measured influence, for many models, in tidy tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from posbias import errors, shipped
from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.fits import recency_fit
from posbias.comparison.multiplicity import decided
from posbias.comparison.scores import Gain, paired_gain, score
from posbias.measure.prompt_units import known_units
from posbias.measure.rollouts import OF_MEANS, measured_rollout
from posbias.rollout.clock import clock_profile
from posbias.rollout.profiles import mean_position

LABELS = {
    "a": "(a) attention only",
    "b": "(b) with residual",
    "c": "(c) with content too",
    "kernels": "measured kernels",
    "own": "each prompt's own kernels",
    "birth": "law at birth",
    "aligned": "aligned sum of the same sizes",
    "uniform": "uniform",
    "first": "first token",
    "last": "last token",
    "recency": "fitted exponential",
    "clock": "clock",
    "untrained-default": "untrained twin, small weights",
    "untrained-unit": "untrained twin, unit scale",
}
"""Every prediction: its name in the tables, and how a page writes it."""

TWINS = ("default", "unit")
"""Initial scales of the untrained twins."""

Kept = Mapping[str, xr.Dataset]
"""Summaries by stem, MODEL.CORPUS, as :func:`~posbias.measure.summary.read_summaries` returns them."""


def predictions(measurement: xr.Dataset, twins: Mapping[str, xr.Dataset] | None = None) -> dict[str, np.ndarray]:
    """Return the profiles that are set against the influence of a measurement, by the names of :data:`LABELS`.

    Parameters
    ----------
    measurement
        A summary.
    twins
        Initial scale → summary of the same architecture with random weights; those of another length are left out.

    Raises
    ------
    ValueError
        If the measurement holds no rollouts.
    """
    if "rollout" not in measurement:
        raise errors.invalid("measurement", "a summary, with rollouts", "a measurement without them")
    n = measurement.sizes["position"]
    found = {variant: measurement["rollout"].sel(variant=variant).values for variant in OF_MEANS}
    found |= baselines(measurement["influence"].values) | {"clock": measured_clock(measurement)}
    for variant in ("own", "birth"):
        if variant in measurement["rollout"]["variant"]:
            found[variant] = measurement["rollout"].sel(variant=variant).values
    for scale, twin in (twins or {}).items():
        if twin.sizes["position"] == n:
            found[f"untrained-{scale}"] = twin["influence"].values
    return found


def baselines(influence: Float[np.ndarray, "n"]) -> dict[str, Float[np.ndarray, "n"]]:
    """Return the predictions that know nothing of a model, by the names of :data:`LABELS`; one is fitted to the answer.

    Parameters
    ----------
    influence
        The measured profile.

    >>> {name: p.round(3).tolist() for name, p in baselines(np.array([0.5, 0.5])).items()}
    {'uniform': [0.5, 0.5], 'first': [1.0, 0.0], 'last': [0.0, 1.0], 'recency': [0.5, 0.5]}
    """
    n = influence.size
    blind = {"uniform": np.full(n, 1 / n), "first": np.eye(n)[0], "last": np.eye(n)[-1]}
    return blind | {"recency": recency_fit(influence)}


def measured_clock(measurement: xr.Dataset) -> Float[np.ndarray, "n"]:
    """Return the clock's profile: the first layer's content-free kernel run for the time τ = Σ_t λ_t.

    Parameters
    ----------
    measurement
        A measurement or a summary.
    """
    rollout, tau = measured_rollout(measurement, "b"), float(measurement["lambda_frobenius"].sum())
    kernels = rollout.kernels
    first_layer = kernels[0] if isinstance(kernels, np.ndarray) else kernels.dense(0, rollout.n)
    return clock_profile(first_layer, tau)


def twins_of(kept: Kept, model: str, corpus: str = "builtin") -> dict[str, xr.Dataset]:
    """Return the summaries of a model's untrained twins by initial scale."""
    stems = {scale: f"{model}-untrained-{scale}.{corpus}" for scale in TWINS}
    return {scale: kept[stem] for scale, stem in stems.items() if stem in kept}


Others = Mapping[str, Mapping[str, np.ndarray]]
"""Model → further predictions by name, made of other files."""


def score_table(
    kept: Kept,
    models: Sequence[str],
    *,
    corpus: str = "builtin",
    others: Others | None = None,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Return the score of every prediction for every model, a row each.

    Columns are ``model``, ``corpus``, ``prediction``, ``W1``, ``low``, ``high``, ``first_aside``, ``spearman`` and
    ``difference``, as :class:`~posbias.comparison.scores.Score` explains them.

    Parameters
    ----------
    kept
        Summaries; those of models without the corpus are left out.
    models, corpus
        Which of them.
    others
        Further predictions, such as :func:`~studies.ladder.between_tables.limit_profiles`; those of another
        length are left out.
    resamples
        Of the bootstrap over documents (:func:`~posbias.measure.prompt_units.known_units`).
    """
    rows: list[dict[str, object]] = []
    for model in models:
        if (stem := f"{model}.{corpus}") in kept:
            further = (others or {}).get(model)
            found = scored(kept[stem], twins_of(kept, model), others=further, resamples=resamples)
            rows += found.assign(model=model, corpus=corpus).to_dict("records")
    return pd.DataFrame(rows)[["model", "corpus", *SCORED]]


SCORED = ("prediction", "W1", "low", "high", "first_aside", "spearman", "difference")
"""Columns of :func:`scored`."""


def scored(
    measurement: xr.Dataset,
    twins: Mapping[str, xr.Dataset] | None = None,
    *,
    others: Mapping[str, np.ndarray] | None = None,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Return the score of every prediction for one measurement, a row each, with the columns :data:`SCORED`.

    Parameters
    ----------
    measurement, twins
        As for :func:`predictions`.
    others
        Further predictions by name; those of another length are left out.
    resamples
        Of the bootstrap over documents (:func:`~posbias.measure.prompt_units.known_units`).
    """
    influence = measurement["influence_prompts"].values
    n = influence.shape[1]
    further = {name: profile for name, profile in (others or {}).items() if profile.size == n}
    profiles = predictions(measurement, twins) | further
    return score_rows(influence, profiles, units=known_units(measurement), resamples=resamples)


def score_rows(
    influence: Float[np.ndarray, "N n"], profiles: Mapping[str, np.ndarray], **bootstrap: Any
) -> pd.DataFrame:
    """Return the score of each profile against one measurement, a row each, with the columns :data:`SCORED`.

    Parameters
    ----------
    influence
        Each prompt's influence at each position.
    profiles
        Name → prediction.
    bootstrap
        Keywords of :func:`~posbias.comparison.scores.score`.
    """
    rows = []
    for name, profile in profiles.items():
        found = asdict(score(influence, profile, **bootstrap))
        rows.append({"prediction": name, "W1": found.pop("wasserstein"), **found})
    return pd.DataFrame(rows, columns=list(SCORED))


def gain_table(
    kept: Kept,
    models: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    *,
    corpus: str = "builtin",
    others: Others | None = None,
    resamples: int = 1000,
) -> pd.DataFrame:
    """Return how much nearer the second prediction of each pair is than the first, for every model.

    Columns are ``model``, ``before``, ``after``, ``gain`` in W₁, its 95 % interval over documents, ``low`` to ``high``,
    with both distances taken on the same resampled documents, the p value of no gain, and its sign where it stands
    among those of all models (:func:`~posbias.comparison.multiplicity.decided`), ``decided``.

    Parameters
    ----------
    kept, models, corpus, others, resamples
        As for :func:`score_table`.
    pairs
        Names of two predictions each.
    """
    rows = []
    for model in models:
        x = kept[f"{model}.{corpus}"]
        profiles, units = predictions(x, twins_of(kept, model)) | dict((others or {}).get(model, {})), known_units(x)
        own = gain_rows(x["influence_prompts"].values, profiles, pairs, units=units, resamples=resamples)
        rows.append(own.assign(model=model)[["model", *own.columns]])
    return with_decisions(pd.concat(rows, ignore_index=True), ["before", "after"])


def gain_rows(
    influence: Float[np.ndarray, "N n"],
    profiles: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]],
    **bootstrap: Any,
) -> pd.DataFrame:
    """Return how much nearer the second profile of each pair is to one measurement than the first, a row each.

    Columns are ``before``, ``after`` and the fields of :class:`~posbias.comparison.scores.Gain`.

    Parameters
    ----------
    influence, profiles
        As for :func:`score_rows`.
    pairs
        Two names each.
    bootstrap
        Keywords of :func:`~posbias.comparison.scores.paired_gain`.
    """
    rows = [(a, b, *paired_gain(influence, profiles[a], profiles[b], **bootstrap)) for a, b in pairs]
    return pd.DataFrame(rows, columns=["before", "after", *Gain._fields])


def with_decisions(table: pd.DataFrame, family: Sequence[str]) -> pd.DataFrame:
    """Add ``decided``, the sign of each gain that stands in its family of comparisons, 0 where it is open.

    Parameters
    ----------
    table
        With the columns ``gain`` and ``p_value``.
    family
        Columns whose equal values make a family, such as all models with one pair of predictions.

    >>> table = pd.DataFrame({"way": ["a", "a"], "gain": [0.1, -0.2], "p_value": [0.04, 0.01]})
    >>> with_decisions(table, ["way"])["decided"].tolist()
    [1, -1]
    """
    signs = pd.Series(0, index=table.index)
    for _, own in table.groupby(list(family), sort=False):
        signs[own.index] = decided(own["gain"].to_numpy(), own["p_value"].to_numpy())
    return table.assign(decided=signs)


def rearranged(measurement: xr.Dataset, order: Int[np.ndarray, "n"]) -> xr.Dataset:
    """Return a measurement whose measured influence has its positions in another order; what predicts it is unchanged.

    Parameters
    ----------
    measurement
        A summary.
    order
        A permutation of the positions, such as the reversed one: what a check of a prediction should notice.

    Raises
    ------
    ValueError
        If it is none.
    """
    n = measurement.sizes["position"]
    if not np.array_equal(np.sort(order), np.arange(n)):
        raise errors.invalid("order", f"a permutation of {n} positions", order)
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
        q = x["rollout"].sel(variant=variant).values
        yield model, corpus, variant, normalised_wasserstein(q, p), mean_position(q) - mean_position(p)


def last_token_distances(kept: Kept) -> pd.DataFrame:
    """Return W₁ of all influence on the last token from every summary's measurement: ``model``, ``corpus``, ``W1``.

    A point mass on the last token lies after every profile, so its distance is one less the profile's mean position.
    """
    rows = [(*stem.split(".", 1), 1 - mean_position(unit(x["influence"].values))) for stem, x in kept.items()]
    return pd.DataFrame(rows, columns=["model", "corpus", "W1"])


def training_distances(stages: Kept, kept: Kept, *, without: Sequence[str] = ()) -> pd.DataFrame:
    """Return W₁ of rollout (b) through training: ``model``, ``step`` and ``W1``, in the order of steps.

    Parameters
    ----------
    stages
        Summaries of unfinished models, MODEL.step-NNNNNN.
    kept
        Summaries of the finished ones, on the built-in corpus.
    without
        Models that are left out.
    """
    found = rollout_distances(stages).query("prediction == 'b' and model not in @without")
    steps = found["corpus"].str.removeprefix("step-").astype(int)
    rows = [found.assign(step=steps)]
    for model in found["model"].unique():
        done = rollout_distances({f"{model}.builtin": kept[f"{model}.builtin"]}).query("prediction == 'b'")
        rows.append(done.assign(step=int(training_record(model)["steps"])))
    return pd.concat(rows).sort_values(["model", "step"], ignore_index=True)[["model", "step", "W1"]]


def training_record(model: str) -> dict[str, Any]:
    """Return what is recorded of the training of a reference model, such as ``T``, ``parameters`` and ``steps``.

    Raises
    ------
    ValueError
        If there is no reference model of that name.

    >>> training_record("bloom-8")["T"]
    8
    """
    if model not in shipped.reference_names():
        raise errors.invalid("model", f"one of {', '.join(shipped.reference_names())}", model)
    found: dict[str, Any] = json.loads((shipped.FOLDER / model / "training.json").read_text(encoding="utf-8"))
    return found


def unit(p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return non-negative numbers divided by their sums along the last axis, in 64 bits.

    >>> unit(np.array([1, 3], dtype=np.float32)).tolist()
    [0.25, 0.75]
    """
    p = np.asarray(p, dtype=np.float64)
    return p / p.sum(-1, keepdims=True)

"""A measured file beside what predicts it: baselines, the clock, and rows of scores and of paired gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.fits import power_fit, recency_fit
from posbias.comparison.samples import Sample
from posbias.comparison.scores import Gain, paired_gain, score
from posbias.measure.corpus import prompt_units
from posbias.measure.rollouts import measured_rollout
from posbias.rollout.clock import clock_profile

SCORED = ("prediction", "W1", "low", "high", "first_aside", "spearman", "difference")
"""Columns of :func:`score_rows`."""


def sample_of(measured: xr.Dataset) -> Sample:
    """Return the sample of a measurement with ``influence_prompts``."""
    return Sample(measured["influence_prompts"].values.astype(np.float64), prompt_units(measured))


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
    rollout, tau = measured_rollout(measurement, "b"), float(measurement["lambda_frobenius"].sum())
    kernels = rollout.kernels
    first_layer = kernels[0] if isinstance(kernels, np.ndarray) else kernels.dense(0, rollout.n)
    return clock_profile(first_layer, tau)


def score_rows(
    influence: Float[np.ndarray, "N n"], profiles: Mapping[str, np.ndarray], **bootstrap: Any
) -> pd.DataFrame:
    """Return the :func:`~posbias.comparison.scores.score` of each profile, a row each with columns :data:`SCORED`."""
    rows = []
    for name, profile in profiles.items():
        found = asdict(score(influence, profile, **bootstrap))
        rows.append({"prediction": name, "W1": found.pop("wasserstein"), **found})
    return pd.DataFrame(rows, columns=list(SCORED))


def gain_rows(
    influence: Float[np.ndarray, "N n"],
    profiles: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]],
    **bootstrap: Any,
) -> pd.DataFrame:
    """Return the :func:`~posbias.comparison.scores.paired_gain` of each pair of profiles, ``before`` and ``after``."""
    rows = [(a, b, *paired_gain(influence, profiles[a], profiles[b], **bootstrap)) for a, b in pairs]
    return pd.DataFrame(rows, columns=["before", "after", *Gain._fields])

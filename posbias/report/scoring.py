"""Predictions against a measured profile: rows of scores and of paired gains."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.samples import Sample
from posbias.comparison.scores import Gain, paired_gain, score
from posbias.measure.corpus import known_units

SCORED = ("prediction", "W1", "low", "high", "first_aside", "spearman", "difference")
"""Columns of :func:`score_rows`."""


def sample_of(measured: xr.Dataset) -> Sample:
    """Return the sample of a measurement with ``influence_prompts``."""
    influence, units = measured["influence_prompts"].values.astype(np.float64), known_units(measured)
    return Sample(influence, np.arange(len(influence)) if units is None else units)


def score_rows(
    influence: Float[np.ndarray, "N n"], profiles: Mapping[str, np.ndarray], resampled: Float[np.ndarray, "B n"]
) -> pd.DataFrame:
    """Return the :func:`~posbias.comparison.scores.score` of each profile, a row each with columns :data:`SCORED`."""
    rows = []
    for name, profile in profiles.items():
        found = asdict(score(influence, profile, resampled))
        rows.append({"prediction": name, "W1": found.pop("wasserstein"), **found})
    return pd.DataFrame(rows, columns=list(SCORED))


def gain_rows(
    influence: Float[np.ndarray, "N n"],
    profiles: Mapping[str, np.ndarray],
    pairs: Sequence[tuple[str, str]],
    resampled: Float[np.ndarray, "B n"],
) -> pd.DataFrame:
    """Return the :func:`~posbias.comparison.scores.paired_gain` of each pair of profiles, ``before`` and ``after``."""
    rows = [(a, b, *paired_gain(influence, profiles[a], profiles[b], resampled)) for a, b in pairs]
    return pd.DataFrame(rows, columns=["before", "after", *Gain._fields])

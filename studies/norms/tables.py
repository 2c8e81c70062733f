"""Tables of the kept measurements of norms: how sizes run along the prompt, and what undoing the norm changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.comparison.multiplicity import holm, sign_p_value
from posbias.comparison.resampling import interval, resample_weights
from posbias.rollout.masks import causal, sliding_window
from studies.reference.models import REFERENCES

LEVEL = 0.05
"""At which a comparison stands, after Holm's adjustment for the family that a sentence counts."""

Studies = Mapping[str, Any]
"""Measurements by the name of the model, of :func:`~studies.norms.measure.measure_norms`."""


def mean_interval(x: Float[np.ndarray, "N"], resamples: int = 2000) -> tuple[float, float, float, float]:
    """Return the mean over prompts, its interval at 95%, prompts resampled, and the p value of a mean of 0.

    >>> mean_interval(np.ones(4))[:3]
    (1.0, 1.0, 1.0)
    """
    means = resample_weights(len(x), resamples) @ x / len(x)
    low, high = interval(means)
    return float(x.mean()), float(low), float(high), sign_p_value(means)


def exponent_table(studies: Studies, data: str = "text") -> pd.DataFrame:
    """Return exponents c of size ∝ (j + 1)^c, a row for each model.

    ``values_first``: of averaged values in layer 1; ``input``: of the norm's input, a mean over layers from 2 on, and
    ``input_p``, the p value of 0.
    """
    rows = []
    for name, study in studies.items():
        slopes = study["slope"].sel(data=data).astype(float).transpose("part", "prompt", "layer")
        mean, _, _, p = mean_interval(slopes.sel(part="input").values[:, 1:].mean(1))
        first = slopes.sel(part="values").values[:, 0].mean()
        rows.append({"model": name, "values_first": first, "input": mean, "input_p": p})
    return pd.DataFrame(rows)


def branch_shares(studies: Studies) -> pd.Series:
    """Return the size of all attention branches together over that of the last layer's input, on natural text."""
    found = {}
    for name, study in studies.items():
        course = study["course"].sel(data="text").astype(float).isel(layer=-1, position=slice(1, None))
        size = np.exp(course.mean("position"))
        found[name] = float(size.sel(part="branches") / size.sel(part="input"))
    return pd.Series(found)


def prompt_changes(study: Any, what: str, condition: str, against: str = "intact", data: str = "text") -> np.ndarray:
    """Return a reading in one condition less that in another, for each prompt: means over layers."""
    readings = study[what].sel(data=data).astype(float)
    if "layer" in readings.dims:
        readings = readings.mean("layer")
    both = readings.sel(condition=[condition, against]).transpose("condition", "prompt").values
    difference = both[0] - both[1]
    return np.asarray(difference[np.isfinite(difference)])


def change_table(studies: Studies, what: str, data: str = "text", against: str = "intact") -> pd.DataFrame:
    """Return what every condition changes of a reading, a row for each model and condition.

    ``intact``, and ``change`` from ``against`` with ``low`` and ``high``: means over layers and prompts, the interval
    of paired differences, and ``p``, the p value of no change. ``adjusted`` is that after Holm's adjustment for all
    models in the same condition, and ``direction`` what then stands: ``lower``, ``higher`` or neither, ``""``.
    Conditions that were not measured on the data are left out.
    """
    rows = []
    for name, study in studies.items():
        intact = study[what].sel(data=data, condition="intact").astype(float).mean().item()
        for condition in study["condition"].values.tolist():
            change = prompt_changes(study, what, condition, against, data)
            if change.size:
                rows.append((name, condition, intact, *mean_interval(change)))
    table = pd.DataFrame(rows, columns=["model", "condition", "intact", "change", "low", "high", "p"])
    table["adjusted"] = table.groupby("condition")["p"].transform(lambda p: holm(p.to_numpy()))
    stands = table["adjusted"] <= LEVEL
    table["direction"] = np.where(stands, np.where(table["change"] < 0, "lower", "higher"), "")
    return table


def with_random_signs(changes: Mapping[str, Float[np.ndarray, "N"]], seed: int) -> dict[str, Float[np.ndarray, "N"]]:
    """Return changes whose signs are drawn anew, prompt by prompt: what there is without an effect.

    >>> abs(with_random_signs({"a": np.arange(3.0)}, 0)["a"]).tolist()
    [0.0, 1.0, 2.0]
    """
    rng = np.random.default_rng(seed)
    return {name: rng.choice([-1.0, 1.0], len(x)) * x for name, x in changes.items()}


def with_effect(
    changes: Mapping[str, Float[np.ndarray, "N"]], effects: Mapping[str, float], seed: int
) -> dict[str, Float[np.ndarray, "N"]]:
    """Return changes of a given mean effect that scatter over prompts as measured: prompts redrawn about it.

    >>> with_effect({"a": np.full(3, 5.0)}, {"a": -1.0}, 0)["a"].tolist()
    [-1.0, -1.0, -1.0]
    """
    rng = np.random.default_rng(seed)
    return {name: effects[name] + rng.choice(x - x.mean(), len(x)) for name, x in changes.items()}


def uniform_attended(studies: Studies) -> dict[str, float]:
    """Return the mean attended position of uniform attention, under each model's own mask: 0 first token, 1 query."""
    found = {}
    for name, study in studies.items():
        n, width = study.attrs["length"], getattr(REFERENCES[name].config(), "sliding_window", None)
        mask = (sliding_window(width) if width else causal()).matrix(n)
        mean = mask @ np.arange(n) / mask.sum(1)
        found[name] = float((mean[1:] / np.arange(1, n)).mean())
    return found

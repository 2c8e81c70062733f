"""Tables of the kept measurements of norms: how sizes run along the prompt, and what undoing the norm changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from posbias.rollout.masks import causal, sliding_window
from posbias.statistics.resampling import interval
from posbias.training.reference.models import REFERENCES

FOLDER = "16_norms"
"""Where in ``results`` the measurements are."""
NO_PREFERENCE = 0.5
"""The recency probability of attention that prefers neither of two earlier keys."""

Studies = Mapping[str, Any]
"""Measurements by the name of the model."""


def read_studies(root: Path) -> dict[str, Any]:
    """Return the measurements of every model, in the order of the reference models.

    Raises
    ------
    FileNotFoundError
        If a model has none.
    """
    import xarray as xr

    folder = root / "results" / FOLDER
    return {name: xr.load_dataset(folder / f"{name}.norms.nc", engine="h5netcdf") for name in REFERENCES}


def mean_interval(x: Float[np.ndarray, "N"], resamples: int = 2000) -> tuple[float, float, float]:
    """Return the mean over prompts and its interval at 95 %, prompts resampled.

    >>> mean_interval(np.ones(4))
    (1.0, 1.0, 1.0)
    """
    N = len(x)
    draws = np.random.default_rng(0).multinomial(N, np.full(N, 1 / N), resamples) / N
    low, high = interval(draws @ x)
    return float(x.mean()), float(low), float(high)


def exponent_table(studies: Studies, data: str = "text") -> pd.DataFrame:
    """Return exponents c of size ∝ (j + 1)^c, a row for each model.

    ``values_first`` and ``values_deeper``: of averaged values in layer 1 and in deeper layers; ``branches`` and
    ``rest``: of the parts of the norm's input; ``input``, ``input_low``, ``input_high``: of the input itself, with
    an interval; ``falling`` of ``layers``: in how many layers from 2 on the input's interval is below 0;
    ``least``, ``most``: the extremes over those layers.

    Parameters
    ----------
    studies
        Of :func:`read_studies`.
    data
        ``text``, ``random`` or ``untrained``.
    """
    rows = []
    for name, study in studies.items():
        slopes = study["slope"].sel(data=data).astype(float)
        of = {part: slopes.sel(part=part).transpose("prompt", "layer").values for part in slopes["part"].values}
        later = of["input"][:, 1:]
        below = [mean_interval(column)[2] < 0 for column in later.T]
        rows.append(
            {
                "model": name, "values_first": of["values"][:, 0].mean(), "values_deeper": of["values"][:, 1:].mean(),
                "branches": of["branches"][:, 1:].mean(), "rest": of["rest"][:, 1:].mean(),
                **dict(zip(("input", "input_low", "input_high"), mean_interval(later.mean(1)), strict=True)),
                "falling": sum(below), "layers": len(below), "least": later.mean(0).min(), "most": later.mean(0).max(),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def size_table(studies: Studies) -> pd.DataFrame:
    """Return sizes on natural text, a row for each model.

    ``first_low``, ``first_high``: the first token's input over that of the others, extremes over layers; ``branches``
    and ``rest``: what all attention branches, and all else that layers add, have of the input of the last layer.
    """
    rows = []
    for name, study in studies.items():
        course = study["course"].sel(data="text").astype(float)
        others = np.exp(course.isel(position=slice(1, None)).mean("position"))
        first = (np.exp(course.sel(part="input").isel(position=0)) / others.sel(part="input")).values
        last = (others / others.sel(part="input")).isel(layer=-1)
        shares = {part: float(last.sel(part=part)) for part in ("branches", "rest")}
        rows.append({"model": name, "first_low": first.min(), "first_high": first.max(), **shares})
    return pd.DataFrame(rows)


def change_table(studies: Studies, what: str, data: str = "text") -> pd.DataFrame:
    """Return what every condition changes of a reading, a row for each model and condition.

    ``intact``, and ``change`` from it with ``low`` and ``high``: means over layers and prompts, the interval of paired
    differences. Conditions that were not measured on the data are left out.

    Parameters
    ----------
    studies
        Of :func:`read_studies`.
    what
        A variable of the measurements: ``preference``, ``attended``, ``influence_mean``, ``influence_last``, ``loss``.
    data
        ``text``, ``random`` or ``untrained``.
    """
    rows = []
    for name, study in studies.items():
        readings = study[what].sel(data=data).astype(float)
        if "layer" in readings.dims:
            readings = readings.mean("layer")
        readings = readings.dropna("prompt", how="all").dropna("condition", how="all")
        intact = readings.sel(condition="intact").values
        for condition in readings["condition"].values.tolist():
            moved = mean_interval(readings.sel(condition=condition).values - intact)
            rows.append((name, condition, intact.mean(), *moved))
    return pd.DataFrame(rows, columns=["model", "condition", "intact", "change", "low", "high"])


def uniform_attended(studies: Studies) -> dict[str, float]:
    """Return the mean attended position of uniform attention, under each model's own mask: 0 first token, 1 query."""
    found = {}
    for name, study in studies.items():
        n, width = study.attrs["length"], getattr(REFERENCES[name].config(), "sliding_window", None)
        mask = (sliding_window(width) if width else causal()).matrix(n)
        mean = mask @ np.arange(n) / mask.sum(1)
        found[name] = float((mean[1:] / np.arange(1, n)).mean())
    return found


def positive_shares(studies: Studies) -> pd.Series:
    """Return the share of content logits above 0 on natural text, by model."""
    shares = {
        name: float(study["positive"].sel(data="text", condition="intact").mean()) for name, study in studies.items()
    }
    return pd.Series(shares, name="positive").rename_axis("model")

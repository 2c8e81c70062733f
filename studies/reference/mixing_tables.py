"""Residual mixing of many models as tables: both readings of λ, and its course over depth."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.stats import spearmanr

from posbias.comparison.multiplicity import holm

READINGS = ("frobenius", "token")
"""The two readings of λ's definition: norms over the whole sequence, or token by token."""


def total_mixing(measured: xr.Dataset, reading: str = "frobenius") -> float:
    """Return τ = Σ_t λ_t of a measurement."""
    return float(measured[f"lambda_{reading}"].sum())


def mixing_by_model(kept: Mapping[str, xr.Dataset], models: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return total mixing of models, and how far prompts, corpora and the two readings of λ move it.

    Index ``model``. Columns: ``tau`` and ``tau_token`` (Σλ in both readings), ``tau_wikitext`` and ``tau_random``.
    """
    rows = {}
    for name, x in models.items():
        rows[name] = {
            "tau": total_mixing(x),
            "tau_token": total_mixing(x, "token"),
            "tau_wikitext": total_mixing(kept[f"{name}.wikitext-2"]),
            "tau_random": total_mixing(kept[f"{name}.random"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def schedule_shapes(schedules: Mapping[str, Float[np.ndarray, "_"]], *, level: float = 0.05) -> pd.DataFrame:
    """Return how schedules of λ run over depth.

    Index ``model``. Columns: ``rank`` and ``p``, Spearman's coefficient of λ and depth with its p-value, ``adjusted``
    by Holm; ``trend``: falls, rises or none.

    >>> schedule_shapes({"falling": np.linspace(0.7, 0.1, 6)}).loc["falling", "trend"]
    'falls'
    """
    rows = {}
    for name, schedule in schedules.items():
        lambda_ = np.asarray(schedule)
        found = spearmanr(np.arange(lambda_.size), lambda_)
        rows[name] = {
            "rank": float(found.statistic),
            "p": max(float(found.pvalue), 2 / math.factorial(lambda_.size)),
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
    table["adjusted"] = holm(table["p"].to_numpy())
    way = np.where(table["rank"] < 0, "falls", "rises")
    return table.assign(trend=np.where(table["adjusted"] <= level, way, "none"))


def most_fall(schedules: Mapping[str, Float[np.ndarray, "_"]]) -> bool:
    """Tell whether λ falls with depth in more than half of the schedules, by :func:`schedule_shapes`."""
    return bool((schedule_shapes(schedules)["trend"] == "falls").mean() > 0.5)


def nearly_all_below_half(*groups: Mapping[str, Float[np.ndarray, "_"]]) -> bool:
    """Tell whether λ < 1/2 in more than nine layers of ten, in each group of schedules."""
    return all((np.concatenate(list(schedules.values())) < 0.5).mean() > 0.9 for schedules in groups)


def mixing_before_training(kept: Mapping[str, xr.Dataset], models: Mapping[str, xr.Dataset]) -> pd.Series:
    """Return τ of the untrained networks with the usual first weights, by model."""
    twins = {name: kept[f"{name}-untrained-default.builtin"] for name in models}
    return pd.Series({name: total_mixing(x) for name, x in twins.items()})

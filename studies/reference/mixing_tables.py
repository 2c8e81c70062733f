"""Residual mixing of many models as tables: both readings of λ, its course over depth, and over training."""

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

    Index ``model``. Columns: ``tau`` and ``tau_token`` (Σλ in both readings), ``largest`` (λ_t), ``readings`` (the
    largest difference of λ_t between them), ``spread`` (the largest standard deviation of a λ_t over prompts, as a
    share of it), ``tau_wikitext`` and ``tau_random``.
    """
    rows = {}
    for name, x in models.items():
        frobenius, token = (x[f"lambda_{reading}"] for reading in READINGS)
        rows[name] = {
            "tau": total_mixing(x),
            "tau_token": total_mixing(x, "token"),
            "largest": float(frobenius.max()),
            "readings": float(abs(token - frobenius).max()),
            "spread": float((x["lambda_frobenius_std"] / frobenius).max()),
            "tau_wikitext": total_mixing(kept[f"{name}.wikitext-2"]),
            "tau_random": total_mixing(kept[f"{name}.random"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def schedule_shapes(schedules: Mapping[str, Float[np.ndarray, "_"]], *, level: float = 0.05) -> pd.DataFrame:
    """Return how schedules of λ run over depth.

    Index ``model``. Columns: ``layers``; ``below_half``, the share of layers with λ < 1/2; ``early``, the mean of
    the first quarter of the layers over that of all; ``rank`` and ``p``, Spearman's coefficient of λ and depth with
    its p-value; ``trend``: falls, rises or none.

    >>> schedule_shapes({"falling": np.linspace(0.7, 0.1, 6)}).loc["falling", "trend"]
    'falls'
    """
    rows = {}
    for name, schedule in schedules.items():
        lambda_ = np.asarray(schedule)
        found = spearmanr(np.arange(lambda_.size), lambda_)
        rows[name] = {
            "layers": lambda_.size,
            "below_half": float((lambda_ < 0.5).mean()),
            "early": float(lambda_[: max(1, lambda_.size // 4)].mean() / lambda_.mean()),
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


def mixing_over_training(stages: Mapping[str, xr.Dataset], last: Mapping[str, tuple[int, xr.Dataset]]) -> pd.DataFrame:
    """Return λ_t by training step: columns model, step, layer (from 1) and mixing."""
    found = {(stem.split(".step-")[0], int(stem.split(".step-")[1])): x for stem, x in stages.items()}
    staged = {model for model, _ in found}
    found |= {(model, step): x for model, (step, x) in last.items() if model in staged}
    rows = [
        {"model": model, "step": step, "layer": layer, "mixing": float(value)}
        for (model, step), x in sorted(found.items(), key=lambda item: item[0])
        for layer, value in enumerate(x["lambda_frobenius"].values, 1)
    ]
    return pd.DataFrame(rows, columns=["model", "step", "layer", "mixing"])


def mixing_by_initialisation(kept: Mapping[str, xr.Dataset], models: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return τ at two initialisations and after training: columns default, unit and trained; index ``model``."""
    rows = {}
    for name, x in models.items():
        stems = {kind: f"{name}-untrained-{kind}.builtin" for kind in ("default", "unit")}
        if all(stem in kept for stem in stems.values()):
            rows[name] = {kind: total_mixing(kept[stem]) for kind, stem in stems.items()} | {"trained": total_mixing(x)}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["default", "unit", "trained"])
    return table.rename_axis("model")

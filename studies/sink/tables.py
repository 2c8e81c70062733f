"""What the first token's silence changes: frames of ``results/sink.nc``, documents or sets resampled."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import unit
from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.scores import paired_difference

BINS = 16
"""Parts of a prompt without its first and its last token, over which profiles are averaged."""
WHOLE = "whole"


def parts_of(values: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N bins"]:
    """Return each prompt's mean over parts of it, without the first token and the last; nan is left out."""
    parts = np.array_split(values[:, 1:-1].astype(np.float64), BINS, axis=1)
    return np.stack([np.nanmean(part, axis=1) for part in parts], axis=1)


def profiles(entry: xr.Dataset, quantity: str) -> dict[str, Float[np.ndarray, "B+1 bins"]]:
    """Return by arm the mean profile, an equal share 1, and behind it those of resampled documents."""
    found = {}
    for arm in entry["arm"].values.tolist():
        values = entry[quantity].sel(arm=arm).values
        rows = parts_of(values[~np.isnan(values).all(1)])
        weights = np.concatenate([np.ones((1, len(rows))), resample_weights(len(rows))])
        found[arm] = unit(weights @ rows) * BINS
    return found


def change_table(entry: xr.Dataset, quantity: str) -> pd.DataFrame:
    """Return how far each arm moves a profile: index ``arm``, columns ``NAME``, ``NAME low``, ``NAME high``.

    ``apart`` is W₁ from the whole model's profile, as a share of the prompt; ``first`` and
    ``last`` are by how much the eighths at its ends move, in equal shares.
    """
    by = profiles(entry, quantity)
    eighth = BINS // 8
    rows = {}
    for arm, p in by.items():
        moved = p - by[WHOLE]
        values = {
            "apart": _apart(p, by[WHOLE]),
            "first": moved[:, :eighth].mean(1),
            "last": moved[:, -eighth:].mean(1),
        }
        rows[arm] = _with_intervals(values)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm").drop(WHOLE)


def first_share(entry: xr.Dataset, quantity: str = "gradient") -> dict[str, float]:
    """Return the first token's share of a profile by arm, the last token left out."""
    found = {}
    for arm in entry["arm"].values.tolist():
        mean = np.nanmean(entry[quantity].sel(arm=arm).values[:, :-1].astype(np.float64), axis=0)
        found[arm] = float(mean[0] / mean.sum())
    return found


def loss_table(entry: xr.Dataset) -> pd.DataFrame:
    """Return by how much each arm raises the loss on text, in nats: index ``arm``; documents resampled."""
    whole = entry["loss"].sel(arm=WHOLE).values
    rows = {}
    for arm in entry["arm"].values.tolist():
        found = paired_difference(entry["loss"].sel(arm=arm).values.astype(np.float64) - whole)
        rows[arm] = {"loss": found.mean, "loss low": found.low, "loss high": found.high}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm").drop(WHOLE)


def answer_table(entry: xr.Dataset) -> pd.DataFrame:
    """Return right answers by arm and how they change, sets resampled: index ``arm``."""
    correct = entry["correct"].astype(np.float64)
    whole = correct.sel(arm=WHOLE).mean("place").values
    rows = {}
    for arm in entry["arm"].values.tolist():
        one = correct.sel(arm=arm).mean("place").values
        found = paired_difference(one - whole)
        rows[arm] = {"right": one.mean(), "change": found.mean, "low": found.low, "high": found.high}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")


def _apart(p: Float[np.ndarray, "B bins"], q: Float[np.ndarray, "B bins"]) -> Float[np.ndarray, "B"]:
    """Return W₁ between each pair of profiles, as a share of the prompt."""
    return np.abs(np.cumsum(unit(p) - unit(q), -1)[..., :-1]).sum(-1) / p.shape[-1]


def _with_intervals(values: dict[str, Float[np.ndarray, "B+1"]]) -> dict[str, float]:
    """Return each value, which is the first, with the 95 % interval of those behind it."""
    row: dict[str, float] = {}
    for name, value in values.items():
        low, high = interval(value[1:])
        row |= {name: float(value[0]), f"{name} low": float(low), f"{name} high": float(high)}
    return row

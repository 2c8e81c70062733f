"""What is position bias proper, and what the text earns: frames of ``results/orders.nc``, documents resampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import spearman, unit
from posbias.comparison.resampling import interval, resample_weights

BINS = 16
"""Parts of a prompt over which use is averaged, which few places of each prompt have."""
RESAMPLES = 1000
PROPER, WRITTEN = "drawn", "written"
"""The order in which place tells nothing, and that of the text."""


def binned(values: Float[np.ndarray, "N n"], front: int = 0, bins: int = BINS) -> Float[np.ndarray, "N bins"]:
    """Return each prompt's mean over parts of it, without the last token and the first ``front``; nan is left out.

    >>> binned(np.array([[1.0, np.nan, 3.0, 5.0, 9.0]]), bins=2).tolist()
    [[1.0, 4.0]]
    """
    parts = np.array_split(values[:, front:-1].astype(np.float64), bins, axis=1)
    return np.stack([np.nanmean(part, axis=1) for part in parts], axis=1)


def profiles(
    entry: xr.Dataset, quantity: str, resamples: int = RESAMPLES, *, alike: bool = False
) -> Mapping[str, tuple[Float[np.ndarray, "bins"], Float[np.ndarray, "B bins"]]]:
    """Return by order the mean profile over parts of the prompt, an equal share 1, and those of resampled prompts.

    All orders are resampled alike: they are of the same prompts. In the mean a prompt weighs as much as it has in all,
    unless ``alike`` divides each by its own mean first. Where the entry has ``draws`` (prompt, draw, part), drawn
    tokens are those, and not the one draw beside the other orders.
    """
    front, found = int(entry.attrs.get("front", 0)), {}
    for order in entry["order"].values.tolist():
        if order == PROPER and "draws" in entry:
            each = entry["draws"].values.astype(np.float64)
        else:
            each = binned(entry[quantity].sel(order=order).values, front)[:, None]
        if alike:
            each = each / each.mean(2, keepdims=True)
        rows = each.mean(1)
        drawn = resample_weights(len(rows), resamples) @ rows
        found[order] = (unit(rows.mean(0)) * rows.shape[1], unit(drawn) * rows.shape[1])
    return found


def arm_exponent(p: Float[np.ndarray, "... bins"]) -> Float[np.ndarray, "..."]:
    """Return m of the power law d^-m nearest to the second half of a profile, d the distance of a part from the end.

    A straight line through the logarithms, by least squares.

    >>> float(arm_exponent(1 / np.arange(8.5, 0, -1.0)).round(2))
    1.0
    """
    half = p.shape[-1] // 2
    d = np.log(np.arange(half, 0, -1) - 0.5)
    y = np.log(np.maximum(p[..., -half:], 1e-12))
    centred = d - d.mean()
    return np.asarray(-(y * centred).sum(-1) / (centred**2).sum())


def far_from_equal(p: Float[np.ndarray, "... bins"]) -> Float[np.ndarray, "..."]:
    """Return W₁ from equal shares, as a share of the prompt's length.

    >>> float(far_from_equal(np.array([4.0, 0, 0, 0])))
    0.375
    """
    share = unit(p)
    return np.abs(np.cumsum(share - 1 / share.shape[-1], -1)[..., :-1]).sum(-1) / share.shape[-1]


def ends_of(p: Float[np.ndarray, "... bins"]) -> dict[str, Float[np.ndarray, "..."]]:
    """Return the four numbers of a profile: first and last eighth beside an equal share, exponent, W₁."""
    eighth = p.shape[-1] // 8
    return {
        "first eighth": p[..., :eighth].mean(-1),
        "last eighth": p[..., -eighth:].mean(-1),
        "exponent": arm_exponent(p),
        "W1 to equal": far_from_equal(p),
    }


def order_table(entry: xr.Dataset, quantity: str, *, alike: bool = False) -> pd.DataFrame:
    """Return the four numbers of each order with their intervals: index ``order``, columns ``NAME``, low and high."""
    rows = {}
    for order, (p, drawn) in profiles(entry, quantity, alike=alike).items():
        row: dict[str, float] = {}
        means, many = ends_of(p), ends_of(drawn)
        for name, value in means.items():
            low, high = interval(many[name])
            row |= {name: float(value), f"{name} low": float(low), f"{name} high": float(high)}
        rows[order] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("order")


def split_table(entry: xr.Dataset, quantity: str, *, alike: bool = False) -> pd.DataFrame:
    """Return proper and earned parts of both ends, and whether the profile survives a random order of the tokens.

    ``proper`` is an eighth of the drawn tokens' profile less 1, ``earned`` the same eighth of the text less that. The
    row ``earned less proper`` compares their sizes; ``rank`` and ``apart`` compare the text with its tokens shuffled.
    """
    by = profiles(entry, quantity, alike=alike)
    rows: dict[str, tuple[Any, Float[np.ndarray, "B"]]] = {}
    for end in ("first eighth", "last eighth"):
        one, many = (ends_of(x)[end] for x in by[PROPER])
        text, texts = (ends_of(x)[end] for x in by[WRITTEN])
        rows[f"{end}: proper"] = (one - 1, many - 1)
        rows[f"{end}: earned"] = (text - one, texts - many)
        rows[f"{end}: earned less proper"] = (abs(text - one) - abs(one - 1), np.abs(texts - many) - np.abs(many - 1))
    (p, ps), (q, qs) = by[WRITTEN], by["shuffled"]
    pairs = zip(unit(ps), unit(qs), strict=True)
    rows["survives: rank"] = (spearman(unit(p), unit(q)), np.array([spearman(a, b) for a, b in pairs]))
    rows["survives: apart"] = (between(p, q), between(ps, qs))
    found = {}
    for name, (value, many) in rows.items():
        low, high = interval(many)
        found[name] = {"value": float(value), "low": float(low), "high": float(high)}
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("part")


def rounding_table(entry: xr.Dataset) -> pd.DataFrame:
    """Return how far rounding moves a profile, W₁, and by how much both eighths at its ends, with intervals."""
    by = profiles(entry, "gradient")
    (p, ps), (q, qs) = by["whole"], by["rounded"]
    rows = {"apart": (between(p, q), between(ps, qs))}
    for end in ("first eighth", "last eighth"):
        rows[end] = (ends_of(q)[end] - ends_of(p)[end], ends_of(qs)[end] - ends_of(ps)[end])
    found = {}
    for name, (value, many) in rows.items():
        low, high = interval(many)
        found[name] = {"value": float(value), "low": float(low), "high": float(high)}
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("part")


def between(p: Float[np.ndarray, "... bins"], q: Float[np.ndarray, "... bins"]) -> Float[np.ndarray, "..."]:
    """Return W₁ between profiles, as a share of the prompt's length."""
    a, b = unit(p), unit(q)
    return np.asarray(np.abs(np.cumsum(a - b, -1)[..., :-1]).sum(-1) / a.shape[-1])

"""The gap between rollout and influence by layer, and what the gradient does in each, in tidy tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from posbias.comparison.distances import normalised_wasserstein
from posbias.report.scoring import unit

READINGS = ("norms", "direction", "gradient", "values")
"""Readings of λ_t that have one number for each layer."""


def layer_table(gap: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return a row for each model and layer.

    ``layer`` counts from 1 and ``height`` from 0 (first) to 1 (last). ``gap`` is W₁ between the rollout of measured
    kernels, begun at the top, and the profile of the gradient that enters the layer; ``alone`` is W₁ if the layer
    starts from the measured profile above it. ``cosine`` is that between what comes around the attention and what
    comes through it, and ``gain`` how much more the gradient grows at the last token than elsewhere in the rest of
    the layer (missing for the last layer, where there is nothing elsewhere).

    Parameters
    ----------
    gap
        Model → results of :func:`~studies.ladder.gap.measure_refinements`.
    """
    return pd.concat([_layers(x).assign(model=name) for name, x in gap.items()], ignore_index=True)


def _layers(x: xr.Dataset) -> pd.DataFrame:
    """Return the rows of one model."""
    T, entering, lam = x.sizes["layer"], unit(x["entering"].values), x["lambda_norms"].values[:, None]
    rolled = unit(x["rolled"].sel(few_kernels="uniform", few_mixings="norms", join="sizes").values)
    alone = (1 - lam) * entering[1:] + lam * unit(x["stepped"].sel(kernel="uniform").values)
    gain = x["gain"].values[:, -1] / x["gain"].values[:, :-1].mean(-1)
    gain[-1] = np.nan
    return pd.DataFrame(
        {
            "layer": np.arange(1, T + 1),
            "height": np.linspace(0, 1, T),
            "gap": [normalised_wasserstein(*pair) for pair in zip(rolled[:-1], entering[:-1], strict=True)],
            "alone": [normalised_wasserstein(*pair) for pair in zip(alone, entering[:-1], strict=True)],
            "cosine": x["join_cosine"].values,
            "gain": gain,
        }
    )


def growing_share(layers: pd.DataFrame) -> pd.Series:
    """Return for each model the share of steps from a layer to the one below in which the gap does not shrink.

    The step from above the last layer, where there is no gap yet, counts.

    Parameters
    ----------
    layers
        From :func:`layer_table`.

    >>> growing_share(pd.DataFrame({"model": "m", "layer": [1, 2], "gap": [0.1, 0.2]})).tolist()
    [0.5]
    """
    gaps = layers.sort_values("layer").groupby("model", sort=False)["gap"]
    return gaps.apply(lambda gap: float(np.mean(np.diff([*gap, 0.0]) <= 0)))


def model_readings(gap: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return what was read off each model in other ways, a row each.

    ``norms``, ``direction``, ``gradient`` and ``values`` are sums over layers of readings of λ; ``weights_fixed`` and
    ``no_final_norm`` are W₁ by which the measured profile moves with attention weights held fixed, and without the
    final norm's Jacobian.

    Parameters
    ----------
    gap
        As for :func:`layer_table`.
    """
    rows = []
    for name, x in gap.items():
        sums = {kind: float(x[f"lambda_{kind}"].sum()) for kind in READINGS}
        fixed = normalised_wasserstein(unit(x["influence_values"].values), unit(x["influence"].values))
        past = normalised_wasserstein(unit(x["influence_past_norm"].values), unit(x["influence_beside"].values))
        rows.append({"model": name, **sums, "weights_fixed": fixed, "no_final_norm": past})
    return pd.DataFrame(rows)

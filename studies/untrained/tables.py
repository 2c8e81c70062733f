"""Tables of untrained networks: how far predictions are from the gradient, where there is a U, what rotations do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from posbias.comparison.distances import normalised_wasserstein, spearman
from posbias.rollout.profiles import u_shape

ENDS, SMOOTH = 4, 9
"""Positions averaged at the ends, and in a running mean, before a profile is asked for a U."""


def read_untrained(kept: Mapping[str, xr.Dataset]) -> dict[tuple[str, str], xr.Dataset]:
    """Return the entries by architecture and kind of prompt, small networks as ``small``; profiles sum to 1."""
    found = {}
    for entry in kept:
        model, part = entry.rsplit(".", 1)  # names of models have dots of their own
        if model.startswith("small-"):
            model, part = model.removeprefix("small-"), f"small {part}"
        data = kept[entry]
        found[model, part] = data.assign(profile=data["profile"] / data["profile"].sum("position"))  # kept in 32 bits
    return found


def measured_profiles(data: xr.Dataset, influence: str = "influence") -> Float[np.ndarray, "seeds n"]:
    """Return the measured influence profile of each seed's network, the mean over prompts."""
    p = data[influence].values
    return np.asarray(p / p.sum(-1, keepdims=True))


def cesaro_profile(layers: int, n: int, alpha: float) -> Float[np.ndarray, "n"]:
    """Return the last row of ((1 - α) I + α C)^T, C[i, j] = 1/i for j ≤ i, 0 ≤ α < 1: Cesàro powers, binomial weights.

    Source: the formula of arXiv 2603.10123 as a public note quotes it.

    >>> cesaro_profile(1, 2, 0.5).tolist()
    [0.25, 0.75]
    """
    p, rank = np.eye(n)[-1], np.arange(1, n + 1)
    for _ in range(layers):
        p = (1 - alpha) * p + alpha * (p / rank)[::-1].cumsum()[::-1]
    return p


def cesaro_alpha(layers: int, p: Float[np.ndarray, "n"]) -> float:
    """Return the α from 0 to 0.99 whose :func:`cesaro_profile` is nearest to a profile in W₁, to 1e-4."""
    found = minimize_scalar(
        lambda alpha: normalised_wasserstein(cesaro_profile(layers, p.size, alpha), p),
        bounds=(0, 0.99),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return float(found.x)


def distance_table(kept: Mapping[tuple[str, str], xr.Dataset], influence: str = "influence") -> pd.DataFrame:
    """Return W₁ and rank correlation of every prediction to the measured influence, a row for each seed's network.

    Columns: ``model``, ``part``, ``seed``, ``prediction``, ``W1``, ``spearman``. Beside the file's predictions there
    are Cesàro powers, with α fitted to the measured profile (``cesaro``) and by the last token's share in the law
    (``cesaro last``). Entries without this ``influence`` are left out.
    """
    rows = []
    for (model, part), data in kept.items():
        if influence not in data:
            continue
        T, n = data.sizes["layer"], data.sizes["position"]
        for seed, p in enumerate(measured_profiles(data, influence)):
            predictions = data["profile"].isel(seed=seed).to_series().unstack("position")
            law = predictions.loc["untrained"].to_numpy()
            alphas = {"cesaro": cesaro_alpha(T, p), "cesaro last": (1 - law[-1] ** (1 / T)) * n / (n - 1)}
            cesaro = [(name, cesaro_profile(T, n, alpha)) for name, alpha in alphas.items()]
            for name, q in [*zip(predictions.index, predictions.values, strict=True), *cesaro]:
                rows.append((model, part, seed, name, normalised_wasserstein(q, p), spearman(q, p)))
    return pd.DataFrame(rows, columns=["model", "part", "seed", "prediction", "W1", "spearman"])


def published(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of published architectures as they are: no small networks, none without its rotations."""
    return table[~table["part"].str.contains("small|unrotated")]


def by_prediction(table: pd.DataFrame, names: Mapping[str, str], order: Sequence[str] = ()) -> pd.DataFrame:
    """Return mean W₁ over seeds: a row for each kind of prompt and architecture, a column for each prediction."""
    wide = table.pivot_table("W1", ["part", "model"], "prediction", sort=False)[list(names)].rename(columns=dict(names))
    rank = {name: k for k, name in enumerate(order)}
    parts = {part: k for k, part in enumerate(dict.fromkeys(table["part"]))}
    keys = [(parts[part], rank.get(model, len(rank))) for part, model in wide.index]
    return wide.iloc[sorted(range(len(keys)), key=keys.__getitem__)]


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Return mean W₁ over seeds: a row for each kind of prompt, architecture and prediction."""
    keys = [name for name in table.columns if name not in ("seed", "W1", "spearman")]
    return table.groupby(keys, sort=False)["W1"].mean().reset_index(name="mean")


def shape_table(kept: Mapping[tuple[str, str], xr.Dataset]) -> pd.DataFrame:
    """Return whether measured and predicted profiles have a U, a row for each seed's network and profile.

    Columns: ``model``, ``part``, ``seed``, ``profile`` (measured, untrained), ``present`` by the book's criterion,
    without the last position; ``with_last``: whether the first and the last position stand above the lowest of others.
    """
    rows = []
    for (model, part), data in kept.items():
        for seed, p in enumerate(measured_profiles(data)):
            law = data["profile"].sel(prediction="untrained").values[seed]
            for name, q in (("measured", p), ("untrained", law)):
                present = u_shape(q, ends=ENDS, smooth=SMOOTH).present
                rows.append((model, part, seed, name, present, bool(q[-1] > 1.05 * q[:-1].min() < q[0])))
    return pd.DataFrame(rows, columns=["model", "part", "seed", "profile", "present", "with_last"])


def rotation_table(kept: Mapping[tuple[str, str], xr.Dataset]) -> pd.DataFrame:
    """Return how far influence moves when rotations are taken away, beside how far it moves from seed to seed.

    Columns: ``model``, ``seed``, ``moved`` (W₁, with and without rotation, same weights and prompts), ``between``
    (mean W₁ to the other seeds' networks), ``spearman``.
    """
    rows = []
    for (model, part), data in kept.items():
        turned = kept.get((model, part.removesuffix("-unrotated")))
        if not part.endswith("-unrotated") or turned is None:
            continue
        with_rotation, without = measured_profiles(turned), measured_profiles(data)
        for seed, (p, q) in enumerate(zip(with_rotation, without, strict=True)):
            others = [normalised_wasserstein(p, other) for k, other in enumerate(with_rotation) if k != seed]
            rows.append((model, seed, normalised_wasserstein(p, q), float(np.mean(others)), spearman(p, q)))
    return pd.DataFrame(rows, columns=["model", "seed", "moved", "between", "spearman"])


def content_spread(kept: Mapping[tuple[str, str], xr.Dataset]) -> pd.Series:
    """Return the mean spread of content logits by model and part."""
    spread = {key: float(data["content"].mean()) for key, data in kept.items()}
    return pd.Series(spread).rename_axis(["model", "part"])

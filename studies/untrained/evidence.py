"""How near the law of untrained networks and its rivals are to the influence measured in untrained networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation
from posbias.comparison.fits import power_fit
from posbias.models.weights import shape_of
from posbias.predict import find
from posbias.rollout.profiles import u_shape
from studies.results import load
from studies.sizes import SIZES

LIMIT = 0.02
"""Largest mean distance of law and influence over seeds."""
LOUD = 0.5
"""Spread of content logits above which attention is far from its mean."""
BROKEN_FAMILIES = ("gemma", "gemma2")
"""Small architectures whose output's direction is not independent of the weights."""
NAMES = {
    "untrained": find("head-gains-squared").label,
    "aligned": find("head-gains-added").label,
    "no gates": "gates alike",
    "no steps": "no MLP",
    "b": find("layer-shares").label,
    "cesaro": "Cesàro, α fitted",
}
"""Predictions by their names in results/untrained.nc."""
RIVALS = ("no gates", "no steps", "aligned", "b")

Entries = Mapping[tuple[str, str], xr.Dataset]
Profile = Float[np.ndarray, "n"]


@dataclass(frozen=True)
class Untrained:
    """Hold the entries by architecture and kind of prompt, and the distances of every prediction."""

    kept: Entries

    @cached_property
    def distances(self) -> pd.DataFrame:
        """W₁ and rank correlation of every prediction for every network."""
        return distance_table(self.kept)

    @property
    def real(self) -> pd.DataFrame:
        """Those of published architectures."""
        return published(self.distances)

    @cached_property
    def millions(self) -> dict[str, float]:
        """Parameters of published architectures in millions, the smallest first."""
        names = self.real["model"].unique()
        found = {}
        for name in names:
            shape: Any = shape_of(SIZES[name].config())
            found[name] = shape.num_parameters() / 1e6
        return dict(sorted(found.items(), key=lambda one: one[1]))

    @property
    def spread(self) -> pd.Series:
        """The spread of content logits by model and kind of prompt, a mean over layers."""
        found = {key: float(data["content"].mean()) for key, data in self.kept.items()}
        return pd.Series(found).rename_axis(["model", "part"])

    @property
    def loud(self) -> list[str]:
        """Published architectures whose content logits spread too much for the law."""
        largest = self.spread.groupby("model").max()
        return [name for name in self.millions if largest[name] >= LOUD]

    @property
    def hushed(self) -> pd.DataFrame:
        """Distances in the other ones."""
        return self.real[~self.real["model"].isin(self.loud)]

    @property
    def small(self) -> pd.DataFrame:
        """Distances in small architectures of many families."""
        return self.distances[self.distances["part"].str.startswith("small")]

    @property
    def odd(self) -> list[str]:
        """Small architectures that break a hypothesis of the law."""
        content = self.spread.xs("small random", level="part")
        return sorted({*BROKEN_FAMILIES, *content[content >= LOUD].index})

    @property
    def alibi(self) -> list[str]:
        """Published architectures with ALiBi."""
        family = {name: self.kept[name, "random"].attrs["architecture"] for name in self.millions}
        return [name for name in self.millions if family[name] in ("bloom", "mpt", "falcon")]


def load_untrained() -> Untrained:
    """Return what is kept of untrained networks; profiles sum to 1."""
    found = {}
    for entry, data in load("untrained").items():
        model, part = entry.rsplit(".", 1)  # names of models have dots of their own
        if model.startswith("small-"):
            model, part = model.removeprefix("small-"), f"small {part}"
        total = data["profile"].sum("position")  # kept in 32 bits
        found[model, part] = data.assign(profile=data["profile"] / total)
    return Untrained(found)


def measured_profiles(data: xr.Dataset, influence: str = "influence") -> Float[np.ndarray, "seeds n"]:
    """Return the measured profile of each seed's network, the mean over prompts."""
    p = data[influence].values
    return np.asarray(p / p.sum(-1, keepdims=True))


def cesaro_profile(layers: int, n: int, alpha: float) -> Profile:
    """Return the last row of ((1 - α) I + α C)^T, C[i, j] = 1/i for j ≤ i.

    >>> cesaro_profile(1, 2, 0.5).tolist()
    [0.25, 0.75]
    """
    p, rank = np.eye(n)[-1], np.arange(1, n + 1)
    for _ in range(layers):
        p = (1 - alpha) * p + alpha * (p / rank)[::-1].cumsum()[::-1]
    return p


def cesaro_alpha(layers: int, p: Profile) -> float:
    """Return the α whose Cesàro power is nearest to a profile in W₁."""

    def away(alpha: float) -> float:
        return normalised_wasserstein(cesaro_profile(layers, p.size, alpha), p)

    options = {"xatol": 1e-4}
    return float(minimize_scalar(away, bounds=(0, 0.99), method="bounded", options=options).x)


def predictions_of(data: xr.Dataset, seed: int, p: Profile) -> dict[str, Profile]:
    """Return every prediction for one network, and two Cesàro powers."""
    T, n = data.sizes["layer"], data.sizes["position"]
    table = data["profile"].isel(seed=seed).to_series().unstack("position")
    found = dict(zip(table.index, table.to_numpy(), strict=True))
    last = (1 - found["untrained"][-1] ** (1 / T)) * n / (n - 1)
    alphas = {"cesaro": cesaro_alpha(T, p), "cesaro last": last}
    return found | {name: cesaro_profile(T, n, alpha) for name, alpha in alphas.items()}


def distance_table(kept: Entries) -> pd.DataFrame:
    """Return W₁ and rank correlation of every prediction to the measured influence."""
    rows = []
    for (model, part), data in kept.items():
        for seed, p in enumerate(measured_profiles(data)):
            for name, q in predictions_of(data, seed, p).items():
                far = normalised_wasserstein(q, p), spearman(q, p)
                rows.append((model, part, seed, name, *far))
    return pd.DataFrame(rows, columns=["model", "part", "seed", "prediction", "W1", "spearman"])


def law_distances(kept: Entries, influence: str) -> pd.Series:
    """Return the law's W₁ to another measured influence by model, a mean over seeds and kinds of prompt."""
    rows = []
    for (model, _), data in kept.items():
        if influence in data:
            laws = data["profile"].sel(prediction="untrained").values
            for p, q in zip(measured_profiles(data, influence), laws, strict=True):
                rows.append((model, normalised_wasserstein(q, p)))
    return pd.DataFrame(rows, columns=["model", "W1"]).groupby("model")["W1"].mean()


def published(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows of published architectures as they are: not small, with their rotations."""
    return table[~table["part"].str.contains("small|unrotated")]


def of(table: pd.DataFrame, prediction: str) -> pd.DataFrame:
    """Return the rows of one prediction."""
    return table[table["prediction"] == prediction]


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mean W₁ over seeds by architecture, kind of prompt and prediction."""
    keys = ["model", "part", "prediction"]
    return table.groupby(keys, sort=False)["W1"].mean().reset_index(name="mean")


def within(table: pd.DataFrame) -> list[bool]:
    """Say for each architecture on each kind of prompt whether it is within the limit."""
    return (over_seeds(table)["mean"] <= LIMIT).tolist()


def gate_pairs(seen: Untrained) -> pd.DataFrame:
    """Return W₁ by architecture and prediction, a mean over seeds."""
    turned = seen.distances[~seen.distances["part"].str.contains("unrotated")]
    return turned.pivot_table("W1", ["part", "model"], "prediction")


def shown(seen: Untrained) -> pd.DataFrame:
    """Return the page's table: distances on random tokens, and how else the law does."""
    rows = {}
    wide = seen.real[seen.real["part"] == "random"].pivot_table("W1", "model", "prediction")
    for name in seen.millions:
        data = seen.kept[name, "random"]
        law = data["profile"].sel(prediction="untrained").values
        pairs = list(zip(measured_profiles(data), law, strict=True))
        one = {"the law": wide.loc[name, "untrained"], "sizes added": wide.loc[name, "aligned"]}
        one |= {"layer shares": wide.loc[name, "b"]}
        one |= {"power law, fitted": np.mean([normalised_wasserstein(power_fit(p), p) for p, _ in pairs])}
        one |= {"law's total variation": np.mean([total_variation(q, p) for p, q in pairs])}
        rows[name] = one
    table = pd.DataFrame.from_dict(rows, "index").rename_axis("W1")
    nearest = table["the law"] < table.iloc[:, 1:4].min(axis=1)
    assert nearest[~nearest].index.tolist() == seen.loud  # "the law is nearest", except in the widest
    return table


def families_shown(seen: Untrained) -> pd.DataFrame:
    """Return how near predictions are in small architectures of many families."""
    wide = seen.small.pivot_table("W1", "model", "prediction")[["untrained", "no gates", "no steps", "aligned"]]
    wide = wide.rename(columns={**NAMES, "untrained": "the law", "aligned": "sizes added"})
    wide["logits' spread"] = seen.spread.xs("small random", level="part")
    return wide.sort_values("the law")


def shape_table(seen: Untrained) -> pd.DataFrame:
    """Say whether measured and predicted profiles of published architectures have a U."""
    rows = []
    for (model, part), data in seen.kept.items():
        laws = data["profile"].sel(prediction="untrained").values
        for seed, p in enumerate(measured_profiles(data)):
            for name, q in (("measured", p), ("untrained", laws[seed])):
                present = u_shape(q, ends=4, smooth=9).present
                with_last = bool(q[-1] > 1.05 * q[:-1].min() < q[0])
                rows.append((model, part, seed, name, present, with_last))
    columns = ["model", "part", "seed", "profile", "present", "with_last"]
    return published(pd.DataFrame(rows, columns=columns))


def rotation_table(seen: Untrained) -> pd.DataFrame:
    """Return how far influence moves when rotations are taken away, and from seed to seed."""
    rows = []
    for (model, part), data in seen.kept.items():
        turned = seen.kept.get((model, part.removesuffix("-unrotated")))
        if not part.endswith("-unrotated") or turned is None:
            continue
        with_rotation, without = measured_profiles(turned), measured_profiles(data)
        for seed, (p, q) in enumerate(zip(with_rotation, without, strict=True)):
            others = [x for k, x in enumerate(with_rotation) if k != seed]
            between = np.mean([normalised_wasserstein(p, x) for x in others])
            rows.append((model, seed, normalised_wasserstein(p, q), between))
    return pd.DataFrame(rows, columns=["model", "seed", "moved", "between"])

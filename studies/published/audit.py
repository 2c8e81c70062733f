"""The predictions for five published models, as published and as built, beside the one measured curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import spearmanr

import posbias as pb
from posbias.comparison.distances import total_variation
from posbias.comparison.fits import power_fit
from posbias.comparison.multiplicity import holm
from studies.published import numbers as published
from studies.published.tables import READINGS, variant_config, variant_profile

MODELS = list(published.MODELS)
LABEL = {name: model.label for name, model in published.MODELS.items()}
TOKENS = 256
"""Tokens of the profiles that are described."""
JUDGES = {"W1": pb.normalised_wasserstein, "TV": total_variation}
TRIED = (
    ("b", "as published", "as published"),
    ("b", "both", "as built"),
    ("c", "as published", "as published"),
    ("c", "slopes only", "own slopes"),
    ("c", "content only", "own scale"),
    ("c", "both", "as built: both"),
)
"""Prediction, reading, and what a table calls it."""
Curve = Float[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class Audit:
    """Hold profiles of the five models by (model, prediction); what takes long is worked out once."""

    tokens: int = TOKENS

    @cached_property
    def measured(self) -> Curve:
        """The influence measured on BLOOM-176B."""
        return published.measured_profile()

    @cached_property
    def profiles(self) -> dict[tuple[str, str], Curve]:
        """Predictions (b) and (c) as published."""
        return self._read("as published")

    @cached_property
    def built(self) -> dict[tuple[str, str], Curve]:
        """Predictions (b) and (c) as built."""
        return self._read("both")

    def _read(self, reading: str) -> dict[tuple[str, str], Curve]:
        found = {}
        for name in MODELS:
            for v in "bc":
                found[name, v] = variant_profile(name, v, self.tokens, reading=reading)
        return found

    @cached_property
    def blind(self) -> dict[tuple[str, str], Curve]:
        """Layer shares without positions, on each model's schedule."""
        found = {}
        for name in MODELS:
            lambdas = published.config(name).lambdas()
            kernels = pb.structured_kernels(lambdas.size)
            found[name, "b"] = pb.influence_profile(kernels, lambdas, self.tokens)
        return found

    @cached_property
    def bloom(self) -> dict[str, Curve]:
        """Predictions (a), (b), (c) of BLOOM-176B, at the length of the measured curve."""
        return {v: variant_profile("bloom", v, self.measured.size) for v in "abc"}

    @cached_property
    def distances(self) -> pd.DataFrame:
        """Distances of BLOOM-176B's (b) and (c) in every reading to the measured curve."""
        return distances_to(self.measured)

    @property
    def schedules(self) -> dict[str, Curve]:
        """The published mixing by layer of each model."""
        return {name: published.config(name).lambdas() for name in MODELS}

    @cached_property
    def opposite(self) -> dict[str, dict[str, Curve]]:
        """Prediction (c) with the signs of all content logits reversed, by reading and model."""
        found: dict[str, dict[str, Curve]] = {}
        for reading in ("as published", "both"):
            found[reading] = {name: opposite(name, reading, self.tokens) for name in MODELS}
        return found


def distances_to(target: Curve) -> pd.DataFrame:
    """Return W1 and TV of BLOOM-176B's (b) and (c) in every reading to a curve."""
    found = {}
    for v in "bc":
        for reading in READINGS:
            p = variant_profile("bloom", v, target.size, reading=reading)
            found[v, reading] = [of(p, target) for of in JUDGES.values()]
    return pd.DataFrame(found, index=list(JUDGES)).T


def opposite(name: str, reading: str, n: int) -> Curve:
    """Return profile (c) with the signs of all content logits reversed."""
    config = variant_config(name, "c", n, reading=reading)
    kernels = config.kernels()
    kernels = replace(kernels, diagonal=-kernels.diagonal)
    return pb.influence_profile(kernels, config.lambdas(), n)


def with_slopes(name: str, v: str, factor: float, n: int) -> Curve:
    """Return the profile of a prediction with the architecture's slopes times a factor."""
    config = variant_config(name, v, n, reading="slopes only")
    slopes = factor * np.array(config.attention_config.alibi_slopes)
    update = {"alibi_slopes": slopes.tolist()}
    attention = config.attention_config.model_copy(update=update)
    return config.model_copy(update={"attention_config": attention}).profile()


def remixed(factors: Any, n: int, name: str = "bloom") -> Curve:
    """Return variant (b) of a model with every λ times its factor, at most 1."""
    config = variant_config(name, "b", n)
    lambdas = np.minimum(1, factors * config.lambdas())
    return pb.influence_profile(config.kernels(), lambdas, n)


def later_in(content: Mapping[str, Curve], found: Mapping[tuple[str, str], Curve]) -> list[str]:
    """Return models in which content puts (b) later at every cutoff and lowers its start."""
    moved = []
    for name in MODELS:
        before = found[name, "b"]
        if pb.dominates(content[name], before) and content[name][0] < before[0]:
            moved.append(name)
    return moved


def with_content(found: Mapping[tuple[str, str], Curve]) -> dict[str, Curve]:
    """Return prediction (c) of each model."""
    return {name: found[name, "c"] for name in MODELS}


def steps_later(found: Mapping[tuple[str, str], Curve]) -> Float[np.ndarray, "models"]:
    """Return by how much content raises the mean position of each model."""
    means = [pb.mean_position(found[x, "c"]) - pb.mean_position(found[x, "b"]) for x in MODELS]
    return np.array(means)


def trends(schedules: Mapping[str, Curve]) -> pd.DataFrame:
    """Return the rank correlation of λ with depth by model, with p and p after Holm."""
    found = [spearmanr(np.arange(x.size), x) for x in schedules.values()]
    p = np.array([x.pvalue for x in found])
    table = {"correlation": [x.statistic for x in found], "p": p, "adjusted": holm(p)}
    return pd.DataFrame(table, index=pd.Index(list(schedules), name="model"))


def falling(seen: Audit) -> list[str]:
    """Return the labels of models in which the mixing falls significantly with depth."""
    table = trends(seen.schedules)
    return [LABEL[x] for x in table.index[(table["correlation"] < 0) & (table["adjusted"] <= 0.05)]]


def audit_table(seen: Audit) -> pd.DataFrame:
    """Return how far predictions of BLOOM-176B are from the measured curve."""
    n, shown = seen.measured.size, {}
    for v, code, reading in TRIED:
        shown[f"({v}) {reading}"] = variant_profile("bloom", v, n, reading=code)
    shown["a power law, one fitted number"] = power_fit(seen.measured)
    shown["equal shares"] = np.full(n, 1 / n)
    rows = {}
    for name, p in shown.items():
        rank = np.nan if np.ptp(p) == 0 else pb.spearman(p, seen.measured)
        rows[name] = [*(of(p, seen.measured) for of in JUDGES.values()), rank]
    columns = ["W1", "total variation", "rank correlation"]
    return pd.DataFrame(rows, columns).T.rename_axis("BLOOM-176B")


def numbers(seen: Audit) -> dict[str, Any]:
    """Return what the page quotes of the predictions."""
    read, n = seen.distances["W1"], seen.measured.size
    scales = {x: np.sqrt(published.MODELS[x].head_dim) for x in MODELS}
    contents = published.config("bloom").kernels().diagonal
    pair = [variant_profile("bloom", v, n, reading="both") for v in "bc"]
    return {
        "controlled_w_a": pb.normalised_wasserstein(seen.bloom["a"], seen.measured),
        "controlled_w_b": read["b", "as published"],
        "controlled_w_c": read["c", "as published"],
        "controlled_published_n": n,
        "controlled_bloom_layers": len(contents),
        "controlled_bloom_contents": contents.size,
        "audit_heads": published.config("bloom").attention_config.num_heads,
        "audit_both": read["c", "both"],
        "audit_b_both": read["b", "both"],
        "audit_apart": pb.normalised_wasserstein(*pair),
        "audit_falcon": scales["falcon-rw-7b"],
        "audit_scale_low": min(scales.values()),
        "audit_scale_high": max(scales.values()),
    } | shape_numbers(seen)


def shape_numbers(seen: Audit) -> dict[str, Any]:
    """Return what the page quotes of the shapes and of the mixing."""
    depths = {place: pb.u_shape(p).depth for place, p in seen.profiles.items()}
    least = min(depths, key=lambda place: depths[place])
    built, fall = seen.built, falling(seen)
    found: dict[str, Any] = {
        "controlled_shapes": len(depths),
        "controlled_models": len(MODELS),
        "controlled_least": depths[least],
        "controlled_least_of": LABEL[least[0]],
        "controlled_most": max(depths.values()),
        "controlled_built_u": sum(pb.u_shape(p).present for p in built.values()),
        "controlled_null": sum(pb.u_shape(p).present for p in seen.blind.values()),
        "controlled_later_built": len(later_in(with_content(built), built)),
        "controlled_reversed": len(later_in(seen.opposite["as published"], seen.profiles)),
        "controlled_reversed_built": len(later_in(seen.opposite["both"], built)),
        "controlled_stand": len(fall),
        "controlled_fall": " and ".join(fall),
        "controlled_bloom_trend": trends(seen.schedules).loc["bloom", "correlation"],
    }
    for key, profiles in (("later", seen.profiles), ("later_built", built)):
        steps = steps_later(profiles)
        found |= {f"controlled_{key}_low": steps.min(), f"controlled_{key}_high": steps.max()}
    return found

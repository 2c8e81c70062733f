"""What is kept of the ten small models: their influence, and every prediction of it, by model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, spearman, total_variation, unit
from posbias.comparison.fits import power_fit
from posbias.predict import NAMES
from studies.ladder.alignment_tables import limits_of
from studies.ladder.rung_tables import all_profiles
from studies.palette import MODEL_COLOURS
from studies.results import load, of_kind

MODELS = tuple(MODEL_COLOURS)
MEASURES: Mapping[str, Callable[..., float]] = {
    "W1": normalised_wasserstein,
    "total variation": total_variation,
    "rank correlation": spearman,
}
"""The three numbers by which a prediction is judged."""
POWERS = np.arange(0.4, 1.41, 0.01)
"""Powers to which contributions are raised."""

Entries = Mapping[str, xr.Dataset]
Profiles = dict[str, Float[np.ndarray, "n"]]


@dataclass(frozen=True)
class Small:
    """Hold what the studies keep of the ten models; each part is read when it is first asked for."""

    resamples: int = 2000

    @cached_property
    def judged(self) -> dict[str, xr.Dataset]:
        """Influence, and rollouts of attention, on 256 prompts."""
        return of_kind(load("models"), "builtin", MODELS)

    @cached_property
    def shares(self) -> dict[str, xr.Dataset]:
        """Predictions by shares of parts, on the first 32 of these prompts."""
        return of_kind(load("contributions"), "shares", MODELS)

    @cached_property
    def rungs(self) -> dict[str, xr.Dataset]:
        """Gradients that are simplified step by step, on the same 32."""
        return of_kind(load("ladder"), "rungs", MODELS)

    @cached_property
    def between(self) -> dict[str, xr.Dataset]:
        """Head gains, added as squares, as sizes, and in between."""
        return of_kind(load("ladder"), "between", MODELS)

    @cached_property
    def turned(self) -> dict[str, xr.Dataset]:
        """Gradients turned, or projected on fewer directions."""
        return of_kind(load("ladder"), "turned", MODELS)

    @cached_property
    def measured(self) -> Profiles:
        """The measured profile of each model, of all its prompts."""
        return {m: profile_of(x["influence_prompts"].values) for m, x in self.judged.items()}

    @cached_property
    def of_shares(self) -> dict[str, Profiles]:
        """By model, predictions by shares, two yardsticks, and what is fitted on the other models."""
        found = {m: self._shares_of(m) for m in MODELS}
        powers = {m: self._powers_of(found[m]["contributions"], m) for m in MODELS}
        table, far = pd.DataFrame(powers), np.arange(256, 0, -1.0)
        for m, own in found.items():
            mean = table.drop(columns=m).mean(axis=1)
            own["raised"] = unit(own["contributions"] ** mean["raised"])
            own["power-others"] = unit(far ** -mean["power-others"])
        return found

    def _shares_of(self, m: str) -> Profiles:
        x, p = self.shares[m], self.measured[m]
        names = [NAMES.get(name, name) for name in x["prediction"].values]
        found = dict(zip(names, unit(x["profile"].values), strict=True))
        return found | {"power-law": power_fit(p), "even": np.full(p.size, 1 / p.size)}

    def _powers_of(self, contributions: Float[np.ndarray, "n"], m: str) -> dict[str, float]:
        """Return the powers of contributions and of the distance from the end that are nearest."""
        p, found = self.measured[m], {}
        for name, x in (("raised", contributions), ("power-others", 1 / np.arange(256, 0, -1.0))):
            apart = [normalised_wasserstein(unit(x**g), p) for g in POWERS]
            found[name] = float(POWERS[np.argmin(apart)])
        return found

    @cached_property
    def limits(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Head gains squared and added, with attention from positions alone."""
        return {m: limits_of(x, "content-free") for m, x in self.between.items()}

    @cached_property
    def of_rungs(self) -> dict[str, Profiles]:
        """By model, every rung from the gradient to the rollout, and the last token."""
        return {m: all_profiles(x, self.judged[m], self.limits[m]) for m, x in self.rungs.items()}

    @cached_property
    def exact(self) -> Profiles:
        """The measured profile of the 32 prompts of the rungs."""
        return {m: profile_of(x["influence_prompts"].values) for m, x in self.rungs.items()}


def profile_of(influence: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "n"]:
    """Return the profile of prompts: their sum, made to sum to 1.

    >>> profile_of(np.array([[1.0, 1.0], [0.0, 2.0]])).tolist()
    [0.25, 0.75]
    """
    return unit(influence.sum(0, dtype=np.float64))


def distances(profiles: Mapping[str, np.ndarray], to: Mapping[str, np.ndarray], measure: str = "W1") -> pd.Series:
    """Return how far each model's prediction is from what was measured."""
    how = MEASURES[measure]
    return pd.Series({m: how(p, to[m]) for m, p in profiles.items()})

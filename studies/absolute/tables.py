"""Leakage of absolute position as tables: estimates with resamples, by source, by kinds of pairs, of head groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import false_discovery_control

from posbias.comparison.resampling import interval

LEVEL = 0.05
"""At which false discoveries are controlled."""


@dataclass(frozen=True)
class Estimate:
    """Hold a number and what resamples of the documents give for it."""

    value: float
    draws: Float[np.ndarray, "B"]

    @property
    def low(self) -> float:
        """Return the lower end of the interval at 95%."""
        return float(interval(self.draws)[0])

    @property
    def high(self) -> float:
        """Return the upper end of the interval at 95%."""
        return float(interval(self.draws)[1])

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the difference, resample by resample."""
        return Estimate(self.value - other.value, self.draws - other.draws)

    def __truediv__(self, other: Estimate) -> Estimate:
        """Return the ratio, resample by resample."""
        return Estimate(self.value / other.value, self.draws / other.draws)

    def __format__(self, form: str) -> str:
        """Return the number and its interval, each in ``form``.

        >>> f"{Estimate(0.5, np.linspace(0, 1, 101)):.2f}"
        '0.50 (0.03 … 0.97)'
        """
        return f"{self.value:{form}} ({self.low:{form}} … {self.high:{form}})"


def significant(p_values: Float[np.ndarray, "..."]) -> float:
    """Return the share of tests that are significant after Benjamini and Hochberg's control at 5%.

    >>> significant(np.array([0.001, 0.9, 0.001, 0.8]))
    0.5
    """
    return float((false_discovery_control(p_values.ravel()) <= LEVEL).mean())


@dataclass(frozen=True)
class Kept:
    """Read estimates off the kept measurements of components."""

    data: Any

    def variance(self, condition: str, part: str, layers: slice = slice(None)) -> Estimate:
        """Return the leaked variance of a part, heads of some layers added."""
        x = self.data.sel(condition=condition, part=part).isel(layer=layers)
        return Estimate(float(x["variance"].sum()), x["resampled"].sum("layer").values.astype(float))

    def share(self, condition: str, part: str) -> Estimate:
        """Return the leaked share of a part's variance."""
        x = self.data.sel(condition=condition, part=part)
        return Estimate(float(x["variance"].sum() / x["spread"].sum()), x["resampled_share"].values.astype(float))

    def balance(self, condition: str, layers: slice = slice(None)) -> Estimate:
        """Return the residual stream's part of the two components' sum."""
        left, right = (self.variance(condition, part, layers) for part in ("residual", "denominators"))
        return Estimate(left.value / (left.value + right.value), left.draws / (left.draws + right.draws))

    def p_values(self) -> Any:
        """Return the p-values, which are kept in 32 bits, as the shares of flips that they are."""
        return self.data["p_value"].round(6)

    def heads(self, condition: str, part: str) -> float:
        """Return the share of heads with significant leakage after control."""
        return significant(self.p_values().sel(condition=condition, part=part).values)

    def tests(self) -> dict[str, int]:
        """Return how many tests there are, how many have p at or below 5%, and how many are left after control."""
        p = self.p_values().values.ravel()
        p = p[np.isfinite(p)]
        left = int((false_discovery_control(p) <= LEVEL).sum())
        return {"tests": int(p.size), "raw": int((p <= LEVEL).sum()), "controlled": left}


def start_table(data: Any, times: float = 2.0) -> pd.DataFrame:
    """Return what stands at position 0 and who reads it, a row for each reading with or without a start token.

    ``first_layer``, ``middle`` and ``last`` are the spread of position 0's trajectory where it enters layer 2, where it
    enters the middle layer and where it leaves the last; ``peers`` the largest difference between prompts of one first
    token; ``sinks`` the share of heads that give position 0 at least ``times`` what uniform attention does,
    ``attention`` the largest mean attention to it, ``varies`` the share of these heads' outputs in which prompts
    differ, mean over those heads, and ``others`` that of all other heads.
    """
    rows = []
    for name in data["reading"].values.tolist():
        x = data.sel(reading=name)
        first = x["first"].mean("prompt").values
        there = np.isfinite(first)
        sinks = there & (first >= times * x["uniform"].values[:, None])
        path = x["path"].values
        groups = [x["varies"].values[which] for which in (sinks, there & ~sinks)]
        varies = [float(y.mean()) if y.size else float("nan") for y in groups]
        model, start = name.rsplit(" ", 1)
        middle = path.size // 2
        figures = (path[1], path[middle], path[-1], float(x["peers"]))
        rows.append((model, start, *map(float, figures), sinks.sum() / there.sum(), float(first[there].max()), *varies))
    columns = ["model", "start", "first_layer", "middle", "last", "peers", "sinks", "attention", "varies", "others"]
    return pd.DataFrame(rows, columns=columns)

"""The prompts of a measurement as a sample: its profile, resamples of it, and whether it has a U."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from posbias import errors
from posbias.comparison.multiplicity import holm, sign_p_value
from posbias.comparison.resampling import interval, resampled_profiles
from posbias.rollout.profiles import TOLERANCE

SMOOTH = 9
"""Width of the running mean under a trough, in tokens."""
LEVEL = 0.05
"""Level at which a family of comparisons is decided."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Hold the influence of every prompt of a measurement, not normalised, and the unit that each prompt is from.

    Two samples are equal if they are the same object, so that what is drawn of one can be kept.
    """

    influence: Float[np.ndarray, "N n"]
    units: Int[np.ndarray, "N"]

    @property
    def profile(self) -> Float[np.ndarray, "n"]:
        """The influence profile of all prompts."""
        return self.influence.sum(0) / self.influence.sum()

    def resampled(self, resamples: int, seed: int = 0) -> Float[np.ndarray, "B n"]:
        """Return the profiles of resampled units."""
        return resampled_profiles(self.influence, resamples, units=self.units, seed=seed)


def u_excess(profiles: Float[np.ndarray, "B n"], *, smooth: int = SMOOTH, ends: int = 1) -> Float[np.ndarray, "B"]:
    """Return by how much the lower end of profiles is above their trough and its tolerance, times n.

    Above 0 where :func:`~posbias.rollout.profiles.u_shape` says that a U is present, with the same widths.

    >>> u_excess(np.array([[0.4, 0.1, 0.1, 0.1, 0.2, 0.1], [0.1, 0.1, 0.1, 0.1, 0.5, 0.1]]), smooth=1).round(3).tolist()
    [0.57, -0.03]
    """
    q = profiles[:, :-1]
    half = smooth // 2
    total = np.cumsum(np.pad(q, ((0, 0), (1, 0))), axis=1)
    level = (total[:, smooth:] - total[:, :-smooth]) / smooth
    first, last = max(ends, half), min(q.shape[1] - ends, q.shape[1] - half)
    trough = level[:, first - half : last - half].min(1)
    lower = np.minimum(q[:, :ends].mean(1), q[:, -ends:].mean(1))
    return np.asarray(profiles.shape[1] * (lower - (1 + TOLERANCE) * trough))


@lru_cache(maxsize=64)
def _drawn_excess(sample: Sample, resamples: int, smooth: int) -> Float[np.ndarray, "B"]:
    """Return :func:`u_excess` of resampled units."""
    return u_excess(sample.resampled(resamples), smooth=smooth)


def u_decisions(samples: Mapping[str, Sample], *, smooth: int = SMOOTH, resamples: int = 1000) -> pd.DataFrame:
    """Return for each model whether its profile has a U, with the models' number taken into account.

    Columns: ``excess`` of :func:`u_excess` with its 95% interval, ``excess_low`` to ``excess_high``; ``adjusted``,
    Holm's p value over the models; ``u``: yes or no where that is at most :data:`LEVEL`, open elsewhere.
    """
    least = int(np.ceil(2 * len(samples) / LEVEL))
    if resamples < least:  # no model could be decided
        raise errors.invalid("resamples", f"at least {least} for {len(samples)} models", resamples)
    rows, p_values = {}, []
    for name, sample in samples.items():
        excess = float(u_excess(sample.profile[None], smooth=smooth)[0])
        drawn = _drawn_excess(sample, resamples, smooth)
        low, high = interval(drawn)
        p_values.append(sign_p_value(np.where(drawn > 0, 1.0, -1.0)))
        rows[name] = {"excess": excess, "excess_low": float(low), "excess_high": float(high)}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
    table["adjusted"] = holm(np.array(p_values))
    sure = table["adjusted"] <= LEVEL
    return table.assign(u=np.where(sure, np.where(table["excess"] > 0, "yes", "no"), "open"))

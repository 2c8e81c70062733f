"""Rollouts whose skip and branch are joined at right angles, beside plain ones, for measurements of many models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import xarray as xr

from posbias.comparison.distances import normalised_wasserstein
from posbias.comparison.scores import Gain, paired_gain
from posbias.measure.prompt_units import known_units
from posbias.measure.rollouts import measured_rollout
from posbias.report.scoring import unit, with_decisions
from posbias.rollout.profiles import mean_position
from studies.ladder.joining import joined_profile

POWERS = {"sizes": 1.0, "angles": 2.0}
"""How what comes by the skip and by the branch is added, as the power of :mod:`studies.ladder.joining`."""

COLUMNS = ("model", "kernel", "sizes", "angles", *Gain._fields, "mean_measured", "mean_sizes", "mean_angles")


def join_table(
    kept: Mapping[str, xr.Dataset], kernels: Sequence[str] = ("b",), *, resamples: int = 1000
) -> pd.DataFrame:
    """Return W₁ of rollouts with either join, for every measurement and kernel a row.

    ``sizes`` and ``angles`` are distances to the measured influence, ``gain`` (with its 95 % interval over documents,
    ``low`` to ``high``) is the first less the second, ``decided`` its sign where it stands among all models;
    ``mean_…`` are mean positions.

    Parameters
    ----------
    kept
        Model → measurement or summary.
    kernels
        ``b``: content-free; ``c``: with content; ``kernels``: the measured ones, which summaries lack.
    resamples
        Of the bootstrap over documents.
    """
    rows = []
    for model, x in kept.items():
        p, prompts, units = unit(x["influence"].values), x["influence_prompts"].values, known_units(x)
        for kernel in kernels:
            rollout = measured_rollout(x, kernel)
            A = rollout.dense()
            joined = {name: joined_profile(A, rollout.lambda_, power=power) for name, power in POWERS.items()}
            gain = paired_gain(prompts, joined["sizes"], joined["angles"], units=units, resamples=resamples)
            distances = [normalised_wasserstein(q, p) for q in joined.values()]
            rows.append((model, kernel, *distances, *gain, *map(mean_position, (p, *joined.values()))))
    return with_decisions(pd.DataFrame(rows, columns=list(COLUMNS)), ["kernel"])


def power_table(kept: Mapping[str, xr.Dataset], powers: Sequence[float], kernel: str = "b") -> pd.DataFrame:
    """Return W₁ of rollouts that join skip and branch by (xʳ + yʳ)^(1/r), a row for each model, a column for each r.

    Parameters
    ----------
    kept
        Model → measurement or summary.
    powers
        r ≥ 1: 1 adds sizes, 2 is Pythagoras, and more approaches the larger of both.
    kernel
        As in :func:`join_table`.
    """
    found = {}
    for model, x in kept.items():
        p, rollout = unit(x["influence"].values), measured_rollout(x, kernel)
        A = rollout.dense()
        profiles = [joined_profile(A, rollout.lambda_, power=power) for power in powers]
        found[model] = [normalised_wasserstein(q, p) for q in profiles]
    return pd.DataFrame.from_dict(found, "index", columns=list(powers)).rename_axis("model")

"""How skip and attention branch add up: as sizes, as in a rollout, or as vectors at right angles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, unit
from posbias.comparison.multiplicity import decide
from posbias.comparison.resampling import resampled_profiles
from posbias.comparison.scores import paired_gain
from posbias.errors import Numbers
from posbias.measure.corpus import known_units
from posbias.measured_kernels import dense, position_kernels
from posbias.rollout.profiles import mean_position

JOINS = {"sizes": 1.0, "angles": 2.0}
"""How skip and branch add up: as sizes, or as vectors at right angles (the power of :func:`joined_profile`)."""


def joined_profile(
    A: Float[np.ndarray, "T n n"], lambda_: Numbers, *, power: float = 1.0, row: int = -1
) -> Float[np.ndarray, "n"]:
    """Return v_0 of v_T = e_row and v_{t-1} ∝ (((1-λ_t) v_t)^r + ((λ_t v_t) A_t)^r)^{1/r}: the influence profile.

    The power r is 1 for sizes, as in a rollout, and 2 for vectors at right angles; what different queries send to one
    key is added as sizes in either case.

    Source: this project.

    >>> A = np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    >>> joined_profile(A, [0.2, 0.4]), joined_profile(A, [0.2, 0.4], power=2.0).round(3)
    (array([0.28, 0.72]), array([0.272, 0.728]))
    """
    v = np.zeros(A.shape[1])
    v[row] = 1.0
    for A_t, mixing in zip(A[::-1], np.asarray(lambda_)[::-1], strict=True):
        around, through = (1 - mixing) * v, mixing * v @ A_t
        v = around + through if power == 1 else (around**power + through**power) ** (1 / power)
        v = v / v.sum()
    return v


def join_table(kept: Mapping[str, xr.Dataset], *, resamples: int = 1000) -> pd.DataFrame:
    """Return W₁ of rollout (b) with either join, for every summary (by model) a row.

    ``sizes`` and ``angles`` are distances to the measured influence, ``gain`` (with its 95% interval over documents,
    ``low`` to ``high``) is the first less the second, ``decided`` its sign where it stands among all models;
    ``mean_…`` are mean positions.
    """
    rows = []
    for model, x in kept.items():
        p, prompts = unit(x["influence"].values), x["influence_prompts"].values
        lambda_ = x["lambda_frobenius"].values.astype(np.float64)
        A = dense(position_kernels(x), lambda_.size, p.size)
        joined = {name: joined_profile(A, lambda_, power=power) for name, power in JOINS.items()}
        drawn = resampled_profiles(prompts, resamples, units=known_units(x))
        gain = paired_gain(prompts, joined["sizes"], joined["angles"], drawn)
        rows.append(
            {"model": model}
            | {name: normalised_wasserstein(q, p) for name, q in joined.items()}
            | gain._asdict()
            | {f"mean_{name}": mean_position(q) for name, q in {"measured": p, **joined}.items()}
        )
    table = pd.DataFrame(rows)
    return table.assign(decided=decide(table["gain"].to_numpy(), table["p_value"].to_numpy()))

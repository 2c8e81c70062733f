"""Untrained networks with designed position biases: measured influence beside both laws, and how near each is to even.

A file holds one body with the family's own initialisation, or with weights of standard deviation 1/√D, for every bias
and several seeds of the weights. Total mixing τ = Σλ is measured on the body without biases; the logarithmic and the
flat bias are those that theory gives for it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from posbias import errors
from posbias.comparison.distances import normalised_wasserstein
from posbias.measure.study import Settings, Study
from posbias.measure.untrained import Birth
from posbias.measure.untrained_profiles import MEANING, SEEDS, read_network
from posbias.provenance import versions
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.profiles import mean_position

INITS = ("default", "unit")
BIASES = ("none", "alibi", "log", "flat", "mixed")
STEEP = 0.5
"""Slope of local heads in logits a token: the steepest of the rule for 8 heads."""
LEAST = 0.05
"""Total mixing that flat biases are made for at least."""
DIGITS = 3
"""Digits of an exponent and of a mixing in a description."""
LAWS = ("b", "birth", "aligned")
"""Predictions in a table: the rollout of measured λ, the law at birth, and the same numbers with sizes added."""
KEPT = ("influence_prompts", "profile", "lambda_frobenius", "branch_gain", "step_gain")


def designed_biases(tau: float, heads: int) -> dict[str, Any]:
    """Return the descriptions of :data:`BIASES` for a body of total mixing τ, by name.

    ``log`` has α = τ - 1; ``flat`` the τ of the body; in ``mixed`` half of the heads are steep ALiBi, so that half of
    the hops are local, and half are flat with τ/2.

    Source: ours; the chapter on designing the prior.

    >>> designed_biases(2.4, 2)["log"]
    {'kind': 'log', 'alpha': 1.4}
    """
    flat, half = (round(max(x, LEAST), DIGITS) for x in (tau, tau / 2))
    local = {"kind": "alibi", "slope": STEEP}
    return {
        "none": {"kind": "none"},
        "alibi": [{"kind": "alibi", "slope": float(m)} for m in alibi_slopes(heads)],
        "log": {"kind": "log", "alpha": round(tau - 1, DIGITS)},
        "flat": {"kind": "flat", "tau": flat},
        "mixed": [local] * (heads // 2) + [{"kind": "flat", "tau": half}] * (heads - heads // 2),
    }


def measure_designs(settings: Settings, init: str, *, seeds: int = SEEDS) -> xr.Dataset:
    """Measure a body at birth with every bias of :data:`BIASES`, and compute what both laws predict.

    Parameters
    ----------
    settings
        Of a source that draws its weights.
    init
        ``default``: as the family draws them; ``unit``: of standard deviation 1/√D, D the width.
    seeds
        Networks for each bias; the seed also draws the prompts.

    Raises
    ------
    ValueError
        For a source with weights, and for an unknown ``init``.
    """
    networks = networks_at_birth(settings, init, seeds)
    plain = _over_seeds(networks, {"kind": "none"})
    tau = float(plain["lambda_frobenius"].sum("layer").mean())
    descriptions = designed_biases(tau, int(networks[0].source.config().num_attention_heads))
    found = [plain, *(_over_seeds(networks, descriptions[name]) for name in BIASES[1:])]
    out = xr.concat(found, "bias").astype(np.float32).assign_coords(bias=list(BIASES))
    for name, x in out.data_vars.items():
        x.attrs["long_name"] = MEANING[str(name)]
    return out.assign_attrs(provenance_of_seeds(networks, seeds) | versions("numpy")).assign_attrs(
        init=init, tau=tau, position_biases=json.dumps(descriptions)
    )


def networks_at_birth(settings: Settings, init: str, seeds: int) -> list[Settings]:
    """Return the settings of a body at birth for each seed, of the weights and of the prompts.

    Parameters
    ----------
    settings, init, seeds
        As :func:`measure_designs` has them.

    Raises
    ------
    ValueError
        For a source with weights, and for an unknown ``init``.
    """
    if init not in INITS:
        raise errors.invalid("init", " or ".join(INITS), init)
    if not isinstance(settings.source, Birth):
        raise errors.invalid("source", "a network at birth", settings.source.model)
    spread = None if init == "default" else float(settings.source.config().hidden_size) ** -0.5
    return [
        replace(settings, source=replace(settings.source, seed=seed, spread=spread), seed=seed) for seed in range(seeds)
    ]


def _over_seeds(networks: list[Settings], description: Any) -> xr.Dataset:
    """Measure networks of all seeds with one bias."""
    sources: list[Any] = [replace(x.source, position_bias=description) for x in networks]  # type: ignore[call-arg]
    studies = [Study(replace(x, source=source)) for x, source in zip(networks, sources, strict=True)]
    return xr.concat([read_network(study)[list(KEPT)] for study in studies], "seed")


def provenance_of_seeds(networks: list[Settings], seeds: int) -> dict[str, Any]:
    """Return where the numbers come from, of the body without biases."""
    last, found = f"seed {seeds - 1}", Study(networks[-1]).provenance()
    return found | {
        "seed": f"0 to {seeds - 1}",
        "revision": found["revision"].removesuffix(last) + f"seeds 0 to {seeds - 1}",
        "prompts_sha256": f"{found['prompts_sha256']} ({last}'s)",
    }


def design_table(data: xr.Dataset) -> pd.DataFrame:
    """Return how near each bias's measured influence is to the predictions, and how near all are to even.

    Parameters
    ----------
    data
        From :func:`measure_designs`.

    Returns
    -------
    table : DataFrame
        A row for each bias and seed. ``measured``, and each of :data:`LAWS`: W₁ to the uniform profile;
        ``to b``, …: W₁ of the measured profile to the prediction; ``mean``: mean position of the measured profile;
        ``tau``: Σλ.
    """
    rows = []
    even = np.full(data.sizes["position"], 1 / data.sizes["position"])
    for bias in data["bias"].values:
        for seed in range(data.sizes["seed"]):
            one = data.sel(bias=bias).isel(seed=seed)
            p = one["influence_prompts"].values.astype(np.float64).mean(0)
            p /= p.sum()
            laws = {name: one["profile"].sel(prediction=name).values for name in LAWS}
            row = {"bias": str(bias), "seed": seed, "measured": normalised_wasserstein(p, even)}
            row |= {name: normalised_wasserstein(q, even) for name, q in laws.items()}
            row |= {f"to {name}": normalised_wasserstein(p, q) for name, q in laws.items()}
            rows.append(row | {"mean": mean_position(p), "tau": float(one["lambda_frobenius"].sum())})
    return pd.DataFrame(rows)

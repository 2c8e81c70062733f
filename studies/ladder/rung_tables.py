"""The ladder in tables: every rung, and what gives up the network's own maps, against the measured influence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import unit
from posbias.comparison.resampling import resampled_profiles
from posbias.measure.corpus import known_units
from posbias.predict import find
from posbias.report.scoring import gain_rows
from studies.ladder import scores
from studies.ladder.scores import with_decisions

OWN = "own"
"""The pairing in which each prompt keeps its own layers."""
ROTARY = "rotary"
"""The rung of positions alone with the kernels of mean queries and mean keys, in rotary models."""
SHIFTED = "shifted"
"""The same as positions alone, but each query looks one token further back: what an error would cost."""
ENCODINGS = {
    "ALiBi": ("bloom-8", "bloom-12", "bloom-24", "mpt-12", "falcon-12"),
    "rotary": ("llama-12", "llama-ntk-12", "mistral-12"),
    "learned or none": ("gpt2-12", "nope-12"),
}
"""Position encodings, with the reference models that have them."""
STEPS = ("independent", "fixed-attention", "vectors", "positions")
"""The rungs that keep the network's own value maps."""
LABELS = {rung: find(rung).label for rung in STEPS} | {ROTARY: "(mean queries and keys)"}
LABELS |= {"law": find("head-gains-squared").label} | {name: scores.LABELS[name] for name in ("aligned", *"ba", "last")}
"""Every rung in its order, then a baseline, as a page writes them."""

Entries = Mapping[str, xr.Dataset]
Profiles = Mapping[str, np.ndarray]
"""By model."""
Limits = Mapping[str, tuple[np.ndarray, np.ndarray]]


def rung_profiles(x: xr.Dataset, pairing: str | None = None) -> dict[str, Float[np.ndarray, "n"]]:
    """Return the profile of every rung of an entry: over all random pairings, or of one."""
    if pairing is None:
        found = x["rung_mean"]
    else:
        found = x["rung_pairings"].sel(pairing=pairing)
    return {str(rung): unit(found.sel(rung=rung).values) for rung in x["rung"].values if found.sel(rung=rung).any()}


def all_profiles(x: xr.Dataset, measurement: xr.Dataset | None, limits: tuple[np.ndarray, np.ndarray] | None) -> dict:
    """Return the rungs, the law and the aligned sum, the rollouts of a measurement, and the last token."""
    found = {name: p for name, p in rung_profiles(x).items() if name in LABELS}
    if limits is not None:
        found |= dict(zip(("law", "aligned"), map(unit, limits), strict=True))
    if measurement is not None:
        found |= {variant: unit(measurement["rollout"].sel(variant=variant).values) for variant in "ba"}
    found["last"] = np.eye(x.sizes["position"])[-1]
    return {name: found[name] for name in LABELS if name in found}


def decisions(rungs: Entries, before: Profiles, after: Profiles, *, resamples: int = 1000) -> pd.Series:
    """Return for each model whether the second profile is nearer (1), further (-1) or neither (0), by Holm."""
    tables = []
    for model, x in rungs.items():
        both = {"before": before[model], "after": after[model]}
        influence = x["influence_prompts"].values
        drawn = resampled_profiles(influence, resamples, units=known_units(x))
        found = gain_rows(influence, both, [("before", "after")], drawn)
        tables.append(found.assign(model=model))
    return with_decisions(pd.concat(tables, ignore_index=True), ["before"]).set_index("model")["decided"]

"""The ladder in tables: every rung, and what gives up the network's own maps, against the measured influence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.comparison.distances import normalised_wasserstein, unit
from posbias.measure.corpus import known_units
from posbias.predict import find
from posbias.report.scoring import gain_rows, score_rows
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


def rung_table(rungs: Entries, kept: Entries, limits: Limits, *, resamples: int = 1000) -> pd.DataFrame:
    """Return the score of every rung for every model, a row each, with intervals over documents."""
    tables = []
    for model, x in rungs.items():
        profiles = all_profiles(x, kept.get(model), limits.get(model))
        found = score_rows(x["influence_prompts"].values, profiles, units=known_units(x), resamples=resamples)
        tables.append(found.assign(model=model))
    return pd.concat(tables, ignore_index=True)


def gain_table(
    rungs: Entries, kept: Entries, limits: Limits, pairs: Sequence[tuple[str, str]], *, resamples: int = 1000
) -> pd.DataFrame:
    """Return by how much the second of each pair is nearer than the first, for every model that has both."""
    tables = []
    for model, x in rungs.items():
        profiles = all_profiles(x, kept.get(model), limits.get(model))
        both = [pair for pair in pairs if set(pair) <= set(profiles)]
        found = gain_rows(x["influence_prompts"].values, profiles, both, units=known_units(x), resamples=resamples)
        tables.append(found.assign(model=model))
    return with_decisions(pd.concat(tables, ignore_index=True), ["before", "after"])


def pairing_table(rungs: Entries) -> pd.DataFrame:
    """Return W₁ by model and rung: of prompts' own layers, of random pairings, and of one pairing to all on average."""
    rows = []
    for model, x in rungs.items():
        exact = unit(x["influence_prompts"].values.sum(0))
        own, both = rung_profiles(x, OWN), rung_profiles(x)
        single = [rung_profiles(x, str(pairing)) for pairing in x["pairing"].values[1:]]
        for rung in both:
            rows.append({
                "model": model, "rung": rung,
                "own": normalised_wasserstein(own[rung], exact) if rung in own else np.nan,
                "random": normalised_wasserstein(both[rung], exact),
                "apart": np.mean([normalised_wasserstein(each[rung], both[rung]) for each in single]),
            })  # fmt: skip
    return pd.DataFrame(rows)


def decisions(rungs: Entries, before: Profiles, after: Profiles, *, resamples: int = 1000) -> pd.Series:
    """Return for each model whether the second profile is nearer (1), further (-1) or neither (0), by Holm."""
    tables = []
    for model, x in rungs.items():
        both = {"before": before[model], "after": after[model]}
        how = {"units": known_units(x), "resamples": resamples}
        found = gain_rows(x["influence_prompts"].values, both, [("before", "after")], **how)
        tables.append(found.assign(model=model))
    return with_decisions(pd.concat(tables, ignore_index=True), ["before"]).set_index("model")["decided"]

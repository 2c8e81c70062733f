"""What deletion and heads name where a search for the answer does not find its source, in the page's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from studies.documents.tables import share_interval
from studies.results import load

INDIRECT, REAL = "smollm2.indirect", "smollm2.real-sources"
"""Entries of ``results/remedies.nc``."""


def reworded_numbers(entry: xr.Dataset) -> dict[str, Any]:
    """Return how often the document is named that states the answer in other words; question k is about document k."""
    asked = np.arange(entry.sizes["document"])
    named = {
        "deletion": entry["removed"].values.argmin(-1) == asked,
        "reader": entry["reader"].values == asked,
        "fetched": entry["fetched"].values == asked,
    }
    found: dict[str, Any] = {"sets": len(entry["set"]), "prompts": named["reader"].size}
    found["right"] = int(entry["correct"].sum())
    for name, hits in named.items():
        low, high = share_interval(hits.mean(1))
        found[name] = int(hits.sum())
        found[f"{name}_said"] = f"{hits.sum()} (95% interval {low:.0%} to {high:.0%})"
    return {f"reworded_{name}": x for name, x in found.items()}


def step_numbers(entry: xr.Dataset) -> dict[str, Any]:
    """Return, of answers that one document states, how often it is named, and the one that says which that is."""
    source, bridge = entry["two_source"].values, entry["two_bridge"].values
    known = source >= 0
    falls = -entry["two_removed"].values
    order = (-falls).argsort(-1)
    found = {
        "prompts": source.size,
        "right": int(entry["two_correct"].sum()),
        "known": int(known.sum()),
        "deletion": int((order[..., 0] == source)[known].sum()),
        "reader": int((entry["two_reader"].values == source)[known].sum()),
        "bridge": int((order[..., 0] == bridge)[known].sum()),
        "second": int((order[..., 1] == bridge)[known].sum()),
        "fetched": int((entry["two_fetched"].values == bridge).sum()),
    }
    return {f"steps_{name}": x for name, x in found.items()}


def real_numbers(entry: xr.Dataset) -> dict[str, Any]:
    """Return how often deletion names the passage that alone holds the answer to a real question."""
    source = entry["source"].values
    known = source >= 0
    named = entry["removed"].values.argmin(-1) == source
    last = source == entry.sizes["document"] - 1
    return {
        "real_sources": int(known.sum()),
        "real_sources_named": int(named[known].sum()),
        "real_sources_last": int(last[known].sum()),
    }


def numbers(kept: Mapping[str, xr.Dataset] | None = None) -> dict[str, Any]:
    """Return all numbers."""
    kept = load("remedies") if kept is None else kept
    found = reworded_numbers(kept[INDIRECT]) | step_numbers(kept[INDIRECT])
    return found | (real_numbers(kept[REAL]) if REAL in kept else {})

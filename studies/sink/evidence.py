"""What the chapter ``tokens`` says of the sink's silence: numbers, a table, and the check of Y-sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import xarray as xr

from studies import results
from studies.checks import Check, ranged
from studies.sink import tables

LIMITS = {"apart": 0.05, "first": 0.10, "last": 0.10, "loss": 0.05}
"""What may change, at most, if the sink is only a place to rest: distance, both ends, loss in nats."""


def load_evidence() -> Mapping[str, xr.Dataset]:
    """Return what ``results/sink.nc`` keeps of SmolLM2."""
    kept = results.load("sink")
    return {part: kept[f"smollm2.{part}"] for part in ("text", "answers", "layers") if f"smollm2.{part}" in kept}


def layer_table(entry: xr.Dataset) -> pd.DataFrame:
    """Return by layer what its silence alone costs and moves."""
    return tables.loss_table(entry).join(tables.change_table(entry, "gradient"))


def rows_shown(seen: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return the page's table: all layers, and the one layer whose silence costs most."""
    rows = shown(seen)
    if "layers" in seen:
        table = layer_table(seen["layers"])
        worst = table["loss"].idxmax()
        rows.loc[f"silent in layer {int(worst) + 1} alone"] = table.loc[worst]
    return rows


def ranges(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each number of a table with its interval."""
    table = pd.DataFrame(index=rows.index.rename("the first token is"))
    for name in LIMITS:
        table[name] = [ranged((x[name], x[f"{name} low"], x[f"{name} high"])) for _, x in rows.iterrows()]
    return table


def shown(seen: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return by arm the loss on text, and how far the profile and its ends move, with low and high behind each."""
    lost, moved = tables.loss_table(seen["text"]), tables.change_table(seen["text"], "gradient")
    return lost.join(moved).rename_axis("the first token is")


def numbers(seen: Mapping[str, xr.Dataset]) -> dict[str, Any]:
    """Return what the prose says of the silent sink."""
    silent = shown(seen).loc["silent"]
    right = tables.answer_table(seen["answers"]).loc["silent"]
    return {
        "sink_loss": silent["loss"], "sink_loss_low": silent["loss low"], "sink_loss_high": silent["loss high"],
        "sink_right": right["change"], "sink_right_low": right["low"], "sink_right_high": right["high"],
        "sink_sets": seen["answers"].sizes["context"], "sink_prompts": seen["text"].sizes["prompt"],
    }  # fmt: skip


def beyond(values: Mapping[str, float]) -> set[str]:
    """Return what changes by more than its limit, with its whole interval."""
    return {x for x, most in LIMITS.items() if min(abs(values[f"{x} low"]), abs(values[f"{x} high"])) > most}


def within(values: Mapping[str, float]) -> bool:
    """Say whether all changes are within their limits, with their whole intervals."""
    return all(max(abs(values[f"{x} low"]), abs(values[f"{x} high"])) <= most for x, most in LIMITS.items())


def sink_check(seen: Mapping[str, xr.Dataset]) -> Check:
    """Return the check of Y-sink."""
    silent = shown(seen).loc["silent"].to_dict()
    still = dict.fromkeys(silent, 0.0)
    louder = [{**still, f"{x} low": 2 * most, f"{x} high": 3 * most} for x, most in LIMITS.items()]
    return Check(
        "Y-sink", "", "The sink matters as a place to rest, not by what it says.", not beyond(silent),
        ", ".join(f"{x} {silent[x]:+.2f}" for x in LIMITS), "an interval lies wholly beyond its limit",
        {"one of four changes beyond twice its limit": [not beyond(x) for x in louder]},
        f"beyond the limit: {', '.join(sorted(beyond(silent)))}", {"undecided": not within(silent)},
    )  # fmt: skip

"""What the chapter ``networks`` says of networks on texts of known memory: numbers, a figure, and the checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from matplotlib.lines import Line2D

from posbias.comparison.distances import unit
from posbias.comparison.resampling import interval, resample_weights
from studies import results
from studies.checks import Check
from studies.memory.texts import LETTERS, TEXTS

NAMES = {"alibi": "ALiBi", "rope": "RoPE", "nope": "no positions"}
COLOURS = {"alibi": "#0072B2", "rope": "#D55E00", "nope": "#009E73"}
MARKERS = "osD"
LABELS = {"memory-1": "1", "memory-8": "8", "memory-64": "64", "copy-64": "64\n(copy)"}
GUESS, LEARNT, FACTOR, LEAST = float(np.log(LETTERS)), 0.5, 2, 0.10
"""Loss of a guess, nats; thresholds: what is learnt, how far a reach may be off, and what a left arm is beyond 1."""
PARTS, SEEDS = 16, 3
QUANTITIES = ("use", "gradient")


def reach(mean: Float[np.ndarray, "n"]) -> int:
    """Return the furthest distance from the next letter at which a profile is half of its greatest value, or more.

    The first eighth is left out.

    >>> reach(np.array([9.0, 9, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 3, 1, 1, 2]))
    5
    """
    n = len(mean)
    inner = mean[n // 8 :]
    return len(inner) - int(np.flatnonzero(inner >= inner.max() / 2)[0])


def half_distance(mean: Float[np.ndarray, "n"]) -> int:
    """Return the distance from the next letter within which a profile has half of its sum, or more.

    >>> half_distance(np.array([0.0, 0, 1, 0, 2, 2])), half_distance(np.array([9.0, 0, 0, 0, 0, 1]))
    (2, 6)
    """
    within = np.cumsum(mean[::-1])
    return int(np.flatnonzero(within >= within[-1] / 2)[0]) + 1


def optimal_half(text: str) -> float:
    """Return the distance within which optimal prediction has half of its use.

    >>> optimal_half("memory-8"), optimal_half("copy-64")
    (4.5, 64.0)
    """
    known = TEXTS[text]
    return float(known.memory) if known.copy else (known.memory + 1) / 2


def parts_of(rows: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N parts"]:
    """Return each prompt's mean over parts of it, the last letter aside; nan is left out."""
    parts = np.array_split(rows[:, :-1].astype(np.float64), PARTS, axis=1)
    return np.stack([np.nanmean(part, axis=1) for part in parts], axis=1)


def first_eighth(rows: Float[np.ndarray, "N n"]) -> tuple[float, float, float]:
    """Return the mean profile's first eighth, an equal share 1, with its 95 % interval over prompts."""
    parts = parts_of(rows)
    weights = np.concatenate([np.ones((1, len(parts))), resample_weights(len(parts))])
    found = (unit(weights @ parts) * PARTS)[:, : PARTS // 8].mean(1)
    low, high = interval(found[1:])
    return float(found[0]), float(low), float(high)


def load_evidence() -> pd.DataFrame:
    """Return a row for each network of ``results/memory.nc``."""
    return network_table(results.load("memory"))


def network_table(kept: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return by network what it has learnt, its reach on its own text, and its first eighth on independent letters."""
    rows = []
    for name, entry in kept.items():
        network, _, text = name.partition(".")
        for seed in entry["seed"].values.tolist():
            rows.append({"network": network, "text": text, "seed": seed} | read_network(entry.sel(seed=seed), text))
    return pd.DataFrame(rows)


def read_network(one: xr.Dataset, text: str) -> dict[str, Any]:
    """Return a network's row."""
    memory, gain = TEXTS[text].memory, GUESS - float(one["optimum"])
    row: dict[str, Any] = {"memory": memory, "loss": float(one["loss"]), "optimal half": optimal_half(text)}
    row["learnt"] = memory > 0 and bool(GUESS - row["loss"] >= LEARNT * gain)
    row["share"] = (GUESS - row["loss"]) / gain if memory else np.nan
    for quantity in QUANTITIES:
        own, free = (one[quantity].sel(text=x).values for x in ("own", "none"))
        row[f"{quantity} reach"] = reach(np.nanmean(own, axis=0))
        row[f"{quantity} half"] = half_distance(np.nanmean(own, axis=0))
        row |= dict(zip((f"{quantity} first", f"{quantity} low", f"{quantity} high"), first_eighth(free), strict=True))
    return row


def near(table: pd.DataFrame, quantity: str) -> pd.Series:
    """Say of each network whether its reach is within a factor of two of the memory."""
    found = table[f"{quantity} reach"]
    return (found <= FACTOR * table["memory"]) & (found * FACTOR >= table["memory"])


def near_half(table: pd.DataFrame, quantity: str) -> pd.Series:
    """Say of each network whether half of its profile lies within a factor of two of the optimal distance."""
    found, optimal = table[f"{quantity} half"], table["optimal half"]
    return (found <= FACTOR * optimal) & (found * FACTOR >= optimal)


def follows(table: pd.DataFrame, quantity: str) -> bool:
    """Say whether every network that has learnt its text has that reach."""
    return bool(near(table, quantity)[table["learnt"]].all())


def stays_behind(table: pd.DataFrame, quantity: str) -> list[str]:
    """Return the networks all of whose seeds have learnt a text, and none of which has that reach."""
    found = []
    for (network, text), rows in table.groupby(["network", "text"]):
        if len(rows) >= SEEDS and rows["learnt"].all() and not near(rows, quantity).any():
            found.append(f"{NAMES[str(network)]}, {text}")
    return found


def has_beginning(table: pd.DataFrame, quantity: str) -> pd.Series:
    """Say of each network whether its first eighth on independent letters is beyond an equal share."""
    return (table[f"{quantity} first"] >= 1 + LEAST) & (table[f"{quantity} low"] > 1)


def lacks_beginning(table: pd.DataFrame, quantity: str) -> pd.Series:
    """Say of each network whether the whole interval of its first eighth is below what a left arm has."""
    return table[f"{quantity} high"] < 1 + LEAST


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Return what the prose says of these networks."""
    learnt = table[table["learnt"]]
    found: dict[str, Any] = {"memory_networks": len(table), "memory_learnt": len(learnt)}
    for quantity in QUANTITIES:
        found[f"memory_near_{quantity}"] = int(near(learnt, quantity).sum())
        found[f"memory_half_{quantity}"] = int(near_half(learnt, quantity).sum())
        found[f"memory_left_{quantity}"] = int(has_beginning(table, quantity).sum())
    return found


def draw_halves(table: pd.DataFrame) -> None:
    """Draw the memory of the text across, and up within how many letters half of use and gradient lie."""
    _, axes = plt.subplots(1, 2, figsize=(6.4, 2.9), sharey=True)
    ticks = [1, 2, 4, 8, 16, 32, 64, 112]
    for ax, quantity in zip(axes, QUANTITIES, strict=True):
        for x, text in enumerate(LABELS):
            ax.plot([x - 0.35, x + 0.35], [optimal_half(text)] * 2, color="0.6", lw=4, alpha=0.6, zorder=0)
            for k, (network, colour) in enumerate(COLOURS.items()):
                rows = table[(table["network"] == network) & (table["text"] == text)]
                across = x + 0.2 * (k - 1) + 0.05 * (rows["seed"] - 1)
                for at, (_, row) in zip(across, rows.iterrows(), strict=True):
                    face = colour if row["learnt"] else "none"
                    ax.plot(at, row[f"{quantity} half"], MARKERS[k], ms=4.5, color=colour, markerfacecolor=face)
        ax.set(xlabel="memory of the text, letters", title=f"by {quantity}", yscale="log", xticks=range(len(LABELS)))
        ax.set_xticklabels(LABELS.values())
    axes[0].set(ylabel="half lies within, letters", yticks=ticks)
    axes[0].set_yticklabels(ticks)
    axes[0].minorticks_off()
    pairs = zip(MARKERS, COLOURS.items(), strict=True)
    handles = [Line2D([], [], ls="", marker=m, ms=4.5, color=colour, label=NAMES[x]) for m, (x, colour) in pairs]
    axes[1].legend(handles=handles, fontsize=8, loc="lower right")


def memories_exchanged(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as if what was read on one text had been read on another, whose memory is eight times that."""
    return table.assign(memory=table["memory"].map({0: 0, 1: 8, 8: 64, 64: 1}))


def memory_checks(table: pd.DataFrame) -> list[Check]:
    """Return the checks of what the end follows, and of whether the beginning is there, by use and by gradient."""
    found, learnt, exchanged = [], table[table["learnt"]], memories_exchanged(table)
    complete = len(table) == SEEDS * len(NAMES) * len(TEXTS)
    for quantity in QUANTITIES:
        behind = stays_behind(table, quantity)
        count = f"{near(learnt, quantity).sum()} of {len(learnt)} networks that learnt their text"
        found.append(Check(
            "Y-memory", f"end, {quantity}", f"By {quantity} the end follows the memory of the text.", not behind, count,
            "for one text no seed's reach is within a factor of two of the memory",
            {"texts exchanged": [not stays_behind(exchanged, quantity)]}, "; ".join(behind),
            {"undecided": not behind and not (complete and follows(table, quantity))},
        ))  # fmt: skip
        there, few = has_beginning(table, quantity), lacks_beginning(table, quantity)
        flat = table.assign(**{f"{quantity} {x}": 1.0 for x in ("first", "low", "high")})
        found.append(Check(
            "Y-memory", f"beginning, {quantity}", f"By {quantity} every network favours the beginning.", not few.any(),
            f"{there.sum()} of {len(table)} networks, on independent letters",
            "one network's whole interval is below 1.10 of an equal share",
            {"beginnings at an equal share": [not lacks_beginning(flat, quantity).any()]},
            f"{few.sum()} networks have less", {"undecided": not few.any() and not (complete and there.all())},
        ))  # fmt: skip
    return found

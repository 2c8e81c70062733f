"""The law in the book's small networks, which were trained to look a value up among competing ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.stats import spearmanr

from posbias.lookup.reading import count_sources, end_pulls, fit_law
from studies.reading.evidence import named, near_share
from studies.reading.rivals import led_by, sum_over_sets
from studies.reading.tables import Counts
from studies.results import load

ENCODINGS = ("alibi", "early", "log", "none", "rope", "steep")
"""Position encodings but for flat heads, which cannot see some places."""
EVEN, ENDS = "{}-T4-n16-one-even", "{}-T4-n32-one-ends"
"""Networks of four layers: 16 pairs, each place asked alike; 32 pairs, the two ends alone."""

ARMS = {"ends": "the two ends alone", "half": "every place, half learned"}
"""What training asked for, by the name of an entry's part."""
TITLES = {"alibi": "ALiBi", "rope": "RoPE"}


def trained_numbers() -> dict[str, float]:
    """Return how well places are found, and the γ that so many right answers in the middle would need."""
    kept = load("lookup")
    even = np.array([kept[EVEN.format(name)]["accuracy_1"].values.mean(0) for name in ENCODINGS])
    middle = even[:, 1:-1].mean(1, keepdims=True)
    inner = {}
    for name in ENCODINGS:
        inner[name] = float(kept[ENDS.format(name)]["accuracy_1"].values.mean(0)[1:-1].mean())
    return {
        "trained_worst": even.min(),
        "trained_gamma": 2 * np.arctanh(middle.min()),
        "trained_alibi": inner.pop("alibi"),
        "trained_rope": inner.pop("rope"),
        "trained_others": min(inner.values()),
    }


def answers_of(entry: xr.Dataset) -> Counts:
    """Return answers by set, place asked and place read; sets of the networks of all seeds in turn."""
    source = entry["source"].transpose("set", "seed", "asked").values.astype(int)
    return count_sources(source.reshape(-1, source.shape[-1]))


def from_ends(counts: Float[np.ndarray, "P P"]) -> tuple[float, float]:
    """Return which share of the wrong answers is from an end, and which would be if others were drawn at random.

    >>> from_ends(np.array([[0.0, 0, 1], [1, 0, 0], [0, 0, 5]]))
    (1.0, 0.75)
    """
    P, wrong = len(counts), counts * (1 - np.eye(len(counts)))
    others = np.full(P, 2) - np.isin(np.arange(P), (0, P - 1))
    by_chance = (wrong.sum(1) * others).sum() / (P - 1)
    return float(wrong[:, [0, -1]].sum() / wrong.sum()), float(by_chance / wrong.sum())


def source_numbers() -> dict[str, dict[str, Any]]:
    """Return by what training asked for and encoding where answers of the small networks come from."""
    kept, found = load("lookup"), {}
    for arm, asked in ARMS.items():
        for name, title in TITLES.items():
            if f"{name}.{arm}.sources" not in kept:
                continue
            entry = kept[f"{name}.{arm}.sources"]
            counts = answers_of(entry)
            total = counts.sum(0)
            ends, ends_chance = from_ends(total)
            sharpness, pulls, _ = fit_law(total)
            row: dict[str, Any] = {"right": total.trace() / total.sum(), "wrong": total.sum() - total.trace()}
            row |= {"near": near_share(total), "ends": ends, "ends_chance": ends_chance, "sharpness": sharpness}
            row |= dict(zip(("first", "last"), end_pulls(pulls), strict=True))
            row |= named("lead", sum_over_sets(led_by(counts)))
            for profile in ("rollout", "influence"):
                if f"{profile}_trained" in entry:
                    x = entry[f"{profile}_trained"].values.mean(0)[: len(pulls)]
                    row[profile] = spearmanr(x[1:-1], pulls[1:-1])[0]
            found[f"{asked}, {title}"] = row
    return found


def source_said(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return what the page says of the small networks' mistakes, as shares of them."""
    half = [x for name, x in found.items() if name.startswith(ARMS["half"])]
    said = {
        "trained_half_near_least": min(x["near"] for x in half),
        "trained_half_near_most": max(x["near"] for x in half),
        "trained_half_ends_most": max(x["ends"] for x in half),
        "trained_half_behind": -max(x["lead_high"] for x in half),
    }
    for name, title in TITLES.items():
        x = found[f"{ARMS['ends']}, {title}"]
        said |= {f"trained_ends_{key}_{name}": x[key] for key in ("near", "ends", "rollout", "sharpness")}
    return said


def source_table(found: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """Return the same as a page shows it."""
    rows = {}
    for name, x in found.items():
        rows[name] = {
            "right": f"{x['right']:.0%}",
            "mistakes": f"{x['wrong']:.0f}",
            "from a neighbour": f"{x['near']:.0%}",
            "from an end (by chance)": f"{x['ends']:.0%} ({x['ends_chance']:.0%})",
            "pulls of the ends": f"{x['first']:+.1f}, {x['last']:+.1f}",
            "law ahead of place with a bonus (95%)": f"{x['lead']:.0f} ({x['lead_low']:.0f} to {x['lead_high']:.0f})",
        }
    return pd.DataFrame(rows).T.rename_axis("training asked for")

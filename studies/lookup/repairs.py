"""Biases that were designed for finished networks: what they do for the places that are found worst."""

from __future__ import annotations

import numpy as np
import pandas as pd

from studies.checks import Check
from studies.lookup import pictures, tables
from studies.results import load

KINDS = ("steep", "alibi", "log", "early", "none", "rope", "flat")
SAID = {
    "intact": "as trained",
    "removed": "bias removed",
    "temperature": "content rescaled",
    "engine": "designed bias",
}
"""Conditions, and how a table names them."""


def four_times() -> pd.DataFrame:
    """Return what each condition does in prompts of four times the trained length, by positions and condition."""
    book = load("lookup")
    worst = {x: tables.worst_places(book[f"{x}-T4-n16-one-even.remedies"]) for x in KINDS}
    named = {pictures.LABELS[x]: one for x, one in worst.items()}
    return pd.concat(named, names=["positions"]).xs(4, level="times")


def repairs_shown() -> pd.DataFrame:
    """Return the share of values found in the worst eighth, by positions, under each condition."""
    shown = four_times()["worst"].unstack("condition")[[*SAID]].rename(columns=SAID)
    shown.loc[[pictures.LABELS[x] for x in ("none", "rope", "flat")], "bias removed"] = np.nan
    return shown.loc[[pictures.LABELS[x] for x in KINDS]]


def copied() -> dict[str, tuple[float, float]]:
    """Return what the worst eighth gains from a copy, as it is and with a bias that costs little, by model."""
    found = {}
    for model in ("llama-12", "bloom-12"):
        entry = load("lookup")[f"{model}.added"]
        made = zip(entry["remedy"].values, entry["choice"].values, strict=True)
        lowest = dict(zip(map(tuple, made), entry["score"].values.min(1), strict=True))
        found[model] = lowest["intact", "given"], lowest["chosen", "cheap"]
    return found


def lifts(one: pd.DataFrame, low: pd.Series) -> bool:
    """Say whether the worst part rises in every network where it is low, and the mean falls in none."""
    kept_all = (one["mean_gain"] > -0.01).all()
    return bool(low.any() and kept_all and (one["worst_gain_low"][low] > 0).all())


def repair_checks() -> list[Check]:
    """Return the checks of designed biases, in networks that look up and in two language models."""
    four = four_times()
    lifted, same = (four.xs(name, level="condition") for name in ("engine", "intact"))
    low, gains = same["worst"] < 0.95, copied()
    pairs = "; ".join(f"{x}: {a:.3f} to {b:.3f}" for x, (a, b) in gains.items())
    return [
        Check(
            "RT-remedy", "lookup networks",
            "In every lookup network that misses values the designed bias raises the worst part and costs nothing on "
            "average.", lifts(lifted, low),
            f"4 times the length: raised in {(lifted['worst_gain_low'] > 0).sum()} of 7 kinds",
            "the designed bias does not lift the worst eighth in every network where it is below .95, or costs .01 of "
            "the mean", {"nothing is added": [lifts(same, low)]},
            "where the prior is not the cause it does nothing or harm",
            {"in_part": bool((lifted["worst_gain_low"] > 0).any()), "post_hoc": True},
        ),
        Check(
            "RT-remedy", "language models",
            "In both language models a cheap designed bias raises copying where it is worst.",
            bool(all(b > a + 0.01 for a, b in gains.values())),
            f"copying at the worst eighth, nats: {pairs} with the bias of at most .1 nat",
            "the gain of the worst eighth of the places does not rise by .01 nats per token in both models, with a "
            "bias that costs at most .1", {"nothing is added": [bool(all(a > a + 0.01 for a, _ in gains.values()))]},
            "cheap biases make the rollout flatter and copying no better", {"post_hoc": True},
        ),
    ]  # fmt: skip

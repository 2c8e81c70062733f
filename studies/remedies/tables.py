"""What each remedy gains, heads that point, and how often an alarm is right: frames of ``results/remedies.nc``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float
from scipy.stats import binomtest

from posbias.comparison.multiplicity import holm
from posbias.comparison.resampling import interval, resample_weights
from posbias.lookup.scores import flip_p_value, paired_difference

AS_IS, FLOORS = "as-is", ("oracle", "closed-book")
LEVEL = 0.05
NOT_REMEDIES = (
    "as-is-32", "heads", "alarm", "searched", "likely-orders", "likely-again", "indirect", "real-sources",
    "real-search", "wrong-search", "real-alarm", "swapped",
)  # fmt: skip
"""Entries that are no condition; nor are those of real questions here."""
WORDS = {
    "as-is": "as is",
    "oracle": "the right document alone",
    "closed-book": "no documents",
    "heads-alone": "one document alone, by three heads",
    "heads-alone-2": "two documents, by three heads",
    "heads-first": "all documents, three heads' best first",
    "heads-last": "all documents, three heads' best last",
    "heads-ends": "all documents, three heads' best at both ends",
    "search-alone": "one document alone, by a search",
    "search-alone-2": "two documents, by a search",
    "search-last": "all documents, a search's order reversed",
    "search-ends": "all documents, a search's best at both ends",
    "search-two": "a search's first two documents, the first last",
    "one-by-one-likely": "one document alone, by question likelihood",
    "likely-last": "all documents, the likeliest last",
    "likely-first": "all documents, the likeliest first",
    "likely-two": "the two likeliest documents, the likeliest last",
    "one-by-one-likely-2": "two documents, by question likelihood",
    "one-by-one-confident": "one document alone, by its answer's confidence",
    "question-twice": "the question first and last",
    "everything-twice": "everything twice",
    "numbered": "the heading “Document 5 of 8”",
    "headed": "a name as heading of each document",
    "reversed": "all documents in reverse order",
    "rotated-2": "2 rotations, a vote",
    "rotated-4": "4 rotations, a vote",
    "rotated-8": "8 rotations, a vote",
    "rotated-2-mean": "2 rotations, mean probability",
    "rotated-4-mean": "4 rotations, mean probability",
    "rotated-8-mean": "8 rotations, mean probability",
    "parallel-windows": "documents that do not see one another",
    "heads-sharper-1.5": "ten heads sharper, × 1.5",
    "heads-sharper-2": "ten heads sharper, × 2",
    "all-sharper": "all heads sharper, × 1.25",
    "sink-off": "the first token's value off",
}
"""Conditions as a page names them."""


def right_of(kept: Mapping[str, xr.Dataset]) -> dict[str, Float[np.ndarray, "C P"]]:
    """Return right answers by set and place under each condition, by name without the model's."""
    names = {key.split(".", 1)[1]: key for key in kept}
    shown = [x for x in names if x not in NOT_REMEDIES and not x.startswith("questions")]
    return {name: kept[names[name]]["correct"].values.astype(float) for name in shown}


class Compared(ABC):
    """What has entries with right answers under remedies, and the table of what each gains."""

    @property
    @abstractmethod
    def entries(self) -> Mapping[str, xr.Dataset]:
        """Right answers under each condition, as is among them, and what they cost, by entry."""

    @cached_property
    def right(self) -> dict[str, Float[np.ndarray, "C P"]]:
        """Right answers by set, or by question, and place under each condition."""
        return right_of(self.entries)

    @cached_property
    def table(self) -> pd.DataFrame:
        """What each remedy gains and costs, the best first."""
        return remedy_table(self.entries)

    @property
    def tried(self) -> pd.DataFrame:
        """The same of remedies alone."""
        return self.table.drop([AS_IS, *FLOORS])


def gain_of(right: Mapping[str, Float[np.ndarray, "C P"]], name: str) -> Float[np.ndarray, "C"]:
    """Return by how much right answers are more than as is, by set; of sets that both have."""
    C = len(right[name])
    return np.asarray(right[name].mean(1) - right[AS_IS][:C].mean(1))


def p_said(p: float) -> str:
    """Return a p value in words.

    >>> p_said(0.0384), p_said(0.0001)
    ('0.038', 'below 0.001')
    """
    return f"{p:.3f}" if p >= 0.001 else "below 0.001"


def p_value(gain: Float[np.ndarray, "C"]) -> float:
    """Return p of the test that flips the signs of gains: exact where each is a win, a loss or nothing.

    >>> p_value(np.array([1.0] * 5 + [-1.0] + [0.0] * 4)), p_value(np.zeros(3))
    (0.21875, 1.0)
    """
    if not np.isin(gain, (-1, 0, 1)).all():
        return flip_p_value(gain)
    won, lost = int((gain > 0).sum()), int((gain < 0).sum())
    return float(binomtest(won, won + lost).pvalue) if won + lost else 1.0


def remedy_table(kept: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Return what each condition gains over all places alike, beside its worst place and its cost.

    ``p`` is adjusted by Holm over all remedies in the table, floors left out. ``verdict`` is
    ``helps``, ``does harm`` or ``undecided``.
    """
    right, rows = right_of(kept), {}
    for name, correct in right.items():
        entry = kept[f"smollm2.{name}"]
        by_place = correct.mean(0)
        gain = paired_difference(gain_of(right, name))
        rows[name] = {
            "sets": len(correct),
            "right": correct.mean(),
            "worst": by_place.min(),
            "gain": gain.mean,
            "low": gain.low,
            "high": gain.high,
            "p": p_value(gain_of(right, name)),
            "named": float(entry["kept"].mean()),
            "requests": float(entry["requests"].mean()),
            "tokens": float(entry["tokens_read"].mean()),
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("remedy")
    table.loc[AS_IS, ["gain", "low", "high", "p"]] = np.nan
    tried = table.index.difference([AS_IS, *FLOORS], sort=False)
    table.loc[tried, "p"] = holm(table.loc[tried, "p"].to_numpy())
    sure = table["p"] <= LEVEL
    table["verdict"] = "undecided"
    table.loc[sure & (table["low"] > 0), "verdict"] = "helps"
    table.loc[sure & (table["high"] < 0), "verdict"] = "does harm"
    return table.sort_values("right", ascending=False, kind="stable")


def pointed_right(attention: Float[np.ndarray, "C P T H D"]) -> Bool[np.ndarray, "C P T H"]:
    """Return whether each head points at the right document, which question k asks for."""
    places = np.arange(attention.shape[1])
    return np.asarray(attention.argmax(-1) == places[None, :, None, None])


class Alarm(NamedTuple):
    """Say how often an alarm rings: for wrong answers, for right ones, and the interval of the difference."""

    found: float
    false: float
    low: float
    high: float


def judge_alarm(rings: Bool[np.ndarray, "C Q"], wrong: Bool[np.ndarray, "C Q"]) -> Alarm:
    """Return how often an alarm rings; sets are resampled."""
    weights = resample_weights(len(rings))
    found = weights @ (rings & wrong).sum(1) / np.maximum(weights @ wrong.sum(1), 1)
    false = weights @ (rings & ~wrong).sum(1) / np.maximum(weights @ (~wrong).sum(1), 1)
    low, high = (float(x) for x in interval(found - false))
    return Alarm(float(rings[wrong].mean()), float(rings[~wrong].mean()), low, high)

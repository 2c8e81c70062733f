"""Remedies on real questions: the same table as of invented facts, and what a page says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float, Int

from studies.remedies import tables
from studies.remedies.tables import AS_IS, FLOORS, WORDS

RANKED = "smollm2.questions"
"""The entry of passages that a search, the model or its heads choose."""


@dataclass(frozen=True, eq=False)
class Real(tables.Compared):
    """Hold what was asked under remedies, by name, beside what was asked without."""

    kept: Mapping[str, xr.Dataset]
    questions: Mapping[str, xr.Dataset]

    @property
    def ranked(self) -> xr.Dataset:
        """Passages chosen by a search, by the model and by its heads, and the scores that chose them."""
        return self.kept[RANKED]

    @cached_property
    def entries(self) -> dict[str, xr.Dataset]:
        """Right answers by question and place under each condition, and what they cost."""
        at, same = self.ranked["place"], slice(len(self.ranked["question"]))
        plain = self.questions["smollm2.eight"].isel(question=same).sel(place=at)
        floors = self.questions["smollm2.floors"].isel(question=same)
        found = {AS_IS: asked(plain["correct"], plain["tokens"] + plain["written"])}
        for name, given in zip(FLOORS, ("right", "none"), strict=True):
            one = floors.sel(given=given)
            correct = one["correct"].expand_dims(place=at).transpose("question", "place")
            found[name] = asked(correct, one["tokens"] + one["written"])
        for name in self.ranked["remedy"].values.tolist():
            found[name] = self.ranked.sel(remedy=name)
        for name, x in self.kept.items():
            if name.startswith(f"{RANKED}-"):
                found[name.removeprefix(f"{RANKED}-")] = x
        return {f"smollm2.{name}": x for name, x in found.items()}

    @cached_property
    def pointed(self) -> dict[str, Float[np.ndarray, "Q"]]:
        """By question, how often each ranking, and a mean over all heads, has the right passage first."""
        entry = self.ranked
        places = entry["place"].values
        return {
            "heads": (entry["heads"].values.argmax(-1) == places).mean(1),
            "all_heads": (entry["all_heads"].values == places).mean(1),
            "search": (entry["rank"].values == 0).astype(float),
            "likelihood": (entry["likelihood"].values.argmax(-1) == 0).astype(float),
        }


class RealAlarm(NamedTuple):
    """Count answers that one passage alone holds, and of how many of them heads point at another passage."""

    of: int
    wrong: int
    wrong_rung: int
    right: int
    right_rung: int


def count_alarms(real: Real) -> RealAlarm:
    """Return how often heads look elsewhere than the answer is from, of answers as they are."""
    Q, at = len(real.ranked["question"]), real.ranked["place"]
    entry = real.questions["smollm2.eight"].isel(question=slice(Q)).sel(place=at)
    source, right = entry["source"].values, entry["correct"].values == 1
    known, rings = source >= 0, real.ranked["heads"].values.argmax(-1) != source
    counts = [int(x.sum()) for x in (known & ~right, known & ~right & rings, known & right, known & right & rings)]
    return RealAlarm(source.size, *counts)


def read_alarms(real: Real) -> tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
    """Return of answers that deletion explained whether heads point elsewhere, and whether each is wrong."""
    right, wrong = real.kept["smollm2.real-sources"], real.kept["smollm2.real-alarm"]
    rings = [x["fetched"].values != x["removed"].values.argmin(-1) for x in (right, wrong)]
    is_right = [x["right"].values == 1 for x in (right, wrong)]
    of = np.concatenate([is_right[0], ~is_right[1]])
    return np.concatenate(rings)[of], ~np.concatenate(is_right)[of]


def held_by(real: Real) -> Int[np.ndarray, "Q P"]:
    """Return how many passages hold each answer as it is, word for word."""
    entry = real.questions["smollm2.eight"].isel(question=slice(len(real.ranked["question"])))
    return np.asarray(entry["holding"].sel(place=real.ranked["place"]).values)


def asked(correct: xr.DataArray, tokens: xr.DataArray) -> xr.Dataset:
    """Return what was asked without a remedy as an entry of one: a request each."""
    scores: dict[str, Any] = {"correct": correct}
    scores["kept"] = xr.ones_like(correct)
    scores["requests"] = xr.DataArray(1.0)
    scores["tokens_read"] = tokens.astype(float)
    return xr.Dataset(scores)


def named(real: Real, verdict: str) -> str:
    """Return the remedies of a verdict in words, the best first."""
    found = [WORDS[x] for x in real.tried.index[real.tried["verdict"] == verdict]]
    return "; ".join(found) or "none"


def gain_said(table: pd.DataFrame, name: str) -> str:
    """Return the gain of a remedy with its interval."""
    x = table.loc[name]
    return f"{x['gain']:+.2f}, {x['low']:+.2f} to {x['high']:+.2f}"


def answer(real: Real) -> str:
    """Return in a sentence what one passage alone, which heads choose, gives with real questions."""
    x = real.table.loc["heads-alone"]
    plain = real.right[AS_IS][: int(x["sets"])].mean()
    verdict = {"undecided": "does not certainly help"}.get(x["verdict"], x["verdict"])
    return (
        f"With {x['sets']:.0f} real questions the heads' passage alone {verdict}: {x['right']:.0%} in place of "
        f"{plain:.0%}."
    )


def numbers(real: Real) -> dict[str, Any]:
    """Return the page's numbers of real questions."""
    table, pointed = real.table, real.pointed
    found: dict[str, Any] = {f"real_points_{name}": x.mean() for name, x in pointed.items()}
    for name in table.index:
        found[f"real_{name}".replace("-", "_")] = float(table.loc[name, "right"])
    for name in real.tried.index:
        found[f"real_{name}_gain".replace("-", "_")] = gain_said(table, name)
    held = held_by(real)
    some, alarm = len(real.right.get("heads-last", real.right[AS_IS])), count_alarms(real)
    found |= {f"real_alarm_{name}": x for name, x in alarm._asdict().items()}
    return found | {
        "real_questions": len(real.ranked["question"]),
        "real_alarm_known": alarm.wrong + alarm.right,
        "real_held_none": int((held == 0).sum()),
        "real_held_several": int((held > 1).sum()),
        "real_last_of_some": float(real.right[AS_IS][:some, -1].mean()),
        "real_search_wrong": 1 - pointed["search"].mean(),
        "real_help": named(real, "helps"),
        "real_harm": named(real, "does harm"),
        "real_open": named(real, "undecided"),
        "real_planned": 50,
        "remedies_real_answer": answer(real),
        "real_least_p": float(real.tried["p"].min()),
        "real_as_is_same": float(real.right[AS_IS].mean()),
    }

"""What was measured of remedies, in the numbers and tables that the page prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float, Int

from posbias.lookup.scores import RESAMPLES, paired_difference
from studies.remedies import real, searched, tables
from studies.remedies.questions import AT
from studies.remedies.real import Real, gain_said
from studies.remedies.tables import AS_IS, FLOORS, LEVEL, WORDS, Alarm
from studies.results import load


@dataclass(frozen=True, eq=False)
class Signals:
    """Hold by set and question whether an answer is wrong, and the documents that heads, deletion and a search name."""

    wrong: Bool[np.ndarray, "C Q"]
    pointed: Int[np.ndarray, "C Q"]
    costly: Int[np.ndarray, "C Q"]
    stated: Int[np.ndarray, "C Q"]

    @property
    def judged(self) -> Signals:
        """Those of the second half of the sets."""
        half = len(self.wrong) // 2
        return Signals(*(x[half:] for x in (self.wrong, self.pointed, self.costly, self.stated)))

    @property
    def rings(self) -> Bool[np.ndarray, "C Q"]:
        """Whether heads and deletion name different documents."""
        return np.asarray(self.pointed != self.costly)

    @property
    def alarm(self) -> Alarm:
        """How often it rings for wrong answers, and for right ones."""
        return tables.judge_alarm(self.rings, self.wrong)


@dataclass(frozen=True, eq=False)
class Evidence(tables.Compared):
    """Hold the entries of ``results/remedies.nc`` and of ``questions.nc``."""

    kept: Mapping[str, xr.Dataset]
    questions: Mapping[str, xr.Dataset]

    @property
    def entries(self) -> Mapping[str, xr.Dataset]:
        """Right answers by set and place under each condition, among what else is kept."""
        return self.kept

    @cached_property
    def attention(self) -> Float[np.ndarray, "C P T H D"]:
        """Attention of each head to each document, on sets that chose none."""
        return self.kept["smollm2.heads"]["judged_on"].values.astype(np.float32)

    @cached_property
    def best(self) -> list[tuple[int, int]]:
        """The three heads that were chosen on other sets."""
        pairs = [name.split(".") for name in self.kept["smollm2.heads"].attrs["best"].split("+")]
        return [(int(layer), int(head)) for layer, head in pairs]

    @cached_property
    def pointing(self) -> dict[str, Bool[np.ndarray, "C P"]]:
        """Whether a head, or several together, point at the right document."""
        hits, asked = tables.pointed_right(self.attention), np.arange(8)
        three = np.mean([self.attention[:, :, t, h] for t, h in self.best], axis=0)
        found = {f"head {t}.{h}": hits[:, :, t, h] for t, h in self.best}
        found["the three together"] = three.argmax(-1) == asked
        found["a mean over all heads"] = self.attention.mean((2, 3)).argmax(-1) == asked
        return found

    @cached_property
    def signals(self) -> Signals:
        """What tells a wrong answer, by set and question."""
        one = self.kept["smollm2.alarm"]
        return Signals(
            one["correct"].values == 0,
            one["attention"].values.argmax(-1),
            one["removed"].values.argmin(-1),
            one["source"].values.astype(int),
        )

    @property
    def nothing(self) -> Bool[np.ndarray, "N"]:
        """Whether heads and deletion differ, of questions that no document answers."""
        one = self.kept["smollm2.alarm"]
        pointed, costly = one["none_attention"].values, one["none_removed"].values
        return np.asarray(pointed.argmax(-1) != costly.argmin(-1)).ravel()

    @cached_property
    def real(self) -> Real:
        """Answers to real questions."""
        return Real(self.kept, self.questions)

    @cached_property
    def ordered(self) -> searched.Ordered:
        """Answers to real questions in the order of a search."""
        return searched.choose_ordered(self.real)

    @cached_property
    def reordered(self) -> searched.Reordered:
        """Answers to the same questions in orders by the likelihood."""
        return searched.Reordered(self.kept[searched.NEW], self.kept[searched.ORDERS])

    @cached_property
    def confirmed(self) -> searched.Confirmed:
        """Answers to 200 new questions under the ways that gained most on those."""
        return searched.Confirmed(self.kept[searched.AGAIN])


def load_evidence() -> Evidence:
    """Return what is kept."""
    return Evidence(load("remedies"), load("questions"))


def named(seen: Evidence, verdict: str) -> str:
    """Return the remedies of a verdict in words, the best first."""
    found = [WORDS[x] for x in seen.tried.index[seen.tried["verdict"] == verdict]]
    return "; ".join(found) or "none"


def gains_shown(table: pd.DataFrame, counted: str = "sets", looks: int = 1) -> pd.DataFrame:
    """Return a table of remedies as the page prints it; what is counted are sets, or questions.

    Of several looks at the results a verdict is open if p times as many as there were looks is above the level.
    """
    shown = table.rename(index=WORDS)
    shown.loc[(shown["verdict"] == "helps") & (looks * shown["p"] > LEVEL), "verdict"] = f"open ({looks} looks)"
    gains = shown[["gain", "low", "high"]].fillna(0)
    shown["gain (95 %)"] = [
        f"{gain:+.2f} ({low:+.2f} to {high:+.2f})" if gain or low else "–"
        for gain, low, high in gains.itertuples(index=False)
    ]
    cost = zip(shown["requests"], shown["tokens"], strict=True)
    shown["cost: requests, tokens"] = [f"{r:.0f}, {t:,.0f}" for r, t in cost]
    shown.loc[shown.index.isin([WORDS[x] for x in (AS_IS, *FLOORS)]), "verdict"] = "–"
    shown["worst place"] = shown["worst"].map("{:.2f}".format)
    shown[counted] = shown["sets"].map("{:.0f}".format)
    shown["p"] = [
        "–" if verdict == "–" else tables.p_said(p) for p, verdict in zip(shown["p"], shown["verdict"], strict=True)
    ]
    return shown[["gain (95 %)", "p", "worst place", "cost: requests, tokens", counted, "verdict"]]


def with_right(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of ways of sending passages, compared with all in the search's order."""
    shown = gains_shown(table, "questions").drop(columns="worst place")
    shown.insert(0, "right", table["right"].map("{:.3f}".format).to_numpy())
    return shown.rename(index={WORDS[AS_IS]: "all, in the search's order"})


def reordered_shown(seen: Evidence) -> pd.DataFrame:
    """Return what orders by the likelihood, and two passages, gain over all in the order of a search."""
    return with_right(seen.reordered.table)


def confirmed_shown(seen: Evidence) -> pd.DataFrame:
    """Return what each way gains on the new questions, over all passages in the order of a search."""
    return with_right(seen.confirmed.table)


def searched_shown(seen: Evidence) -> pd.DataFrame:
    """Return what each way gains over all passages in the order of a search, as the page prints it."""
    shown = with_right(seen.ordered.table)
    if searched.NEW in seen.real.kept:
        right = f"{searched.right_alone(seen.real):.3f}"
        shown.loc["the right passage alone"] = [right, *["–"] * (len(shown.columns) - 1)]
        shown.loc["the right passage alone", "questions"] = shown["questions"].iloc[0]
    return shown


def pointing_shown(seen: Evidence) -> pd.DataFrame:
    """Return how often heads point at the right document."""
    rows, right = {}, seen.right[AS_IS]
    for name, x in seen.pointing.items():
        rows[name] = {
            "right document": x.mean(),
            "worst place": x.mean(0).min(),
            "where the answer is wrong": x[right[: len(x)] == 0].mean(),
        }
    return pd.DataFrame(rows).T.rename_axis("points at")


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return all numbers of the page on remedies."""
    right, table = seen.right, seen.table
    counts = sorted({int(x) for x in seen.tried["sets"]})
    tuned = load("tune")["every.seed-0.answers"]["correct"].values
    found = {
        "remedies_sets_said": " or ".join(map(str, counts)),
        "remedies_family": len(seen.tried),
        "remedies_flips": f"{RESAMPLES:,}",
        "remedies_plain": right[AS_IS].mean(),
        "remedies_plain_worst": right[AS_IS].mean(0).min(),
        "remedies_oracle": right["oracle"].mean(),
        "remedies_heads": right["heads-alone"].mean(),
        "remedies_last": right["heads-last"].mean(),
        "remedies_likely": right["one-by-one-likely"].mean(),
        "remedies_likely_requests": table.loc["one-by-one-likely", "requests"],
        "remedies_likely_tokens": table.loc["one-by-one-likely", "tokens"],
        "remedies_plain_tokens": table.loc[AS_IS, "tokens"],
        "remedies_harm": named(seen, "does harm"),
        "remedies_open": named(seen, "undecided"),
        "remedies_help": named(seen, "helps"),
        "remedies_tuned_minutes": load("tune")["every.seed-0.training"].attrs["training_seconds"] / 60,
        "remedies_rotated": gain_said(table, "rotated-8"),
        "remedies_sink": gain_said(table, "sink-off"),
        "remedies_rotated_p": table.loc["rotated-8", "p"],
        "remedies_twice_p": table.loc["question-twice", "p"],
        "remedies_tuned": tuned.mean(),
        "remedies_tuned_worst": tuned.mean(0).min(),
    }
    return found | real.numbers(seen.real) | searched_numbers(seen) | searched.confirmed_numbers(seen.confirmed)


def searched_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how ways of sending passages compare where a search put them in order."""
    found = searched.Searched(seen.real)
    said: dict[str, Any] = {f"searched_{name}".replace("-", "_"): float(x) for name, x in found.table["right"].items()}
    gains = found.table["gain"].drop(AS_IS)
    said |= {"searched_least": gains.min(), "searched_most": gains.max(), "searched_p": found.table["p"].min()}
    said |= searched.ordered_numbers(seen.ordered)
    if searched.NEW in seen.real.kept:
        oracle = searched.right_alone(seen.real)
        for name in searched.ALONE:
            said[f"expected_{name}".replace("-", "_")] = seen.ordered.table.loc[name, "named"] * oracle
        said |= searched.new_numbers(seen.real) | searched.reordered_numbers(seen.reordered)
        said |= searched.family_numbers(seen.ordered, seen.reordered)
        likely, plain = seen.ordered.table.loc["one-by-one-likely"], seen.ordered.table.loc[AS_IS]
        said |= {"likely_requests": likely["requests"], "likely_times": likely["tokens"] / plain["tokens"]}
        said["likely_times_first"] = likely["tokens"] / seen.ordered.table.loc["search-alone", "tokens"]
    return said | ({"ordered_oracle": searched.right_alone(seen.real)} if searched.NEW in seen.real.kept else {})


def pointing_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how often heads point at the right document."""
    shown = pointing_shown(seen)
    hits, own, behind = tables.pointed_right(seen.attention), [], []
    for layer, head in seen.best:
        share = seen.attention[:, :, layer, head] / seen.attention[:, :, layer, head].sum(-1, keepdims=True)
        own.append(float(np.diagonal(share, axis1=1, axis2=2).mean()))
        behind.append(float(np.sort(share, -1)[..., -2].mean()))
    more = paired_difference(seen.real.pointed["heads"] - seen.real.pointed["search"])
    return {
        "heads_share_least": min(own),
        "heads_share_most": max(own),
        "heads_share_next": max(behind),
        "heads_real_questions": len(seen.real.pointed["heads"]),
        "heads_real_more": f"{more.mean:+.2f}, {more.low:+.2f} to {more.high:+.2f}",
        "remedies_three": shown.loc["the three together", "right document"],
        "remedies_three_wrong": shown.loc["the three together", "where the answer is wrong"],
        "remedies_all_heads": shown.loc["a mean over all heads", "right document"],
        "remedies_many": int((hits.mean((0, 1)) >= 0.9).sum()),
        "remedies_pointed_sets": len(hits),
    }


def real_alarm_numbers(seen: real.Real) -> dict[str, Any]:
    """Return how often the alarm rings on real questions, with deletion, and how often an answer is wrong if it does.

    Wrong answers were drawn among all, so that they count by how many there are.
    """
    rings, wrong = real.read_alarms(seen)
    asked = seen.kept["smollm2.real-sources"].attrs["prompts"] * len(AT)
    share = 1 - float(seen.questions["smollm2.eight"]["correct"].sel(place=list(AT)).mean())  # of the first run
    ringing = share * rings[wrong].mean(), (1 - share) * rings[~wrong].mean()
    silent = share * (~rings[wrong]).mean(), (1 - share) * (~rings[~wrong]).mean()
    return {
        "alarm_real_asked": int(asked),
        "alarm_real_share": float(share),
        "alarm_real_ringing": float(ringing[0] / sum(ringing)),
        "alarm_real_silent": float(silent[0] / sum(silent)),
        "alarm_real_wrong": int(wrong.sum()),
        "alarm_real_wrong_rung": int(rings[wrong].sum()),
        "alarm_real_right": int((~wrong).sum()),
        "alarm_real_right_rung": int(rings[~wrong].sum()),
    }


def alarm_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how often the alarm rings."""
    every, judged, none = seen.signals, seen.signals.judged, seen.nothing
    rings, wrong = judged.rings, judged.wrong
    asked = np.arange(wrong.shape[1])
    return {
        "alarm_sets": len(every.wrong),
        "alarm_judged": len(wrong),
        "alarm_prompts": wrong.size,
        "alarm_found": judged.alarm.found,
        "alarm_false": judged.alarm.false,
        "alarm_low": judged.alarm.low,
        "alarm_wrong": int(wrong.sum()),
        "alarm_wrong_rung": int((rings & wrong).sum()),
        "alarm_right": int((~wrong).sum()),
        "alarm_right_rung": int((rings & ~wrong).sum()),
        "alarm_pointed": float((every.pointed == asked).mean()),
        "alarm_stated": tables.judge_alarm(judged.pointed != judged.stated, wrong).found,
        "alarm_stated_false": tables.judge_alarm(judged.pointed != judged.stated, wrong).false,
        "alarm_none": int(none.sum()),
        "alarm_none_of": none.size,
        **real_alarm_numbers(seen.real),
    }

"""What the answers of ``results/documents.nc`` and ``results/questions.nc`` say of places, in the page's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from posbias.lookup.file import of_arm
from posbias.lookup.scores import POWER, Difference, Verdict, exchange_p_value, judge, paired_difference
from studies.documents import tables
from studies.results import load

WAYS = ("influence", "gradient × input", "contributions", "attention")
NEARER = "the nearer to an end, the better"
FORMS = {
    "facts": "8 documents, chat template",
    "plain": "8 documents, plain text",
    "facts-4": "4 documents, chat template",
    "facts-16": "16 documents, chat template",
}
"""Entries whose documents compete, and what each is called."""
LOST = {"yes": "lost", "no": "not lost", "open": "cannot tell"}
Right = Float[np.ndarray, "C P"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Hold what is kept, by part: answers among documents, and answers to real questions."""

    kept: Mapping[str, xr.Dataset]
    questions: Mapping[str, xr.Dataset]

    @property
    def competing(self) -> Right:
        """Right answers by set and place, among documents that compete."""
        return of_arm(self.kept["facts"], "correct")

    @property
    def others(self) -> Right:
        """Right answers among documents about other facts."""
        return of_arm(self.kept["facts"], "correct", "not_competing")

    @property
    def closed(self) -> Right:
        """Right answers without documents."""
        return of_arm(self.kept["facts"], "correct", "closed_book")

    @property
    def told(self) -> Right:
        """Log-probability of the right answer among documents that compete."""
        return of_arm(self.kept["facts"], "log_probability")

    @property
    def told_others(self) -> Right:
        """Log-probability of the right answer among documents about other facts."""
        return of_arm(self.kept["facts"], "log_probability", "not_competing")

    @cached_property
    def forms(self) -> dict[str, Right]:
        """Right answers of every form and number of documents, and of pairs of keys and values."""
        names = (*FORMS, "kv", "kv-plain")
        return {name: of_arm(self.kept[name], "correct") for name in names}

    @cached_property
    def predictors(self) -> dict[str, Right]:
        """What may predict right answers by place, each by set where sets differ."""
        natural = load("real")["smollm2.wiki-256"]["influence"].values
        P, used = self.competing.shape[1], self.kept["used"]
        found = {"influence in other texts": natural.reshape(P, -1).sum(1)[None]}
        found["later places better"] = np.arange(P, dtype=float)[None]
        found[NEARER] = np.abs(np.arange(P) - (P - 1) / 2)[None]
        found |= {f"{way} of the place": tables.of_place(used, way) for way in WAYS}
        found |= {f"{way} of the document": tables.of_gold(used, way) for way in WAYS}
        found["fall without the right document"] = -tables.of_gold(used, "removed")
        return found

    @cached_property
    def ranks(self) -> dict[str, pd.DataFrame]:
        """How well each predictor ranks the places as right answers and as their log-probability do."""
        scores = {"accuracy": self.competing, "log-probability": self.told}
        return {name: tables.rank_table(self.predictors, x) for name, x in scores.items()}

    @property
    def real(self) -> Right:
        """Right answers to real questions among eight passages, by question and place."""
        return np.asarray(self.questions["eight"]["correct"].values, dtype=float)

    @property
    def floors(self) -> tuple[float, float]:
        """Share of the same real questions answered without a passage, and with the right one alone."""
        correct = self.questions["floors"]["correct"].values.astype(float)
        correct = correct[: len(self.real)]
        return float(correct[:, 0].mean()), float(correct[:, 1].mean())


def load_evidence() -> Evidence:
    """Return what is kept."""
    kept = {name.removeprefix("smollm2."): x for name, x in load("documents").items()}
    asked = {name.removeprefix("smollm2."): x for name, x in load("questions").items()}
    return Evidence(kept, asked)


def ends_less_middle(correct: Right) -> Float[np.ndarray, "C"]:
    """Return by how much both ends together are above the middle, for each set.

    >>> ends_less_middle(np.array([[1.0, 0.0, 1.0, 0.0]]))
    array([0.])
    """
    return np.asarray(correct[:, [0, -1]].mean(1) - correct[:, 1:-1].mean(1))


def last_less_first(correct: Right) -> Difference:
    """Return by how much the last place is ahead of the first."""
    return paired_difference(correct[:, -1] - correct[:, 0])


def with_interval(found: Difference, form: str, scale: float = 1) -> str:
    """Return a difference with its interval.

    >>> with_interval(paired_difference(np.array([0.0, 1.0, 1.0, 0.0])), ".1f").split()[0]
    '0.5'
    """
    mean, low, high = (scale * x for x in (found.mean, found.low, found.high))
    return f"{mean:{form}} ({low:{form}} to {high:{form}})"


def ranged(stem: str, found: Difference, scale: float = 1) -> dict[str, float]:
    """Return a difference and its interval under their names."""
    return {
        stem: scale * found.mean,
        f"{stem}_low": scale * found.low,
        f"{stem}_high": scale * found.high,
    }


def verdict_of(correct: Right) -> Verdict:
    """Return the verdict on a middle that is there."""
    found = judge(correct)
    if found is None:
        raise ValueError("hardly an answer is right")
    return found


def place_numbers(seen: Evidence) -> dict[str, Any]:
    """Return right answers by place, and how much more is lost among documents that compete."""
    competing, others, C = seen.competing, seen.others, len(seen.competing)
    more = ends_less_middle(competing) - ends_less_middle(others)
    return {
        "documents_contexts": C,
        "documents_others_least": others.mean(0).min(),
        "documents_others_right": int(others.sum(0).min()),
        **shares_by_place("documents", competing),
        **shares_by_place("documents_others", others),
        "documents_all_share": competing.mean(),
        "documents_gap": ends_less_middle(competing).mean(),
        "documents_others_gap": ends_less_middle(others).mean(),
        "documents_gap_said": with_interval(paired_difference(ends_less_middle(competing)), "+.2f"),
        "documents_others_gap_said": with_interval(paired_difference(ends_less_middle(others)), "+.2f"),
        "documents_harm_said": with_interval(paired_difference(more), "+.2f"),
        "control_p": min(control_p(seen)),
        "documents_others_lost": LOST[verdict_of(others).lost],
        "documents_by_place": " ".join(f"{x:.2f}" for x in competing.mean(0)),
        "documents_ends": C * ends_less_middle(competing).mean(),
        "documents_first_right": int(competing[:, 0].sum()),
        "documents_middle_right": float(competing[:, 1:-1].sum(0).mean()),
        "documents_last_right": int(competing[:, -1].sum()),
        **ranged("documents_ends_others", paired_difference(ends_less_middle(others)), C),
        **ranged("documents_harm", paired_difference(more), C),
        **ranged("documents_told", paired_difference(ends_less_middle(seen.told))),
        **ranged("documents_told_others", paired_difference(ends_less_middle(seen.told_others))),
    }


def control_p(seen: Evidence) -> tuple[float, float]:
    """Return the p values of both ends' leads among documents about other facts."""
    first, last = (exchange_p_value(np.c_[seen.others[:, k], seen.others[:, 1:-1]]) for k in (0, -1))
    return first, last


def used_numbers(seen: Evidence) -> dict[str, float]:
    """Return from which documents wrong answers between the ends are."""
    used = seen.kept["used"]
    between = used["source"].values.astype(int)[:, 1:-1]
    wrong = between[used["correct"].values[:, 1:-1] == 0]
    return {
        "documents_used_sets": used.sizes["context"],
        "documents_between_wrong": len(wrong),
        "documents_between_other": int((wrong >= 0).sum()),
        "documents_between_last": int((wrong == used.sizes["document"] - 1).sum()),
        "documents_between_first": int((wrong == 0).sum()),
        "documents_between_alike": (wrong >= 0).sum() / (used.sizes["document"] - 1),
    }


def shares_by_place(stem: str, correct: Float[np.ndarray, "C P"]) -> dict[str, float]:
    """Return the shares of right answers at the first place, between the ends and at the last."""
    at = {"first": correct[:, 0], "middle": correct[:, 1:-1], "last": correct[:, -1]}
    return {f"{stem}_{name}_share": float(x.mean()) for name, x in at.items()}


def rows_to_see(found: Difference, rows: int) -> float:
    """Return how many rows show a difference of this size in four of five samples, in tens; no number shows none.

    >>> rows_to_see(Difference(0.1, 0, 0, visible=0.2), 100)
    400
    """
    return math.inf if found.mean == 0 else math.ceil(rows * (found.visible / found.mean) ** 2 / 10) * 10


def order_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how many answers would be right in orders by a search, calculated from right answers by place."""
    competing, others = seen.competing, seen.others
    C, P = competing.shape
    ranks = 0.5 ** np.arange(P)
    ranks /= ranks.sum()
    told = {k: C * (competing[:, at(P)] @ ranks).mean() for k, at in tables.ORDERS.items()}
    own = []
    for k in range(C):  # places by the other sets
        counts = np.delete(competing, k, axis=0).sum(0)
        own.append(competing[k, np.argsort(-counts, kind="stable")] @ ranks)
    haystack, by_place = tables.ORDERS["both ends, best first"](P), others.sum(0)
    before, after = told["as retrieved, best first"], told["both ends, best first"]
    return {
        "documents_gain_ends": round(after, 1) - round(before, 1),  # of what is printed
        "documents_gain_others": (by_place[haystack] - by_place) @ ranks,
        "documents_as_ranked": before,
        "documents_langchain": told["both ends, best last"],
        "documents_measured_order": C * np.mean(own),
        "documents_at_ends": after,
    }


def rows_for(visible: float, *differences: Float[np.ndarray, "C"]) -> int:
    """Return rows, to the nearest five, that show such a difference in four of five trials."""
    spread = np.mean([np.std(x, ddof=1) for x in differences])
    return int(5 * np.round((POWER * spread / visible) ** 2 / 5))


def row_numbers(seen: Evidence) -> dict[str, int]:
    """Return how many rows show a loss, or that two places differ."""
    competing = seen.competing
    pairs = [x - y for x, y in combinations(competing.T, 2)]
    weaker = competing[:, -1] - competing[:, 1:-1].mean(1)
    return {
        "documents_rows_fifth": rows_for(0.2, weaker),
        "documents_rows_two": rows_for(0.2, *pairs),
        "documents_rows_two_far": rows_for(0.4, *pairs),
    }


def form_numbers(seen: Evidence) -> dict[str, int]:
    """Return right answers to pairs of keys and values in both forms."""
    pairs = seen.forms["kv"]
    return {
        "documents_asked": pairs.size,
        "documents_pairs_chat": int(pairs.sum()),
        "documents_pairs_plain": int(seen.forms["kv-plain"].sum()),
    }


def end_less_between(x: Float[np.ndarray, "C P"], end: int) -> Difference:
    """Return by how much the share of right answers at an end is above the mean of the places between."""
    return paired_difference(x[:, end] - x[:, 1:-1].mean(1))


def form_table(seen: Evidence) -> pd.DataFrame:
    """Return right answers at the ends and between, of every form and number of documents."""
    rows, C = {}, len(seen.competing)
    for name, title in FORMS.items():
        x = seen.forms[name]
        rows[title] = {
            "first place": x[:, 0].sum(),
            "average between": x[:, 1:-1].sum(0).mean(),
            "last place": x[:, -1].sum(),
            "first less between (95%)": with_interval(end_less_between(x, 0), "+.0f", C),
            "last less between (95%)": with_interval(end_less_between(x, -1), "+.0f", C),
            "at random": C / x.shape[1],
        }
    return pd.DataFrame(rows).T.rename_axis("prompt")


def ranked(seen: Evidence, name: str, score: str = "accuracy") -> str:
    """Return a predictor's rank correlation with its interval."""
    x = seen.ranks[score].loc[name]
    return f"{x['rank']:+.2f} ({x['low']:+.2f} to {x['high']:+.2f})"


def predicted_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how well influence in other texts ranks places, and what it says of their sizes."""
    eighths = seen.predictors["influence in other texts"][0]
    accuracy = seen.competing.mean(0)
    return {
        "documents_predicted": ranked(seen, "influence in other texts"),
        "documents_ends_first": seen.ranks["accuracy"].loc[NEARER, "rank"],
        "documents_natural_middle": eighths[1:-1].mean() / eighths[0],
        "documents_accuracy_middle": accuracy[1:-1].mean() / accuracy[0],
    }


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return all numbers of invented facts."""
    found = place_numbers(seen) | used_numbers(seen) | order_numbers(seen) | row_numbers(seen)
    return found | form_numbers(seen) | predicted_numbers(seen)

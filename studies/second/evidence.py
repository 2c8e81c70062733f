"""What ``results/second.nc`` says of a second model beside SmolLM2: tables and the page's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Int

from posbias.comparison.distances import normalised_wasserstein, spearman, unit
from posbias.heads import heads_table
from posbias.lookup.reading import count_sources
from posbias.lookup.scores import Verdict, paired_difference
from studies.checks import ranged
from studies.documents.evidence import LOST, Right, end_less_between, verdict_of, with_interval
from studies.ladder.crossfit import Judged, left_arm, yardsticks
from studies.reading import tables
from studies.reading.evidence import later_share, near_share
from studies.reading.questions import share_interval
from studies.reading.rivals import among_mistakes
from studies.reading.wrong import alike, asked_inside
from studies.remedies.searched import AGAIN, Confirmed, confirmed_numbers
from studies.remedies.tables import AS_IS, gain_of, p_said
from studies.results import load

NAMES = {"smollm2": "SmolLM2", "gemma3": "Gemma"}
LENGTHS = (8, 16, 32)
"""Documents in a prompt."""
SHORT = "16-short"
"""Sixteen documents of one sentence each."""
WAYS = {
    "as-is": "all eight, in the order of a search",
    "search-last": "all eight in reverse, the search's best last",
    "likely-last": "all eight, the likeliest last",
    "likely-two": "the two likeliest, the likeliest last",
    "heads-alone": "the one alone that three heads point at",
    "search-alone": "the search's first alone",
    "one-by-one-likely": "the likeliest alone",
}
"""Ways of sending passages, and what the page calls each."""
OTHER = "gemma3"
HEADS = 3
"""How many heads point together."""
RESAMPLES = {8: 400, 16: 400, 32: 100}
"""Of sets, for each interval, by number of documents."""


def best_heads(points: Int[np.ndarray, "C P layer head"]) -> list[tuple[int, int]]:
    """Return layer and number of the heads that point right most often, by set and document asked for."""
    C, P = points.shape[:2]
    names = heads_table(points.reshape(C * P, *points.shape[2:]).astype(int), np.tile(np.arange(P), C), P).index[:HEADS]
    pairs = (name.split(".") for name in names)
    return [(int(layer), int(head)) for layer, head in pairs]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Hold what is kept of both models."""

    kept: Mapping[str, xr.Dataset]

    def right(self, model: str, places: int | str) -> Right:
        """Return right answers by set and place, among competing documents in plain text; ``16-short`` is a form."""
        return np.asarray(self.kept[f"{model}.facts-{places}"]["correct"].values, dtype=float)

    def source(self, model: str, places: int) -> Int[np.ndarray, "C P"]:
        """Return the document that states each answer, from 0, by set and document asked for; -1 for none."""
        return np.asarray(self.kept[f"{model}.facts-{places}"]["source"].values, dtype=int)

    @cached_property
    def mistakes(self) -> pd.DataFrame:
        """The table of wrong answers."""
        return mistake_table(self)

    @cached_property
    def verdicts(self) -> dict[tuple[str, int], Verdict]:
        """Whether the middle is lost, by model and number of documents."""
        return {(m, P): verdict_of(self.right(m, P)) for m in NAMES for P in LENGTHS}

    def pointed(self, model: str) -> tuple[list[str], Bool[np.ndarray, "C P"]]:
        """Return the heads that point best on the sets that choose, and where they point right together on others."""
        entry = self.kept[f"{model}.heads"]
        best = [f"{layer}.{head}" for layer, head in best_heads(entry["chosen_on"].values)]
        together = entry["judged_on"].values.astype(np.float32).mean(2).argmax(-1)
        return best, together == np.arange(together.shape[1])

    @property
    def real(self) -> Right:
        """Gemma's right answers to real questions, by question and place."""
        return np.asarray(self.kept[f"{OTHER}.eight"]["correct"].values, dtype=float)

    @property
    def confirmed(self) -> Confirmed:
        """Gemma's answers to real questions under six ways, and as they are."""
        return Confirmed(self.kept[f"{OTHER}.likely-again"])

    @property
    def confirmed_before(self) -> Confirmed:
        """SmolLM2's answers to the same questions, in its chat template."""
        asked = self.confirmed.entry.sizes["question"]
        return Confirmed(load("remedies")[AGAIN].isel(question=slice(asked)))

    @cached_property
    def judged(self) -> dict[str, Judged]:
        """Predictions of Gemma's influence from one text, and its influence in the other, each way."""
        texts = [self.kept[f"{OTHER}.{name}"] for name in ("builtin-256", "wiki-256")]
        return {"Wikipedia": judged_by(*texts), "built-in": judged_by(*texts[::-1])}


def judged_by(made_of: xr.Dataset, judging: xr.Dataset) -> Judged:
    """Return the predictions from one text, and the influence in another."""
    found = {name: unit(made_of["rollout"].sel(variant=kept).values) for name, kept in ROLLOUTS.items()}
    rows = [x["influence_prompts"].values.astype(np.float64) for x in (made_of, judging)]
    return Judged(found | yardsticks(rows[0]), rows[1], judging["document"].values)


def load_evidence() -> Evidence:
    """Return what is kept."""
    return Evidence(load("second"))


def place_table(seen: Evidence) -> pd.DataFrame:
    """Return right answers at the ends and between, and whether the middle is lost, of both models."""
    rows = {}
    for P in LENGTHS:
        for model, name in NAMES.items():
            x, found = seen.right(model, P), seen.verdicts[model, P]
            first, last = (end_less_between(x, end) for end in (0, -1))
            rows[P, name] = {
                "first": x[:, 0].mean(),
                "between": x[:, 1:-1].mean(),
                "last": x[:, -1].mean(),
                "first less between (95%)": with_interval(first, "+.2f"),
                "last less between (95%)": with_interval(last, "+.2f"),
                "the middle is": LOST[found.lost],
            }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["documents", "model"])


def mistake_table(seen: Evidence) -> pd.DataFrame:
    """Return from which documents wrong answers are, and what is left for distance among them, of both models."""
    rows = {}
    for P in LENGTHS:
        for model, name in NAMES.items():
            counts = count_sources(seen.source(model, P))
            total = counts.sum(0)
            rows[P, name] = {
                "wrong": (seen.source(model, P) != np.arange(P)).sum(),
                "in one document": total.sum() - total.trace(),
                "from a neighbour": shown(near_share(total), *share_interval(counts, near_share)),
                "by favoured places": near_share(tables.by_pulls(total)),
                "from behind": shown(later_share(total), *share_interval(counts, later_share)),
                "by chance": later_share(alike(total)),
                "γ of mistakes": ranged(tables.of_resamples(counts, among_mistakes, RESAMPLES[P])),
                "bonus of the right one": ranged(tables.of_resamples(counts, tables.bonus, RESAMPLES[P])),
            }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["documents", "model"])


def shown(share: float, low: float, high: float) -> str:
    """Return a share with its interval.

    >>> shown(0.5, 0.25, 0.75)
    '50% (25 to 75)'
    """
    return f"{share:.0%} ({100 * low:.0f} to {100 * high:.0f})"


def place_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what is said of places and of mistakes."""
    found: dict[str, Any] = {}
    mistakes = seen.mistakes
    for model, name in NAMES.items():
        for P in LENGTHS:
            x, row, stem = seen.right(model, P), mistakes.loc[(P, name)], f"{model}_{P}"
            shares = {"all": x, "first": x[:, 0], "middle": x[:, 1:-1], "last": x[:, -1]}
            found |= {f"{stem}_{at}": float(y.mean()) for at, y in shares.items()}
            found |= {f"{stem}_lost": LOST[seen.verdicts[model, P].lost], f"{stem}_wrong": int(row["in one document"])}
            for short, of in ("near", "from a neighbour"), ("later", "from behind"), ("gamma", "γ of mistakes"):
                found[f"{stem}_{short}"] = row[of]
            found |= {f"{stem}_near_places": row["by favoured places"], f"{stem}_later_chance": row["by chance"]}
            inner = asked_inside(count_sources(seen.source(model, P)).sum(0))
            found[f"{stem}_inner"], found[f"{stem}_inner_places"] = (
                near_share(inner),
                near_share(tables.by_pulls(inner)),
            )
            found[f"{stem}_bonus"] = row["bonus of the right one"]
        source = seen.source(model, 16)
        middle = (source >= 6) & (source < 12)  # documents 7 to 12, which SmolLM2 hardly reads in its template
        found[f"{model}_16_middle_read"] = float(middle.sum() / (source >= 0).sum())
        x = seen.right(model, SHORT)
        shares = {"first": x[:, 0], "middle": x[:, 1:-1], "last": x[:, -1]}
        found |= {f"{model}_short_{at}": float(y.mean()) for at, y in shares.items()}
        found[f"{model}_short_tokens"] = float(seen.kept[f"{model}.facts-{SHORT}"]["tokens"].mean())
    return found


def head_numbers(seen: Evidence) -> dict[str, Any]:
    """Return which heads point, and how often they point right where they did not choose themselves."""
    found: dict[str, Any] = {}
    for model in NAMES:
        best, hit = seen.pointed(model)
        found |= {f"{model}_heads": ", ".join(best), f"{model}_points": float(hit.mean())}
        found |= {f"{model}_points_least": float(hit.mean(0).min()), f"{model}_pointed": hit.size}
    return found


def real_numbers(seen: Evidence) -> dict[str, Any]:
    """Return Gemma's right answers to real questions by place, without and with the right passage alone, and ways."""
    x, floors = seen.real, seen.kept[f"{OTHER}.floors"]["correct"].values.astype(float)
    first, last = (with_interval(end_less_between(x, end), "+.2f") for end in (0, -1))
    found: dict[str, Any] = {
        "real_asked": len(x),
        "real_first": x[:, 0].mean(),
        "real_middle": x[:, 1:-1].mean(),
        "real_last": x[:, -1].mean(),
        "real_first_said": first,
        "real_last_said": last,
        "real_closed": floors[:, 0].mean(),
        "real_oracle": floors[:, 1].mean(),
    }
    small = {f"small_{name.replace('-', '_')}": float(seen.confirmed_before.right[name].mean()) for name in WAYS}
    return found | small | confirmed_numbers(seen.confirmed)


def way_table(seen: Evidence) -> pd.DataFrame:
    """Return right answers of both models to the same questions under each way, gains, and how these differ."""
    small, other, rows = seen.confirmed_before, seen.confirmed, {}
    for name, title in WAYS.items():
        row = {model: one.right[name].mean() for model, one in (("SmolLM2", small), ("Gemma", other))}
        if name != AS_IS:
            gains = [gain_of(one.right, name) for one in (small, other)]
            said = [with_interval(paired_difference(x), "+.2f") for x in (*gains, gains[1] - gains[0])]
            row |= dict(zip(("gain of SmolLM2 (95%)", "gain of Gemma (95%)", "difference (95%)"), said, strict=True))
            row["p of Gemma's gain"] = p_said(other.table.loc[name, "p"])
        rows[title] = row
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–").rename_axis("what is sent")


def pointing_numbers(seen: Evidence) -> dict[str, Any]:
    """Return how often each of Gemma's three heads points at the right passage of real questions, and two of them."""
    entry, alone = seen.kept[f"{OTHER}.pointing"], seen.kept[f"{OTHER}.pointed"]
    shares, rank = entry["attention"].values.astype(np.float64), entry["rank"].values
    found: dict[str, Any] = {}
    for name in seen.pointed(OTHER)[0]:
        layer, head = map(int, name.split("."))
        found[f"head_{layer}_{head}"] = float((shares[:, layer, head].argmax(-1) == rank).mean())
    right = alone["correct"].values.astype(float)
    gain = right - seen.confirmed.right[AS_IS][:, 0]
    found |= {
        "whole_heads": str(alone.attrs["best"]).replace("+", " and "),
        "whole_chosen": float(alone["kept"].mean()),
    }
    return found | {"whole_right": right.mean(), "whole_gain": with_interval(paired_difference(gain), "+.2f")}


ROLLOUTS = {"measured-attention": "kernels", "layer-shares": "b", "contributions": "contributions"}
"""Rollouts, and what the entries call each."""
SAID = {
    "measured-attention": "attention, as measured, multiplied through the layers",
    "layer-shares": "attention by positions alone, multiplied",
    "contributions": "contributions",
    "ends": "one over the distance from the nearer end, without a model",
    "even": "equal shares",
    "influence": "influence in the other text",
}
"""Predictions of influence that the page compares."""


def rollout_table(seen: Evidence) -> pd.DataFrame:
    """Return distance and rank correlation of predictions of Gemma's influence, means of both ways."""
    rows = {}
    for name, title in SAID.items():
        pairs = [(one.predicted[name], one.measured) for one in seen.judged.values()]
        rows[title] = {
            "distance": float(np.mean([normalised_wasserstein(*pair) for pair in pairs])),
            "rank correlation": float(np.mean([spearman(*pair) for pair in pairs])),
        }
    rows[SAID["even"]]["rank correlation"] = np.nan
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("prediction")


def rollout_numbers(seen: Evidence) -> dict[str, Any]:
    """Return what is said of predictions of influence."""
    found: dict[str, Any] = {}
    for short, name in (("attention", "measured-attention"), ("contributions", "contributions"), ("even", "even")):
        pairs = [(unit(x.predicted[name][1:]), unit(x.measured[1:])) for x in seen.judged.values()]
        found[f"aside_{short}"] = float(np.mean([normalised_wasserstein(*pair) for pair in pairs]))
    one = seen.judged["Wikipedia"]
    arms = {"measured": one.measured} | {k: one.predicted[k] for k in ("contributions", "measured-attention")}
    found |= {f"arm_{k.replace('-', '_')}": left_arm(p) for k, p in arms.items()}
    return found


def numbers(seen: Evidence) -> dict[str, Any]:
    """Return all numbers of the page."""
    found = place_numbers(seen) | head_numbers(seen) | real_numbers(seen) | rollout_numbers(seen)
    found |= pointing_numbers(seen)
    return {f"second_{name}": x for name, x in found.items()}

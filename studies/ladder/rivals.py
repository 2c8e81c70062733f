"""Others' predictions of SmolLM2 beside the page's own: made of documents of one text, judged by another text.

The others are made of few documents (``results/rivals.nc``), so intervals draw these anew as well as the documents
that judge; the page's own predictions were kept as means of 200 documents, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import rankdata

from posbias.comparison.distances import unit
from posbias.comparison.resampling import (
    hull_interval,
    interval,
    resample_weights,
    resampled_profiles,
)
from studies.ladder.crossfit import LABELS, TEXTS, Judged
from studies.ladder.evidence import profile_of
from studies.results import load

Profiles = Float[np.ndarray, "B n"]
OTHERS = {
    "attention": "*measured attention (16 documents)*",
    "attention-rest": "*measured attention (16), without the first token*",
    "attention-half": "*attention, half (Abnar)*",
    "attention-half-rest": "*attention, half, without the first token*",
    "norms": "*norms, half (Kobayashi 2020)*",
    "norms-residual": "*norms with residual (Kobayashi 2021)*",
    "norms-norm": "*norms with residual and norm (Kobayashi 2021)*",
    "globenc": "*GlobEnc*",
    "value-zeroing": "*value zeroing*",
    "value-zeroing-half": "*value zeroing, half*",
    "contributions-own": "*contributions (16 documents)*",
    "alti-logit": "*ALTI-Logit*",
    "alti-logit-whole": "*ALTI-Logit with MLPs*",
    "attn-lrp": "*AttnLRP (backward)*",
    "influence-few": "*influence (16 documents)*",
}
"""What is made of few documents, by its name in the file, and how the page writes it."""
KINDS = {"wiki-256": "wiki", "builtin-256": "builtin"}
"""Texts by their entries in ``results/real.nc``, and how those of ``results/rivals.nc`` end."""
NORMS = ("norms_residual", "norms_norm", "globenc", "value_zeroing", "value_zeroing_half")
"""Rollouts of norms, as numbers are named."""
FORWARD = [name for name in OTHERS if name not in ("alti-logit", "alti-logit-whole", "attn-lrp", "influence-few")]
"""What is multiplied over layers."""
PAIRS = {
    "rest": ("attention-rest", "even"),
    "logit": ("alti-logit", "even"),
    "lrp": ("attn-lrp", "even"),
    "contributions": ("alti-logit", "contributions-own"),
}
"""Pairs of which the page prints the difference in distance."""
RULES = {"beyond": ("contributions", "ends")}
"""Pairs of which it prints the difference in rank correlation, by the text that judges."""
DRAWS = 1000
LEFT_OUT = ("norms", "last")
VARIANTS = ("value-zeroing-half", "alti-logit-whole")
"""Rows that the table does without: twice there, or of no use; variants, which do no better."""


@dataclass(frozen=True)
class Rivals:
    """Hold what is said of SmolLM2 from one text and the influence in another, each way."""

    judged: Mapping[str, Judged]
    said: Mapping[str, Mapping[str, Float[np.ndarray, "N n"]]]
    """By the text that judges and the way: each prompt's amounts."""
    draws: int = DRAWS

    @cached_property
    def measured(self) -> dict[str, Profiles]:
        """The influence that judges, and behind it that of resampled documents."""
        found = {}
        for text, one in self.judged.items():
            drawn = resampled_profiles(one.rows, self.draws, units=one.units)
            found[text] = np.concatenate([one.measured[None], drawn])
        return found

    def made(self, name: str, text: str) -> Profiles:
        """Return a prediction, and behind it those of resampled documents, if its documents are kept."""
        if name not in self.said[text]:
            return unit(self.judged[text].predicted[name])[None]
        rows = self.said[text][name]
        weights = resample_weights(len(rows), self.draws, seed=1)
        return np.concatenate([profile_of(rows)[None], unit(weights @ rows)])

    def score(self, name: str, measure: str, only: str | None = None) -> Float[np.ndarray, "B"]:
        """Return a number of a prediction, mean of the texts that judge it or of one, and behind it of resamples."""
        each = []
        for text, q in self.measured.items():
            if (name in self.said[text] or name not in OTHERS) and only in (None, text):
                each.append(SCORES[measure](self.made(name, text), q))
        return np.mean(each, axis=0)

    def gap(self, name: str, other: str, measure: str = "W1", only: str | None = None) -> tuple[float, float, float]:
        """Return a number of a prediction less that of another, with its interval."""
        more = self.score(name, measure, only) - self.score(other, measure, only)
        low, high = interval(more[1:])
        return float(more[0]), float(low), float(high)


def wasserstein(p: Profiles, q: Profiles) -> Float[np.ndarray, "B"]:
    """Return W₁ between rows, as a share of the length."""
    return np.abs(np.cumsum(p - q, -1)[:, :-1]).sum(-1) / (q.shape[-1] - 1)


def misplaced(p: Profiles, q: Profiles) -> Float[np.ndarray, "B"]:
    """Return the total variation between rows."""
    return np.abs(p - q).sum(-1) / 2


def rank_correlation(p: Profiles, q: Profiles) -> Float[np.ndarray, "B"]:
    """Return Spearman's rank correlation between rows; nan if all of a row is one number.

    >>> rank_correlation(np.array([[0.1, 0.2, 0.7]]), np.array([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]])).tolist()
    [1.0, -1.0]
    """
    a, b = (rankdata(x.round(12), axis=-1) for x in (p, q))
    a, b = (x - x.mean(-1, keepdims=True) for x in (a, b))
    with np.errstate(invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


SCORES = {"W1": wasserstein, "total variation": misplaced, "rank correlation": rank_correlation}


def load_rivals(judged: Mapping[str, Judged], draws: int = DRAWS) -> Rivals:
    """Return what is kept of others' predictions, beside the page's own of SmolLM2."""
    kept, said = load("rivals"), dict[str, dict[str, Float[np.ndarray, "N n"]]]()
    for text, (made_of, _) in TEXTS.items():
        said[text] = {}
        names = (f"smollm2.{part}-{KINDS[made_of]}" for part in ("rollouts", "zeroing"))
        for entry in (kept[name] for name in names if name in kept):
            for name in entry["way"].values.tolist():
                said[text][name] = np.abs(entry["said"].sel(way=name).values.astype(np.float64))
        said[text]["contributions-own"] = said[text].pop("contributions")
        whole = load("real")[f"smollm2.{made_of}"]
        first = np.unique(whole["document"].values, return_index=True)[1]
        few = np.sort(first)[: len(said[text]["attention"])]
        said[text]["influence-few"] = whole["influence_prompts"].values[few].astype(np.float64)
    return Rivals({text: judged[text] for text in TEXTS}, said, draws)


def large_table(rivals: Rivals) -> pd.DataFrame:
    """Return the three numbers of every prediction of SmolLM2 with intervals, the nearest first."""
    names = {name: label for name, label in LABELS.items() if name not in LEFT_OUT}
    names |= {name: label for name, label in OTHERS.items() if name not in VARIANTS}
    rows = {}
    for name, label in names.items():
        by = {measure: rivals.score(name, measure) for measure in SCORES}
        rows[label] = {
            "W1": by["W1"][0],
            "W1 (95%)": f"{by['W1'][0]:.3f} {_range(by['W1'], '.3f', 0.0)}",
            "total variation": by["total variation"][0],
            "rank (95%)": f"{by['rank correlation'][0]:+.2f} {_range(by['rank correlation'], '+.2f')}",
        }
    table = pd.DataFrame.from_dict(rows, orient="index").sort_values("W1").drop(columns="W1")
    table.loc[LABELS["even"], "rank (95%)"] = None
    top = np.mean([one.ceiling for one in rivals.judged.values()])
    table.loc["a perfect prediction (ceiling)"] = pd.Series({"rank (95%)": f"{top:+.2f}"})
    return table.rename_axis("prediction from another text")


def near_and_far(table: pd.DataFrame, most: float = 0.5) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of ``large_table`` up to a distance, with the ceiling, and those beyond it.

    >>> rows = pd.DataFrame({"W1 (95%)": ["0.100 (0.000 to 0.200)", "0.600 (0.500 to 0.700)", None]}, list("abc"))
    >>> [list(part.index) for part in near_and_far(rows)]
    [['a', 'c'], ['b']]
    """
    far = table["W1 (95%)"].str.split().str[0].astype(float) > most
    return table[~far], table[far]


def rival_numbers(rivals: Rivals) -> dict[str, float]:
    """Return what the page says of others' predictions: distance, rank, first token's share, gaps."""
    found: dict[str, float] = {}
    for name in (*OTHERS, "ends", "even"):
        key = f"rivals_{name.replace('-', '_')}"
        texts = [text for text in TEXTS if name in rivals.said[text] or name not in OTHERS]
        found[f"{key}_W1"] = float(rivals.score(name, "W1")[0])
        if name != "even":
            found[f"{key}_rank"] = float(rivals.score(name, "rank correlation")[0])
        found[f"{key}_first"] = float(np.mean([rivals.made(name, text)[0, 0] for text in texts]))
    norms = [found[f"rivals_{name}_first"] for name in ("norms", *NORMS)]
    found |= {"rivals_least_first": min(norms), "rivals_most_first": max(norms)}
    found["rivals_rollouts"] = len(FORWARD)
    found["rivals_first"] = float(np.mean([one.measured[0] for one in rivals.judged.values()]))
    for short, pair in PAIRS.items():
        ends = zip(("", "_low", "_high"), rivals.gap(*pair), strict=True)
        found |= {f"rivals_{short}_gap{end}": x for end, x in ends}
    for short, text in zip(("wiki", "builtin"), TEXTS, strict=True):
        for word, pair in RULES.items():
            ends = zip(("", "_low", "_high"), rivals.gap(*pair, "rank correlation", text), strict=True)
            found |= {f"rivals_{short}_{word}{end}": x for end, x in ends}
    said = rivals.said[next(iter(TEXTS))]
    found["rivals_documents"] = len(said["attention"])
    found["rivals_documents_zeroing"] = len(said["value-zeroing"])
    return found


def _range(values: Float[np.ndarray, "B"], form: str, least: float = -1.0) -> str:
    """Return an interval as a table has it, nothing of what has no rank."""
    if np.isnan(values[0]):
        return ""
    low, high = hull_interval(float(values[0]), values[1:], least=least)
    return f"({low:{form}} to {min(high, 1.0):{form}})"

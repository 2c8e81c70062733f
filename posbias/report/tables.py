"""Tables of a report, as rows of plain text, and the data as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from posbias.comparison.resampling import interval
from posbias.report.known_models import NUMBERS, Standing
from posbias.report.stats import BASELINES, Evidence

SCORE_TITLES = ("prediction", "W₁", "95 % interval", "Spearman", "mean", "trough")
GAIN_TITLES = ("comparison", "gain in W₁", "95 % interval", "p, Holm", "verdict")
STANDING_TITLES = (
    "model", "kind", "layers", "mean", "first × n", "last", "trough depth", "Σλ", "W₁ (a)", "W₁ (b)", "W₁ (c)",
    "corpus",
)  # fmt: skip
BESIDE_TITLES = ("quantity", "this model", "the other", "difference", "95 % interval")
NONE = "–"


def score_rows_text(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """Yield a row for each prediction and baseline, by distance, and one for what was measured."""
    label, measured_mean = evidence.subject.label, evidence.subject.influence.mean_position
    for name, row in evidence.scores.sort_values("W1", kind="stable").iterrows():
        shape = evidence.predicted_u(str(name))
        yield (
            label(str(name)) + (" (baseline)" if name in BASELINES else ""),
            number(row["W1"]),
            span(row["low"], row["high"]),
            number(row["spearman"]),
            number(measured_mean + row["difference"]),
            NONE if shape is None else "yes" if shape.present else "no",
        )
    found = evidence.shape
    yield "measured", "", "", "", number(measured_mean), NONE if found is None else evidence.has_u


def gain_rows_text(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """Yield a row for each pair of predictions that was tested."""
    verdicts = {1: "nearer", -1: "further away", 0: "open"}
    for row in evidence.gains.to_dict("records"):
        pair = f"{evidence.subject.label(row['after'])} against {evidence.subject.label(row['before'])}"
        cells = number(row["gain"], "+.3f"), span(row["low"], row["high"], "+.3f"), number(row["adjusted"])
        yield pair, *cells, verdicts[int(row["decided"])]


def standing_rows_text(models: Iterable[Standing]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each known model."""
    for x in models:
        first = None if x.first is None else x.first * x.length
        numbers = [x.mean, first, x.last, x.depth, x.mixing, x.a, x.b, x.c]
        formats = [".2f", ".2f", ".2f", "+.2f", ".2f", ".2f", ".3f", ".3f"]
        cells = [number(value, how) for value, how in zip(numbers, formats, strict=True)]
        yield x.name, x.kind, str(x.layers), *cells, f"{x.corpus}, {x.length} tokens"


def beside_rows(one: Evidence, other: Evidence, *, paired: bool) -> Iterator[tuple[str, ...]]:
    """Yield the numbers of two models, their difference, and its interval.

    Parameters
    ----------
    one, other
        Two measurements, with as many resamples each.
    paired
        Whether both were measured on the same prompts, so that equal resamples hold the same prompts.
    """
    for title, (here, drawn) in one.quantities.items():
        if title not in other.quantities:
            yield title, number(here), NONE, NONE, NONE
            continue
        there, others = other.quantities[title]
        low, high = np.asarray(np.nan), np.asarray(np.nan)
        if drawn is not None and others is not None:
            order = slice(None) if paired else np.random.default_rng(1).permutation(len(others))
            low, high = interval(drawn - others[order])
        yield title, number(here), number(there), number(here - there, "+.3f"), span(float(low), float(high), "+.3f")


def number(value: float | None, how: str = ".3f") -> str:
    """Return a number as a table shows it; a dash for what is not known.

    >>> number(0.12345), number(float("nan")), number(None)
    ('0.123', '–', '–')
    """
    return NONE if value is None or not np.isfinite(value) else format(value, how)


def span(low: float, high: float, how: str = ".3f") -> str:
    """Return an interval, a dash where there is none."""
    return NONE if np.isnan(low) or np.isnan(high) else f"{low:{how}} to {high:{how}}"


def profile_csv(evidence: Evidence) -> str:
    """Return the measured profile with its interval and every prediction, a position a line."""
    columns = {"position": np.arange(len(evidence.p)), "measured": evidence.p}
    if evidence.band is not None:
        columns |= {"measured_low": evidence.band[0], "measured_high": evidence.band[1]}
    return _csv(columns | evidence.profiles)


def layer_csv(evidence: Evidence) -> str:
    """Return λ with its interval, and means of content over heads where they are, a layer a line."""
    columns = {"layer": np.arange(1, len(evidence.mixing) + 1), "lambda": evidence.mixing}
    if evidence.mixing_band is not None:
        columns |= {"lambda_low": evidence.mixing_band[0], "lambda_high": evidence.mixing_band[1]}
    results = evidence.subject.results
    names = ("content_diagonal", "content_offdiagonal", "similarity_diagonal", "similarity_offdiagonal")
    return _csv(columns | {name: results[name].values.mean(-1) for name in names if name in results})


def tests_csv(evidence: Evidence) -> str:
    """Return scores and tests, a row each."""
    scores = evidence.scores.reset_index().rename(columns={"prediction": "after"})
    return pd.concat([scores, evidence.gains]).to_csv(index=False, lineterminator="\n")


def standing_csv(models: Iterable[Standing]) -> str:
    """Return the known models, a row each."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["name", "kind", "layers", "length", "corpus", *NUMBERS, "source"])
    for x in models:
        numbers = ["" if getattr(x, name) is None else repr(float(getattr(x, name))) for name in NUMBERS]
        table.writerow([x.name, x.kind, x.layers, x.length, x.corpus, *numbers, x.source])
    return out.getvalue()


def _csv(columns: dict[str, np.ndarray]) -> str:
    return str(pd.DataFrame(columns).to_csv(index=False, lineterminator="\n", float_format="%.9g"))

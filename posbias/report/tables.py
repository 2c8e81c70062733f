"""Tables of a report, as rows of plain text, and the data as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from posbias.comparison.resampling import interval
from posbias.predict import yardsticks
from posbias.report.stats import Evidence

NONE = "–"


def score_cells(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """Yield a row for each prediction and baseline, by distance, and one for what was measured."""
    measured_mean = evidence.subject.influence.mean_position
    for name, row in evidence.scores.sort_values("W1", kind="stable").iterrows():
        shape = evidence.predicted_u(str(name))
        yield (
            evidence.subject.label(str(name)) + " (yardstick)" * (name in yardsticks()),
            number(row["W1"]),
            span(row["low"], row["high"]),
            number(row["spearman"]),
            number(measured_mean + row["difference"]),
            NONE if shape is None else "yes" if shape.present else "no",
        )
    yield "measured", "", "", "", number(measured_mean), NONE if evidence.shape is None else evidence.has_u


def gain_cells(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """Yield a row for each pair of predictions that was tested."""
    verdicts = {1: "closer", -1: "further away", 0: "open"}
    for row in evidence.gains.to_dict("records"):
        pair = f"{evidence.subject.label(row['after'])} against {evidence.subject.label(row['before'])}"
        cells = number(row["gain"], "+.3f"), span(row["low"], row["high"], "+.3f"), number(row["adjusted"])
        yield pair, *cells, verdicts[int(row["decided"])]


def beside_cells(one: Evidence, other: Evidence, *, paired: bool) -> Iterator[tuple[str, ...]]:
    """Yield the numbers of two models, their difference, and its interval.

    ``paired`` says whether both were measured on the same prompts, so that equal resamples hold the same prompts.
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


def number(value: float, how: str = ".3f") -> str:
    """Return a number as a table shows it; a dash for what is not known.

    >>> number(0.12345), number(float("nan"))
    ('0.123', '–')
    """
    return format(value, how) if np.isfinite(value) else NONE


def span(low: float, high: float, how: str = ".3f") -> str:
    """Return an interval, a dash where there is none."""
    return NONE if np.isnan(low) or np.isnan(high) else f"{low:{how}} to {high:{how}}"


def profile_csv(evidence: Evidence) -> str:
    """Return the measured profile with its interval and every prediction, a position a line."""
    columns = {"position": np.arange(len(evidence.p)), "measured": evidence.p}
    if evidence.band is not None:
        columns |= {"measured_low": evidence.band[0], "measured_high": evidence.band[1]}
    return csv(columns | evidence.profiles)


def layer_csv(evidence: Evidence) -> str:
    """Return λ with its interval, and means of content over heads where they are, a layer a line."""
    if evidence.mixing is None:
        return csv({"layer": np.zeros(0), "lambda": np.zeros(0)})
    columns = {"layer": np.arange(1, len(evidence.mixing) + 1), "lambda": evidence.mixing}
    if evidence.mixing_band is not None:
        columns |= {"lambda_low": evidence.mixing_band[0], "lambda_high": evidence.mixing_band[1]}
    results = evidence.subject.results
    names = ("content_diagonal", "content_offdiagonal", "similarity_diagonal", "similarity_offdiagonal")
    return csv(columns | {name: results[name].values.mean(-1) for name in names if name in results})


def score_csv(evidence: Evidence) -> str:
    """Return scores and tests, a row each."""
    scores = evidence.scores.reset_index().rename(columns={"prediction": "after"})
    return pd.concat([scores, evidence.gains]).to_csv(index=False, lineterminator="\n")


def csv(columns: Mapping[str, np.ndarray]) -> str:
    """Return columns as CSV, nine digits each."""
    return str(pd.DataFrame(dict(columns)).to_csv(index=False, lineterminator="\n", float_format="%.9g"))

"""The report on a measurement: what the template is given, with the rows of its tables as plain text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from posbias.comparison.resampling import interval
from posbias.files import write_whole
from posbias.predict import PREDICTORS
from posbias.report import figures, page, text
from posbias.report.page import NONE, number, span
from posbias.report.stats import FEW_UNITS, RESAMPLES, Evidence, Subject
from posbias.rollout.profiles import u_shape

UNTOLD = {"posbias_schema", "summary"}
"""Attributes that the page does not list."""


def write_report(path: Path, subject: Subject, *, resamples: int = RESAMPLES) -> Path:
    """Write the report on a measurement, and return its path."""
    write_whole(path, page.render(**_context(Evidence(subject, resamples))))
    return path


def _context(evidence: Evidence) -> dict[str, Any]:
    """Return what the template needs of one measurement."""
    subject, attrs = evidence.subject, evidence.subject.results.attrs
    drawn = {"resamples": f"{evidence.resamples:,}", "size": evidence.sample_size, "unit": evidence.unit}
    kinds = (str, int, float, np.integer, np.floating)
    return {
        "title": f"Position bias of {subject.title}",
        "described": subject.described,
        "answer": text.answer(evidence),
        "main": figures.profile_figure(evidence),
        "asked": text.list_settings(subject),
        "scores": score_cells(evidence),
        "best": "" if evidence.nearest is None else subject.label(evidence.nearest),
        "drawn": None if evidence.influence is None else drawn | {"few": evidence.sample_size < FEW_UNITS},
        "gains": gain_cells(evidence),
        "total_mixing": "" if evidence.mixing is None else f"{evidence.mixing.sum():.2f}",
        "mixing": None if evidence.mixing is None else figures.mixing_figure(evidence.mixing, evidence.mixing_band),
        "kernels": figures.kernel_figure(subject.results),
        "sinks": subject.results["sink_share"].values if "sink_share" in subject.results else None,
        "predictors": [PREDICTORS[name] for name in subject.predictions],
        "provenance": [(k, x) for k, x in attrs.items() if k not in UNTOLD and isinstance(x, kinds)],
    }


def score_cells(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """Yield a row for each prediction by distance, one for halves of the prompts, and one for what was measured."""
    subject = evidence.subject
    measured_mean, yardsticks = subject.influence.mean_position, {*subject.predictions} - {*subject.of_model}
    for name, row in evidence.scores.sort_values("W1", kind="stable").iterrows():
        shape = None if evidence.shape is None else u_shape(evidence.profiles[str(name)])
        label = subject.label(str(name))
        yield (
            f"{label} (yardstick)" if name in yardsticks else label,
            number(row["W1"]),
            span(row[["low", "high"]]),
            number(row["total_variation"]),
            number(row["spearman"]),
            number(measured_mean + row["difference"]),
            NONE if shape is None else "yes" if shape.present else "no",
        )
    if (floor := evidence.floor) is not None:
        means = (number(floor[name].mean()) for name in ("W1", "total_variation", "spearman"))
        yield "one half of the prompts by the other", next(means), span(interval(floor["W1"])), *means, "", ""
    yield "measured", "", "", "", "", number(measured_mean), NONE if evidence.shape is None else evidence.has_u


def gain_cells(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    """Yield a row for each pair of predictions that was tested."""
    verdicts = {1: "closer", -1: "further away", 0: "open"}
    for row in evidence.gains.to_dict("records"):
        pair = f"{evidence.subject.label(row['after'])} against {evidence.subject.label(row['before'])}"
        p = number(row["adjusted"])
        if row["p_value"] <= 2 / (1 + evidence.resamples):  # resamples give no less
            p = f"≤ {p}"
        yield pair, number(row["gain"], "+.3f"), span((row["low"], row["high"]), "+.3f"), p, verdicts[row["decided"]]

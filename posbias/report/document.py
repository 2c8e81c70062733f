"""The report on a measurement."""

from pathlib import Path
from typing import Any

import numpy as np

from posbias.files import write_whole
from posbias.predict import PREDICTORS
from posbias.report import figures, page, tables, text
from posbias.report.stats import FEW_UNITS, RESAMPLES, Evidence, Subject

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
        "scores": tables.score_cells(evidence),
        "best": "" if evidence.nearest is None else subject.label(evidence.nearest),
        "drawn": None if evidence.influence is None else drawn | {"few": evidence.sample_size < FEW_UNITS},
        "gains": tables.gain_cells(evidence),
        "total_mixing": "" if evidence.mixing is None else f"{evidence.mixing.sum():.2f}",
        "mixing": None if evidence.mixing is None else figures.mixing_figure(evidence.mixing, evidence.mixing_band),
        "kernels": [figures.kernel_figure(subject.results), figures.received_figure(subject.results)],
        "sinks": subject.results["sink_share"].values if "sink_share" in subject.results else None,
        "content": figures.content_figure(subject.results),
        "predictors": [PREDICTORS[name] for name in subject.predictions],
        "provenance": [(k, x) for k, x in attrs.items() if k not in UNTOLD and isinstance(x, kinds)],
    }

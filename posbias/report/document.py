"""The report on a measurement, alone or beside another one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posbias.comparison.distances import normalised_wasserstein, wasserstein_to
from posbias.comparison.resampling import hull_interval
from posbias.files import write_whole
from posbias.measure.results import target_words
from posbias.predict import PREDICTORS
from posbias.report import figures, page, tables, text
from posbias.report.stats import FEW_UNITS, RESAMPLES, Evidence, Subject

UNTOLD = {"posbias_schema", "summary"}
"""Attributes that the page does not list."""


def write_report(path: Path, subject: Subject, others: Sequence[Subject] = (), *, resamples: int = RESAMPLES) -> Path:
    """Write the report on a measurement, beside others if given, and return its path."""
    evidence, beside = Evidence(subject, resamples), [Evidence(other, resamples) for other in others]
    names = ["the other"] if len(beside) == 1 else [f"{k}: {other.subject.title}" for k, other in enumerate(beside, 1)]
    curves = {"this model": evidence.p} | {name: other.p for name, other in zip(names, beside, strict=True)}
    context = _context(evidence)
    context |= {"beside": [_beside(evidence, other) for other in beside]}
    context["beside_figure"] = figures.beside_figure(curves) if beside else None
    write_whole(path, page.render(**context))
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
        "target": target_words(attrs),
        "scores": tables.score_cells(evidence),
        "best": "" if evidence.nearest is None else subject.label(evidence.nearest),
        "drawn": None if evidence.influence is None else drawn | {"few": evidence.sample_size < FEW_UNITS},
        "gains": tables.gain_cells(evidence),
        "total_mixing": "" if evidence.mixing is None else f"{evidence.mixing.sum():.2f}",
        "mixing": None if evidence.mixing is None else figures.mixing_figure(evidence.mixing, evidence.mixing_band),
        "kernels": [figures.kernel_figure(subject.results), figures.received_figure(subject.results)],
        "sinks": subject.results["sink_share"].values if "sink_share" in subject.results else None,
        "content": figures.content_figure(subject.results),
        "content_form": attrs.get("content_form"),
        "predictors": [PREDICTORS[name] for name in subject.predictions],
        "provenance": [(k, x) for k, x in attrs.items() if k not in UNTOLD and isinstance(x, kinds)],
    }


def _beside(evidence: Evidence, other: Evidence) -> dict[str, Any]:
    """Return two models beside each other: numbers, and differences with intervals."""
    one, two = evidence.subject.results.attrs, other.subject.results.attrs
    paired = all(one.get(key) == two.get(key) is not None for key in ("prompts_sha256", "prompts", "length"))
    return {
        "title": other.subject.title,
        "described": other.subject.described,
        "paired": paired,
        "apart": _apart(evidence, other),
        "rows": tables.beside_cells(evidence, other, paired=paired),
        "answer": text.answer(other, "lost", "nearest"),
    }


def _apart(evidence: Evidence, other: Evidence) -> tuple[float, tuple[float, float]] | None:
    """Return the distance between two measured profiles and its interval, None where their lengths differ."""
    if evidence.p.size != other.p.size:
        return None
    away = normalised_wasserstein(evidence.p, other.p)
    if evidence.resampled is None:
        return away, (np.nan, np.nan)
    return away, hull_interval(away, wasserstein_to(evidence.resampled, other.p), least=0.0)

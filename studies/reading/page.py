"""All numbers and words that the page glues into its prose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from studies.reading import evidence, kinds, predicted, questions, rivals, wrong
from studies.reading.evidence import Evidence
from studies.reading.trained import source_numbers, source_said, trained_numbers

OF_EVIDENCE = (
    evidence.law_numbers,
    evidence.dose_numbers,
    evidence.apart_numbers,
    evidence.unit_numbers,
    evidence.form_numbers,
    evidence.end_numbers,
    evidence.other_numbers,
    kinds.kind_numbers,
    kinds.over_sentences,
    rivals.rival_numbers,
    wrong.source_numbers,
    wrong.sixteen_numbers,
)


def page_numbers(seen: Evidence, predictions: pd.DataFrame, theorem: Mapping[str, Any]) -> dict[str, Any]:
    """Return every number and text that the page prints, by name; ``theorem`` has those of the theorem."""
    numbers: dict[str, Any] = {}
    for of_evidence in OF_EVIDENCE:
        numbers |= of_evidence(seen)
    numbers |= trained_numbers() | source_said(source_numbers()) | dict(theorem)
    numbers |= predicted.predicted_numbers(predictions)
    return numbers | questions.texts(seen.law.sharpness_interval[0])

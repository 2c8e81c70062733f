"""What can be asked of a study, and what can be refused of it before a model is touched or torch is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posbias import errors
from posbias.measure.settings import check_prompts_fit

STUDY_NAMES = (
    "birth", "families", "corpora", "untrained", "seeds", "snapshots", "absolute", "norms", "hops", "gap", "paths",
    "between", "rotary", "designed", "design-birth", "design-gates", "remedies", "added-biases",
)  # fmt: skip
"""Names of the studies, those of :data:`~studies.driver.STUDIES`."""
OF_TRAINED = ("seeds", "snapshots", "designed")
"""Studies of a folder of trained models only; others measure its models where it is given."""


@dataclass(frozen=True)
class Request:
    """Hold what is asked of a study beside its name; None leaves what its row says.

    Parameters
    ----------
    models
        Names of reference models, or directories or ids on the hub.
    parts
        Names of parts.
    prompts, length
        How many prompts, of how many tokens.
    wikitext
        Text of WikiText-2, its test part, for the part of that name.
    trained
        Folder that ``posbias train-reference -o`` filled: its models are measured in place of the reference models,
        and files are named by model and seed. The study of snapshots needs it filled with ``--snapshots``, a part
        seed-K with ``--seed K``; what was kept during training is measured by the study ``between`` too.
    """

    models: Sequence[str] | None = None
    parts: Sequence[str] | None = None
    prompts: int | None = None
    length: int | None = None
    wikitext: Path | None = None
    trained: Path | None = None


def check_study(name: str) -> None:
    """Raise ValueError unless a study has this name.

    >>> check_study("gravity")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: study: expected one of birth, families, ..., received gravity
    """
    if name not in STUDY_NAMES:
        raise errors.invalid("study", f"one of {', '.join(STUDY_NAMES)}", name or "an empty name")


def check_request(name: str, request: Request) -> None:
    """Raise for what no study can do, and for a study of trained models without any.

    Parameters
    ----------
    name
        Of the study.
    request
        What is asked of it.

    Raises
    ------
    ValueError
        With what was expected.
    """
    check_study(name)
    for what, number, least in (("prompts", request.prompts, 1), ("length", request.length, 2)):
        if number is not None:
            errors.positive_integer(what, number, minimum=least)
    check_prompts_fit(request.prompts or 1, request.length or 2)
    if name in OF_TRAINED and request.trained is None:
        hint = " --snapshots" if name == "snapshots" else " --seed S"
        raise errors.invalid(name, f"--trained FOLDER, made by posbias train-reference{hint}", "none")

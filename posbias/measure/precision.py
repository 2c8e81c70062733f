"""What a 16-bit number format costs: one prompt measured in it and in 32 bits, and the largest differences."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from jaxtyping import Int
from torch import Tensor

from posbias.measure.accumulators import LayerSums
from posbias.measure.instrument import Instrument
from posbias.models.attention import Reading

TOKENS = 256
"""Tokens of the prompt that are measured twice, at most."""


def read_prompt(instrument: Instrument, ids: Int[Tensor, "n"]) -> dict[str, np.ndarray]:
    """Return λ, influence, each head's weights and content logits of the first :data:`TOKENS` tokens of a prompt."""
    ids = ids[None, :TOKENS]
    n = ids.shape[1]
    kept = ("kernels", "content", "logits", "heads")
    layers = [LayerSums(instrument.H, n, where, kept) for where in instrument.devices()]

    def observe(seen: Reading) -> None:
        layers[seen.layer].add(seen)

    reading = instrument.measure(ids, observe)
    means = [layer.means(1, n) for layer in layers]
    p = reading.influence[0].numpy()
    return {
        "lambda": reading.lambda_frobenius[0].numpy(),
        "influence": p / p.sum(),
        "attention": np.stack([x["attention_heads"] for x in means]),
        "content": np.stack([x["content_logits"] for x in means]),
    }


def differences(rounded: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray]) -> str:
    """Return the largest differences between two readings of a prompt, as JSON.

    ``lambda`` is of any layer's λ, ``influence`` the share of influence that lies elsewhere, ``attention`` of any
    head's weight, ``content`` of any head's content logit, the largest of which in 32 bits is ``content_largest``.
    """
    found = {name: float(np.nanmax(np.abs(rounded[name] - x))) for name, x in exact.items()}
    found["influence"] = float(np.abs(rounded["influence"] - exact["influence"]).sum() / 2)
    found["content_largest"] = float(np.nanmax(np.abs(exact["content"])))
    return json.dumps({name: float(f"{x:.3g}") for name, x in found.items()} | {"tokens": exact["influence"].size})

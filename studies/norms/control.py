"""A network with a known answer: what undoing the norm takes from its recency, read by the instrument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import nn

from posbias.measure.instrument import Instrument
from studies.norms.measure import PARTS, octave_slopes, read_recency, read_sizes, replaced_denominators

UNDONE = {
    "keys, constant": ("k", False),
    "keys, course": ("k", True),
    "queries, constant": ("q", False),
    "values too": ("qkv", False),
}
"""Ways to undo the norm: the projections that get other denominators, and whether tokens keep theirs but the course."""


@dataclass(frozen=True)
class Control:
    """Hold how recent the identity network is with its norms and without.

    ``recency`` has ``probability`` and its standard ``error`` by ``condition`` (intact, or a key of :data:`UNDONE`) and
    ``layer``, counted from 1; ``exponents`` are of the size of each layer's input along the prompt.
    """

    recency: pd.DataFrame
    exponents: Float[np.ndarray, "T"]

    def of(self, condition: str, layer: int) -> tuple[float, float]:
        """Return probability and error of a condition in a layer."""
        rows = self.recency.query("condition == @condition and layer == @layer")
        return float(rows["probability"].item()), float(rows["error"].item())


def control_network(X: Float[np.ndarray, "N n D"], layers: int) -> Control:
    """Return the recency of x ← x + A u, u = LayerNorm(x), on N sequences, intact and with the norm undone."""
    N, n, D = X.shape
    instrument = Instrument(identity_network(X.reshape(-1, D), layers, n))
    ids, queries = np.arange(N * n).reshape(N, n), np.arange(2, n)
    sizes = read_sizes(instrument, ids, N)[:, :, PARTS.index("input")].astype(float)
    course = np.exp(np.log(sizes).mean(0))
    found = {"intact": read_recency(instrument, ids, queries, N).preference}
    for condition, (parts, own) in UNDONE.items():
        with replaced_denominators(instrument, course, parts, own=own):
            found[condition] = read_recency(instrument, ids, queries, N).preference
    rows = [
        (condition, t + 1, shares[:, t].mean(), shares[:, t].std() / np.sqrt(N))
        for condition, shares in found.items()
        for t in range(layers)
    ]
    frame = pd.DataFrame(rows, columns=["condition", "layer", "probability", "error"])
    return Control(frame, octave_slopes(sizes).mean(0))


def identity_network(embeddings: Float[np.ndarray, "v D"], layers: int, length: int) -> nn.Module:
    """Return x ← x + A u, u = LayerNorm(x), A = softmax(u uᵀ/√D) on j ≤ i: GPT-2 with identities for projections.

    >>> identity_network(np.eye(3, 4), 2, 5).config.n_layer
    2
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    v, D = embeddings.shape
    config = GPT2Config(
        vocab_size=v, n_embd=D, n_layer=layers, n_head=1, n_inner=1, n_positions=length, layer_norm_epsilon=1e-12,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model: Any = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.transformer.h.parameters():
            parameter.zero_()
        model.transformer.wte.weight.copy_(torch.from_numpy(embeddings))
        model.transformer.wpe.weight.zero_()
        for layer in model.transformer.h:
            layer.ln_1.weight.fill_(1.0)
            layer.attn.c_attn.weight.copy_(torch.eye(D).repeat(1, 3))
            layer.attn.c_proj.weight.copy_(torch.eye(D))
    network: nn.Module = model.eval()
    return network

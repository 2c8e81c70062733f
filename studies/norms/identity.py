"""The network of the LayerNorm chapter as a model that the instrument can measure: a control with a known answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from posbias import errors


def identity_network(embeddings: Float[np.ndarray, "v D"], layers: int, length: int) -> nn.Module:
    """Return x ← x + A u, u = LayerNorm(x), A = softmax(u uᵀ/√D) on j ≤ i: GPT-2 with identities for projections.

    The same as :func:`~studies.norms.layernorm_simulation.layer_logits` with ``residual="pre"``, in 32 bits.

    Parameters
    ----------
    embeddings
        One row for each token of the vocabulary.
    layers
        At least 1. One head, no feed-forward blocks, no positions.
    length
        The longest sequence.

    >>> identity_network(np.eye(3, 4), 2, 5).config.n_layer
    2
    """
    (v, D), layers = embeddings.shape, errors.positive_integer("layers", layers)
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

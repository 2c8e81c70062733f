"""What can be done about a finished model's positions while it works: contexts after which it is what it was.

A position bias is *added* to the logits that a model has, through the input that its family has for one: its own ALiBi,
rotation, learned positions and given biases stay (:mod:`posbias.models.given_biases` has the hooks). A *temperature*
divides a layer's content logits, by a factor on its queries. No weight changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posbias import errors
from posbias.errors import Numbers
from posbias.models.description import biases_of
from posbias.models.families import Family, family_of, text_config
from posbias.models.given_biases import bias_hooks
from posbias.models.hooks import After, hooked
from posbias.rollout.position_bias import Biases

QUERIES = ("q_norm", "q_layernorm", "q_b_proj", "q_proj")
"""Names, in an attention module, of what gives queries last before a rotation; a fused projection where none is."""

FIELD = "bias"
"""What an added bias is called in messages."""


@contextmanager
def added_biases(model: nn.Module, biases: Any) -> Iterator[None]:
    """Add position biases to the logits of a model's heads until the block ends, however it ends.

    What a mask hides stays hidden, whatever the bias says. Grouped-query heads are query heads. Prompts may be padded
    on the right; a cache counts, as :mod:`posbias.models.given_biases` says.
    """
    config: Any = text_config(model.config)
    with hooked(before=bias_hooks(model, fitting_biases(config, biases), adds=True)):
        yield


def fitting_biases(config: Any, biases: Any) -> Biases:
    """Return the biases of a description, or those that are given, for a model with this configuration.

    >>> from transformers import GPT2Config
    >>> fitting_biases(GPT2Config(), [{"kind": "none"}] * 2)
    Traceback (most recent call last):
    ValueError: bias: expected one bias, or one for each of 12 heads, received 2
    """
    T, H = int(config.num_hidden_layers), int(config.num_attention_heads)
    if not isinstance(biases, tuple):
        return biases_of(config.model_type, biases, T, H, field=FIELD)
    sizes = [len(row) for row in biases]
    if len(sizes) not in (1, T) or set(sizes) != {H}:
        raise errors.invalid(FIELD, f"those of 1 or {T} layers of {H} heads", sizes)
    return biases


@contextmanager
def divided_logits(model: nn.Module, temperatures: Numbers) -> Iterator[None]:
    """Divide the content logits of a model's layers by temperatures until the block ends, however it ends.

    A layer's queries are divided after their projection (and norm, where there is one), so that logits before a soft
    cap and before any bias are. A temperature of 1 changes no bit.
    """
    family = family_of(model.config)
    attentions = [family.attention_of(layer) for layer in family.layers(model)]
    T = len(attentions)
    found = errors.finite_array("temperatures", temperatures, ndim=(0, 1))
    if found.size not in (1, T) or (found <= 0).any():
        received = f"{found.size} from {found.min():g}" if found.size else "none"
        raise errors.invalid("temperatures", f"1 number or {T}, above 0", received)
    each = np.broadcast_to(found, (T,)).tolist()
    with hooked(
        after=[_divided(family, attention, x) for attention, x in zip(attentions, each, strict=True) if x != 1]
    ):
        yield


def _divided(family: Family, attention: nn.Module, temperature: float) -> tuple[nn.Module, After]:
    """Return the module that makes queries, with a hook that divides them."""
    if hasattr(attention, "qk_norm"):  # Llama 4's, which is one for queries and keys
        raise errors.invalid("model", "queries that can be divided", "queries that are normed after their rotation")
    path = next((name for name in QUERIES if getattr(attention, name, None) is not None), family.projections[0])

    def divide(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        if family.groups is None:
            return output / temperature
        is_query = torch.from_numpy(family.columns(attention, 0, output.shape[-1]) == "q").to(output.device)
        return torch.where(is_query, output / temperature, output)

    return attention.get_submodule(path), divide

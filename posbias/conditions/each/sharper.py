"""Multiplies the content logits of all heads, or of given ones, by a factor: attention is sharper above 1.

A layer's queries are multiplied after their projection (and norm, where there is one), so before any bias. A factor of
1 changes no bit.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posbias import errors
from posbias.conditions import FIELD, ChangedRun, arguments
from posbias.heads import Head, check_heads
from posbias.models.families import Family, family_of, text_config
from posbias.models.hooks import After, hooked
from posbias.prompts import Prompt

QUERIES = ("q_norm", "q_layernorm", "q_b_proj", "q_proj")
"""Names, in an attention module, of what gives queries last before a rotation; a fused projection where none is."""


@contextmanager
def sharper(
    model: nn.Module, factor: float | Sequence[float] | np.ndarray, heads: Sequence[Head] | None = None
) -> Iterator[None]:
    """Multiply the content logits of heads, all unless given, by a factor, or by one a layer, until the block ends."""
    check_heads_of(model.config, heads)
    family, H = family_of(model.config), int(text_config(model.config).num_attention_heads)
    layers = [family.attention_of(layer) for layer in family.layers(model)]
    hooks = []
    factors = np.broadcast_to(factor, (len(layers),)).tolist()
    for t, (attention, own_factor) in enumerate(zip(layers, factors, strict=True)):
        own = list(range(H)) if heads is None else [h for layer, h in heads if layer == t]
        if own and own_factor != 1:
            each = torch.ones(H)
            each[own] = own_factor
            hooks.append(multiplied(family, attention, each))
    with hooked(after=hooks):
        yield


def check_heads_of(config: Any, heads: Sequence[Head] | None) -> None:
    """Raise ValueError for a model without a row, and for heads that the model has not."""
    family_of(config)
    shape = text_config(config)
    check_heads(f"{FIELD}: heads", heads or (), int(shape.num_hidden_layers), int(shape.num_attention_heads))


def multiplied(family: Family, attention: nn.Module, each: Tensor) -> tuple[nn.Module, After]:
    """Return the module that makes queries, with a hook that multiplies those of each head."""
    if hasattr(attention, "qk_norm"):  # Llama 4's, which is one for queries and keys
        raise errors.invalid("model", "queries that can be multiplied", "queries that are normed after their rotation")
    path = next((name for name in QUERIES if getattr(attention, name, None) is not None), family.projections[0])
    H = len(each)

    def multiply(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        factors = each.to(output)
        if output.ndim == 4:  # a norm head by head, the heads before or behind the tokens
            if output.shape[1] == output.shape[2] == H and bool((each != each[0]).any()):
                raise errors.invalid(FIELD, "prompts with other than as many tokens as heads, for this family", H)
            shape = (1, 1, H, 1) if output.shape[-2] == H else (1, H, 1, 1)
            return output * factors.view(shape)
        columns = family.columns(attention, 0, output.shape[-1])
        scale = torch.ones(output.shape[-1]).to(output)
        queries = torch.from_numpy(np.flatnonzero(columns == "q")).to(output.device)
        scale[queries] = factors.repeat_interleave(len(queries) // H)
        return output * scale

    return attention.get_submodule(path), multiply


def read_heads(text: str) -> list[Head]:
    """Return heads such as 17.4+18.6, layer and head each.

    >>> read_heads("17.4+18.6")
    [(17, 4), (18, 6)]
    """
    found = []
    for one in text.split("+"):
        layer, _, head = one.partition(".")
        found.append((int(layer), int(head)))
    return found


class Condition(ChangedRun):
    changes = "model"
    needs = "a model in this process, of a family with a row; factor=1.5, and heads=17.4+18.6 for some heads"
    cost = "nothing"

    def __init__(self, argument: str) -> None:
        found = arguments(argument, factor=float, heads=read_heads)
        self.factor, self.heads = found.get("factor", 1.5), found.get("heads")
        if not (np.isfinite(self.factor) and self.factor > 0):
            raise errors.invalid(f"{FIELD}: factor", "a number above 0", self.factor)

    def check(self, config: Any) -> None:
        check_heads_of(config, self.heads)

    def changed(self, model: Any, prompt: Prompt | None) -> AbstractContextManager[None]:
        return sharper(model, self.factor, self.heads)

"""What a forward pass of a Llama says of each layer: input, attention, and the parts that add up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.models.families import family_of


@dataclass(frozen=True)
class Layer:
    """Hold a layer, its input x, its attention weights, and the norm that reads its output."""

    module: Any
    x: Float[Tensor, "n d"]
    attention: Float[Tensor, "H n n"]
    next_norm: Any

    @cached_property
    def carried(self) -> Float[Tensor, "H n d"]:
        """What each head adds to a token that attends to one key alone: f(x_j) of Kobayashi et al."""
        attend, (H, n, _) = self.module.self_attn, self.attention.shape
        values = attend.v_proj(self.module.input_layernorm(self.x))
        shared = values.view(n, -1, attend.head_dim).transpose(0, 1)
        maps = attend.o_proj.weight.view(-1, H, attend.head_dim).permute(1, 2, 0)
        return shared.repeat_interleave(H // len(shared), 0) @ maps

    @cached_property
    def added(self) -> Float[Tensor, "n d"]:
        """What attention adds to each token."""
        return (self.attention @ self.carried).sum(0)

    @cached_property
    def y(self) -> Float[Tensor, "n d"]:
        """The tokens' states after attention, which the MLP reads."""
        return self.x + self.added

    @cached_property
    def output(self) -> Float[Tensor, "n d"]:
        """The layer's output, with what the MLP adds."""
        return self.y + self.module.mlp(self.module.post_attention_layernorm(self.y))

    def parts(self, queries: slice) -> Float[Tensor, "k q d"]:
        """Return what queries get from each key that one of them sees, without the residual stream."""
        weights = self.attention[:, queries, : queries.stop].permute(2, 1, 0)
        return weights @ self.carried[:, : queries.stop].transpose(0, 1)


@torch.no_grad()
def read_layers(model: Any, ids: Int[Tensor, "n"]) -> list[Layer]:
    """Return the layers of a prompt; the model's attention has to be eager."""
    seen = model(ids[None], output_attentions=True, output_hidden_states=True, use_cache=False)
    if not seen.attentions or seen.attentions[0] is None:
        raise ValueError("read_layers: expected a model with eager attention, received weights of no layer")
    modules = family_of(model.config).layers(model)
    norms = [module.input_layernorm for module in modules[1:]] + [model.model.norm]
    each = zip(modules, seen.hidden_states, seen.attentions, norms, strict=False)
    return [Layer(module, x[0], weights[0], norm) for module, x, weights, norm in each]


def blocks(n: int, rows: int = 16) -> list[slice]:
    """Return queries, some at a time.

    >>> blocks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]

"""Gated short convolutions, as LFM2's: T_ij = W_out (C_i ⊙ w_{i-j} ⊙ B_j ⊙ x̃_j), for the last few tokens j.

B, C and x̃ are thirds of one projection of what the module is given; w has a number for each channel and distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posbias.models.mixers import Given, ModuleMixer
from posbias.models.weights import present


class Mixer(ModuleMixer):
    convolution = "conv"

    def prompts(self, seen: Given) -> Iterator[Convolved]:
        kernel, bias = convolution(self.module.conv)
        weight, last = self.projection()
        B, C, x = self.module.in_proj(seen.input).float().chunk(3, dim=-1)
        for prompt in range(len(B)):
            values = B[prompt] * x[prompt]
            yield Convolved(values, C[prompt], kernel, bias, weight, last)


class Convolved:
    """What a gated convolution adds to the tokens of one prompt."""

    def __init__(
        self,
        values: Float[Tensor, "n c"],
        gate: Float[Tensor, "n c"],
        kernel: Float[Tensor, "c reach"],
        bias: Float[Tensor, "c"],
        weight: Float[Tensor, "d c"],
        last: Float[Tensor, "d"],
    ) -> None:
        self.values, self.gate, self.kernel = values, gate, kernel
        self.bias, self.weight, self.last = bias, weight, last

    def weights(self, queries: slice) -> None:
        """Return no weights: there are no heads, each channel has a weight of its own."""
        return

    def parts(self, queries: slice) -> Float[Tensor, "k q d"]:
        """Return the parts of keys, none but those of the last few tokens."""
        places = torch.arange(queries.start, queries.stop, device=self.values.device)
        made = self.values.new_zeros(queries.stop, len(places), len(self.weight))
        for back in range(self.kernel.shape[1]):
            there = places[places >= back]
            channels = self.gate[there] * self.kernel[:, back] * self.values[there - back]
            made[there - back, there - queries.start] = channels @ self.weight.mT
        return made

    def biases(self, queries: slice) -> Float[Tensor, "q d"]:
        """Return the convolution's bias, as the gate lets it through, and the output projection's."""
        return self.gate[queries] * self.bias @ self.weight.mT + self.last


def convolution(conv: Any) -> tuple[Float[Tensor, "c reach"], Float[Tensor, "c"]]:
    """Return a causal convolution's weight for each channel by distance, the token itself first, and its bias."""
    with present(conv):
        kernel = conv.weight.detach().float()[:, 0].flip(-1)
        bias = torch.zeros_like(kernel[:, 0]) if conv.bias is None else conv.bias.detach().float()
    return kernel, bias

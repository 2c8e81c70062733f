"""Attention: T_ij = Σ_h A_h[i,j] W_O^h v_h[j], with what stands between heads and stream.

That is a gate on the averages of values, where a family has one; a norm on the output, which is linear once its
denominators are known; and a number that the output is multiplied by.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias.models.attention import Reading
from posbias.models.families import Family, output_projection
from posbias.models.mixers import coded
from posbias.models.norms import centres, denominators, is_norm, multiplier
from posbias.models.weights import projection_bias, projection_weight


class Mixer:
    def __init__(self, family: Family, layer: nn.Module) -> None:
        self.projection = output_projection(family.attention_of(layer))
        self.output, self.times = family.output_of(layer), family.multiplier(layer)

    def lacking(self) -> str | None:
        if centres(self.output):
            return "a LayerNorm on attention's output"
        return coded(self.projection, of="attention ")

    def prompts(self, seen: Reading) -> Iterator[Heads]:
        weight, bias = projection_weight(self.projection), projection_bias(self.projection)
        norm = self.output if is_norm(self.output) else None
        for prompt in range(seen.shape[0]):
            yield Heads(seen, prompt, weight, bias, norm, self.times)


class Heads:
    """What the heads of a layer add to the tokens of one prompt."""

    def __init__(
        self,
        seen: Reading,
        prompt: int,
        weight: Float[Tensor, "d channels"],
        bias: Float[Tensor, "d"],
        norm: nn.Module | None,
        times: float,
    ) -> None:
        self.seen, self.prompt, self.norm = seen, prompt, norm
        self.weight, self.bias = weight, bias
        self.values = seen.values[prompt].float()
        self.gate = None if seen.gate is None else seen.gate[prompt].float()
        self.factor: Tensor | float = times
        if norm is not None:
            self.factor = times * multiplier(norm, weight.mT)

    def weights(self, queries: slice) -> Float[Tensor, "H q k"]:
        own = slice(self.prompt, self.prompt + 1)
        weights = self.seen.block(own, queries, content=False)[1]
        assert weights is not None
        return weights[0].float()

    def parts(self, queries: slice) -> Float[Tensor, "k q d"]:
        p = self.weights(queries)
        if self.gate is None:
            shares = (p / self._divided(p, queries)).permute(2, 1, 0).contiguous()
            return torch.bmm(shares, self._carried[: queries.stop])
        values = self.values[:, : queries.stop].transpose(0, 1)
        weighed = p.permute(2, 1, 0)[..., None] * values[:, None]
        gated = weighed.flatten(2) * self.gate[queries]
        return gated @ self.weight.mT * self.factor / self._divided(p, queries)

    def biases(self, queries: slice) -> Float[Tensor, "q d"]:
        """Return the output projection's bias."""
        own = (self.bias * self.factor).expand(queries.stop - queries.start, -1)
        return own if self.norm is None else own / self._divided(self.weights(queries), queries)

    @cached_property
    def _carried(self) -> Float[Tensor, "k H d"]:
        """What each head's value becomes on its way to the stream, but for what a norm divides by."""
        H = len(self.values)
        maps = self.weight.view(len(self.weight), H, -1).permute(1, 2, 0)
        return (self.values @ maps * self.factor).transpose(0, 1).contiguous()

    def _divided(self, p: Float[Tensor, "H q k"], queries: slice) -> Float[Tensor, "q 1"] | float:
        """Return what a norm on the output divides by, 1 without one."""
        if self.norm is None:
            return 1.0
        heads = (p @ self.values[:, : queries.stop]).transpose(0, 1).flatten(1)
        if self.gate is not None:
            heads = heads * self.gate[queries]
        return denominators(self.norm, nn.functional.linear(heads, self.weight, self.bias))

"""What recurrent mixers share: heads with signed weights over values that a short convolution made of a few tokens.

A value is u σ(u), u a convolution of what a few tokens project to. Given σ(u) it is linear in these, so that each of
them has its part in it, and through a head's weights A_h[i,m] in what later tokens are given: T_ij = W_out s_i ⊙
Σ_m A_h[i,m] (part of j in the value m), where s_i is what a gated norm multiplies by once its denominator is known.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posbias.models.mixers.short_convolution import convolution

Weights = Callable[[slice], Float[Tensor, "H q k"]]
Scale = Callable[[Float[Tensor, "q H V"], slice], Float[Tensor, "q c"]]
"""Takes the averages of queries, and returns what each channel of them is multiplied by before the projection."""


class Values:
    """The values of a prompt's heads, and each token's part in them."""

    def __init__(self, conv: Any, inputs: Float[Tensor, "n c"], channels: slice, H: int) -> None:
        kernel, bias = convolution(conv)
        n, reach = len(inputs), kernel.shape[1]
        earlier = torch.stack([inputs.roll(back, 0) for back in range(reach)])  # (reach, n, c)
        for back in range(1, reach):
            earlier[back, :back] = 0.0
        made = earlier * kernel.mT[:, None]
        total = made.sum(0) + bias
        self.whole = torch.nn.functional.silu(total)  # all that the convolution makes, with queries and keys
        passed, shape = total.sigmoid(), (n, H, -1)
        self.parts = (made * passed)[..., channels].unflatten(-1, (H, -1))  # of token m - back in value m
        self.bias = (bias * passed)[:, channels].reshape(shape)
        self.values = self.whole[:, channels].reshape(shape)


class Recurrence:
    """What heads with signed weights add to the tokens of one prompt."""

    def __init__(
        self,
        values: Values,
        weights: Weights,
        scale: Scale,
        weight: Float[Tensor, "d c"],
        last: Float[Tensor, "d"],
    ) -> None:
        self.values, self.weights, self.scale = values, weights, scale
        self.weight, self.last = weight, last

    def parts(self, queries: slice) -> Float[Tensor, "k q d"]:
        p, stop = self.weights(queries).permute(2, 1, 0), queries.stop
        scale = self._scaled(queries, p)
        made = p.new_zeros(*p.shape, self.values.values.shape[-1])
        for back, parts in enumerate(self.values.parts):
            made[: max(stop - back, 0)] += p[back:, ..., None] * parts[back:stop, None]
        return made.flatten(2) * scale @ self.weight.mT

    def biases(self, queries: slice) -> Float[Tensor, "q d"]:
        """Return the convolution's bias, as weights and scale let it through, and the output projection's."""
        p = self.weights(queries).permute(2, 1, 0)
        heads = torch.einsum("kqh,khv->qhv", p, self.values.bias[: queries.stop])
        return heads.flatten(1) * self._scaled(queries, p) @ self.weight.mT + self.last

    def _scaled(self, queries: slice, p: Float[Tensor, "k q H"]) -> Float[Tensor, "q c"]:
        averages = torch.einsum("kqh,khv->qhv", p, self.values.values[: queries.stop])
        return self.scale(averages, queries)

"""Mamba 2: signed weights A_h[i,m] = C_iᵀ B_m e^(Σ a) Δ_m, D more on the diagonal, then a gated norm.

Σ a runs over tokens m+1 … i, a = -e^(A_log) Δ. The norm divides by the root mean square of groups of channels after
the gate: once that is known it is a number for each token and group.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from posbias.models.mixers import Given, ModuleMixer
from posbias.models.mixers.recurrent import Recurrence, Values
from posbias.models.weights import present


class Mixer(ModuleMixer):
    def prompts(self, seen: Given) -> Iterator[Recurrence]:
        module, projection = self.module, self.projection()
        sizes = [module.intermediate_size, module.conv_dim, module.num_heads]
        gates, inputs, steps = module.in_proj(seen.input).float().split(sizes, dim=-1)
        for gate, x, dt in zip(gates, inputs, steps, strict=True):
            values = Values(module.conv1d, x, slice(0, module.intermediate_size), module.num_heads)
            with present(module):
                heads = StateSpace(module, values, dt)
            yield Recurrence(values, heads.weights, GatedNorm(module.norm, gate).scale, *projection)


class StateSpace:
    """The weights of a prompt's state-space heads."""

    def __init__(self, module: Any, values: Values, dt: Float[Tensor, "n H"]) -> None:
        H, groups = module.num_heads, module.n_groups
        read = values.whole[:, module.intermediate_size :].unflatten(-1, (2, groups, -1))
        read = read.repeat_interleave(H // groups, dim=2)
        self.B, self.C = read[:, 0].transpose(0, 1), read[:, 1].transpose(0, 1)  # (H, n, state)
        steps = F.softplus(dt + module.dt_bias.detach().float())
        self.steps = steps.clamp(*module.time_step_limit).mT  # (H, n)
        decay = -module.A_log.detach().float().exp()[:, None]
        self.decayed = (decay * self.steps).cumsum(-1)
        self.D = module.D.detach().float()

    def weights(self, queries: slice) -> Float[Tensor, "H q k"]:
        """Return the weights of keys up to the last of the queries."""
        keys = slice(0, queries.stop)
        back = self.decayed[:, queries, None] - self.decayed[:, None, keys]
        own = torch.arange(queries.start, queries.stop, device=back.device)
        later = torch.arange(queries.stop, device=back.device) > own[:, None]
        decay = back.masked_fill(later, -torch.inf).exp()
        weights = self.C[:, queries] @ self.B[:, keys].mT * decay * self.steps[:, None, keys]
        weights[:, own - queries.start, own] += self.D[:, None]
        return weights


class GatedNorm:
    """A norm of what a gate lets through, group by group of channels."""

    def __init__(self, norm: Any, gate: Float[Tensor, "n c"]) -> None:
        self.gate, self.size, self.eps = F.silu(gate), norm.group_size, norm.variance_epsilon
        with present(norm):
            self.weight = norm.weight.detach().float()

    def scale(self, averages: Float[Tensor, "q H V"], queries: slice) -> Float[Tensor, "q c"]:
        """Return what each channel is multiplied by."""
        gate = self.gate[queries]
        passed = (averages.flatten(1) * gate).unflatten(-1, (-1, self.size))
        root = (passed.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return gate * self.weight * root.expand_as(passed).flatten(1)

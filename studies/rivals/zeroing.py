"""Value zeroing (Mohebbi et al. 2023, arXiv 2301.12971), all tokens of a layer at once.

C_ij ∝ 1 - cos(z_i without the value of j, z_i), where z_i is the layer's whole output, MLP
included. A part is taken out of the sum that attention makes, and what this changes is followed
through norm and MLP as a *difference*, so that its maps may be multiplied in 16 bits: their
rounding is then one of the difference, and not of the state.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import silu

from posbias.models.norms import denominators, multiplier
from studies.rivals.layers import Layer, blocks


class GatedMLP:
    """A Llama's norm and MLP, and by how much its output changes without a key's part.

    Before its activation the MLP is linear but for what the norm divides by, so that what a part
    does there is a sum over heads.
    """

    def __init__(self, layer: Layer, dtype: torch.dtype) -> None:
        mlp, self.norm = layer.module.mlp, layer.module.post_attention_layernorm
        self.attention, self.y = layer.attention, layer.y
        weight = multiplier(self.norm, self.y)
        self.states = [linear(self.y * weight) for linear in (mlp.gate_proj, mlp.up_proj)]
        self.heads = [linear(layer.carried * weight) for linear in (mlp.gate_proj, mlp.up_proj)]
        gate, up = (state / denominators(self.norm, self.y) for state in self.states)
        self.hidden = silu(gate) * up
        self.down = mlp.down_proj.weight.detach().to(dtype).mT

    def change(self, parts: Float[Tensor, "k q d"], queries: slice) -> Float[Tensor, "k q d"]:
        """Return by how much the queries' outputs change if their states lose these parts."""
        scale = 1 / denominators(self.norm, self.y[queries] - parts)
        weights = self.attention[:, queries, : queries.stop].permute(2, 1, 0)
        left = []
        for state, heads in zip(self.states, self.heads, strict=True):
            lost = heads[:, : queries.stop].transpose(0, 1)
            whole = state[queries].expand(len(parts), -1, -1)
            left.append(torch.baddbmm(whole, weights, lost, alpha=-1).mul_(scale))
        hidden = silu(left[0], inplace=True).mul_(left[1]).sub_(self.hidden[queries])
        return (hidden.to(self.down.dtype) @ self.down).float()


def apart(z: Float[Tensor, "... d"], moved: Float[Tensor, "... d"]) -> Float[Tensor, "..."]:
    """Return 1 - cos of z and z + moved, without the cancellation of taking it from 1.

    >>> apart(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])).item() - (1 - 0.5**0.5) < 1e-7
    True
    """
    a, c = z.square().sum(-1).double(), moved.square().sum(-1).double()
    b = (z * moved).sum(-1).double()
    whole = a * (a + 2 * b + c)
    return (a * c - b * b).clamp_min(0) / (whole + whole.sqrt() * (a + b))


@torch.no_grad()
def zeroing_kernel(layer: Layer, dtype: torch.dtype = torch.float32) -> Float[Tensor, "n n"]:
    """Return how much each query's output turns without each key's value, with rows made 1."""
    mlp = GatedMLP(layer, dtype)
    z, n = layer.output, len(layer.x)
    found = torch.zeros(n, n, dtype=torch.float64)
    for queries in blocks(n):
        parts = layer.parts(queries)
        found[queries, : queries.stop] = apart(z[queries], mlp.change(parts, queries) - parts).mT
    found = found.tril()
    alone = found.sum(-1) == 0
    found[alone, alone] = 1.0  # a query that no value turns keeps itself
    return (found / found.sum(-1, keepdim=True)).float()

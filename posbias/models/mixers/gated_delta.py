"""Gated delta rules, as Qwen3-Next's: a state that forgets, and is corrected by what it does not know yet.

S_i = e^(g_i) S_{i-1} + β_i k_i (v_i - e^(g_i) S_{i-1}ᵀ k_i)ᵀ, and token i reads S_iᵀ q_i. Given gates and keys that is
linear in values: with Γ the decays from m to i, the weights are (Q Kᵀ ⊙ Γ)(I + tril(β K Kᵀ ⊙ Γ, -1))⁻¹ β.
A norm of each head's output follows, and a gate.
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

EPSILON = 1e-6
"""What is added to squared sizes of queries and keys."""


class Mixer(ModuleMixer):
    def prompts(self, seen: Given) -> Iterator[Recurrence]:
        module, projection = self.module, self.projection()
        made = module.in_proj_qkvz(seen.input), module.in_proj_ba(seen.input)
        q, k, v, z, b, a = (x.float() for x in module.fix_query_key_value_ordering(*made))
        inputs = torch.cat([x.flatten(2) for x in (q, k, v)], dim=-1)
        for prompt in range(len(inputs)):
            values = Values(module.conv1d, inputs[prompt], slice(2 * module.key_dim, None), module.num_v_heads)
            with present(module):
                heads = DeltaRule(module, values, b[prompt], a[prompt])
            norm = HeadNorm(module.norm, z[prompt])
            yield Recurrence(values, heads.weights, norm.scale, *projection)


class DeltaRule:
    """The weights of a prompt's delta-rule heads."""

    def __init__(self, module: Any, values: Values, b: Float[Tensor, "n H"], a: Float[Tensor, "n H"]) -> None:
        shared = module.num_v_heads // module.num_k_heads
        both = values.whole[:, : 2 * module.key_dim].unflatten(-1, (2, module.num_k_heads, -1))
        both = both.repeat_interleave(shared, dim=2).permute(1, 2, 0, 3)
        both = both * (both.square().sum(-1, keepdim=True) + EPSILON).rsqrt()
        query, key = both[0] * both.shape[-1] ** -0.5, both[1]  # (H, n, D)
        beta = b.sigmoid().mT[..., None]
        rate = -module.A_log.detach().float().exp()
        forgotten = (rate * F.softplus(a + module.dt_bias.detach().float())).mT.cumsum(-1)
        back = forgotten[..., None] - forgotten[:, None]
        decay = back.masked_fill(torch.ones_like(back[0], dtype=torch.bool).triu(1), -torch.inf).exp()
        known = (beta * (key @ key.mT) * decay).tril(-1)
        system = known + torch.eye(known.shape[-1], device=known.device)
        written = torch.linalg.solve_triangular(system, torch.diag_embed(beta[..., 0]), upper=False)
        self.every = (query @ key.mT * decay) @ written

    def weights(self, queries: slice) -> Float[Tensor, "H q k"]:
        """Return the weights of keys up to the last of the queries."""
        return self.every[:, queries, : queries.stop]


class HeadNorm:
    """A norm of each head's output, and a gate after it."""

    def __init__(self, norm: Any, gate: Float[Tensor, "n H V"]) -> None:
        self.gate, self.eps = F.silu(gate), norm.variance_epsilon
        with present(norm):
            self.weight = norm.weight.detach().float()

    def scale(self, averages: Float[Tensor, "q H V"], queries: slice) -> Float[Tensor, "q c"]:
        """Return what each channel is multiplied by."""
        root = (averages.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (self.gate[queries] * self.weight * root).flatten(1)

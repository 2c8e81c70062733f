"""What is measured of a prompt beside its changes: integrated gradients, and what tells the first token from others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from studies.changes import embedded, next_token

STEPS = 16
"""Points of the path along which gradients are integrated."""
ABOVE = 0.3
"""Mean attention to the first token above which a head is counted as having a sink (2410.10781)."""


def measure_integrated(
    model: Any, ids: Int[Tensor, "n"], front: Sequence[int] = ()
) -> tuple[Float[np.ndarray, "n"], float]:
    """Return each token's integrated gradient of that probability, from the mean embedding; and what their sum misses.

    The gradient is averaged over the middles of :data:`STEPS` equal pieces of the way (Sundararajan et al. 2017,
    arXiv 1703.01365); the sum is the difference of both ends but for the error of that rule.
    """
    x, f = embedded(model, ids, front), len(front)
    base = x.clone()
    base[f:] = model.get_input_embeddings().weight.detach().mean(0)
    with torch.no_grad():
        ends = next_token(model, inputs_embeds=torch.stack([x, base]))
    token = int(ends[0].argmax())
    gradient = torch.zeros_like(x)
    for part in torch.arange(STEPS).add(0.5).div(STEPS).split(4):
        path = (base + part.to(x)[:, None, None] * (x - base)).requires_grad_()
        next_token(model, inputs_embeds=path)[:, token].sum().backward()
        assert path.grad is not None
        gradient += path.grad.sum(0) / STEPS
    found = ((x - base) * gradient).sum(-1)[f:].cpu()
    return found.numpy(), float(found.sum() - (ends[0] - ends[1])[token])


@torch.no_grad()
def measure_sink(model: Any, ids: Int[Tensor, "n"], behind: int = 64) -> dict[str, Float[np.ndarray, "T"]]:
    """Return what tells the first token from the others, by layer, of a model with Llama's modules and eager attention.

    ``norm`` is the norm of its residual over the median of the others', ``carried`` the same of what its values add,
    ‖W_O W_V x̂‖ with all heads; ``attention`` the mean share that queries from ``behind`` on give it.
    """
    out = model(ids[None].to(model.device), output_attentions=True, output_hidden_states=True)
    norm: list[float] = []
    carried: list[float] = []
    for x, layer in zip(out.hidden_states, model.model.layers, strict=False):
        values = layer.self_attn.v_proj(layer.input_layernorm(x[0])).unflatten(-1, (-1, layer.self_attn.head_dim))
        values = values.repeat_interleave(layer.self_attn.num_key_value_groups, dim=-2).flatten(-2)
        for kept, y in ((norm, x[0]), (carried, layer.self_attn.o_proj(values))):
            sizes = y.norm(dim=-1)
            kept.append(float(sizes[0] / sizes[1:].median()))
    attention = [float(a[0, :, min(behind, len(ids) // 2) :, 0].mean()) for a in out.attentions]
    return {"norm": np.array(norm), "carried": np.array(carried), "attention": np.array(attention)}


@torch.no_grad()
def measure_heads(model: Any, ids: Int[Tensor, "B n"]) -> Float[np.ndarray, "B T H"]:
    """Return each head's attention to the first token, a mean over all queries; attention must be eager."""
    attentions = model(ids.to(model.device), output_attentions=True).attentions
    return torch.stack([a[..., 0].mean(-1) for a in attentions], dim=1).cpu().numpy()

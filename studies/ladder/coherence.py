"""Coherence: how far gradients that are added point the same way, where two meet and along single paths.

One definition serves all. For vectors u_k that are added at a position, coherence is the share of their cross terms
that there is,

    Σ_{k<l} u_k · u_l  /  Σ_{k<l} ‖u_k‖ ‖u_l‖,

a mean cosine weighted by sizes: 0 in the mean for independent maps, 1 for aligned ones. Both sums run over positions;
each prompt counts by its sums over Σ_k ‖u_k‖².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.measure.instrument import Instrument
from posbias.networks.families import output_projection
from posbias.networks.hooks import given, hooked
from studies.ladder.gradients import kept_streams, read_streams
from studies.ladder.path_gradients import single_hops

JOINS = ("attention", "step", "heads")
"""What meets in a layer: what comes around the attention and through it, around the step after it and through it, and
what comes through the heads of the attention."""


def cross_terms(vectors: Float[Tensor, "K B n D"]) -> Float[Tensor, "2 B"]:
    """Return Σ u_k·u_l and Σ ‖u_k‖ ‖u_l‖ over pairs k < l and positions, each over Σ ‖u_k‖², for every prompt.

    The first over the second is the coherence. Where all is 0, both are.

    >>> u = torch.tensor([[[[3.0, 0.0]]], [[[0.0, 4.0]]]])
    >>> cross_terms(u)[:, 0].tolist(), cross_terms(u.abs().sum(-1, keepdim=True))[:, 0].tolist()
    ([0.0, 0.48], [0.48, 0.48])
    """
    u = vectors.detach().double()
    sizes = u.norm(dim=-1)
    squares = sizes.square().sum(0)
    terms = torch.stack([u.sum(0).square().sum(-1) - squares, sizes.sum(0).square() - squares]).sum(-1) / 2
    return (terms / squares.sum(-1).clamp_min(torch.finfo(torch.float64).tiny)).cpu()


@dataclass(frozen=True)
class CoherenceReading:
    """Hold cross terms of every prompt, first those that there are and then those of aligned vectors.

    Parameters
    ----------
    layers
        Of each layer's :data:`JOINS`.
    sizes
        ‖u‖ and ‖w‖ of what comes around each layer's attention and through it, with attention weights held fixed, then
        around its step and through it. Weights are no part of a value map: a rollout has them as numbers.
    paths
        Of the paths that go through the attention of one layer only, over all layers.
    pairs
        The same for each two layers.
    """

    layers: Float[Tensor, "2 joins T B"]
    sizes: Float[Tensor, "sums 2 T n B"]
    paths: Float[Tensor, "2 B"]
    pairs: Float[Tensor, "2 T T B"]


def read_coherence(instrument: Instrument, ids: Int[Tensor, "B n"]) -> CoherenceReading:
    """Return the cross terms of the gradient of p(most likely next token) on its way back.

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids, without padding.
    """
    hops = single_hops(instrument, ids)
    T = len(hops)
    pairs = torch.zeros(2, T, T, len(ids), dtype=torch.float64)
    for s in range(T):
        for t in range(s):
            pairs[:, s, t] = pairs[:, t, s] = cross_terms(hops[[s, t]])
    layers, step = _meetings(instrument, ids)
    fixed = read_streams(instrument, ids, values_only=True)
    attention = torch.stack([fixed.around, fixed.branch]).mT
    return CoherenceReading(layers, torch.stack([attention, step]), cross_terms(hops), pairs)


def _meetings(instrument: Instrument, ids: Int[Tensor, "B n"]) -> tuple[Tensor, Tensor]:
    """Return the cross terms of each layer's joins, and the sizes of what comes around and through its step."""
    T, taken = instrument.T, []

    def projected(module: nn.Module, args: Any, kwargs: Any) -> None:
        taken.append(given(args, kwargs))

    heads = hooked(before=[(output_projection(x), projected) for x in instrument.attentions])
    e = instrument.embeddings(ids).requires_grad_(True)
    found = torch.zeros(2, len(JOINS), T, len(ids), dtype=torch.float64)
    sizes = torch.zeros(2, T, *ids.T.shape, dtype=torch.float64)
    with torch.enable_grad(), kept_streams(instrument) as kept, heads:
        p = instrument.logits(e).softmax(-1).amax(-1).sum()
        gradients = torch.autograd.grad(p, [*kept.streams, *taken], retain_graph=True)
        by_stream, by_heads = gradients[: T + 1], gradients[T + 1 :]
        for t in range(T):
            parts = []
            for share in _by_head(by_heads[t], instrument.H):
                parts.append(torch.autograd.grad(taken[t], kept.streams[t], share, retain_graph=True)[0])
            each = torch.stack(parts)
            through, leaving = each.sum(0), by_stream[t + 1]
            around = by_stream[t] - through
            met = [torch.stack([around, through]), torch.stack([leaving, around - leaving]), each]
            found[:, :, t] = torch.stack([cross_terms(u) for u in met], dim=1)
            sizes[:, t] = met[1].detach().double().norm(dim=-1).mT.cpu()
    return found, sizes


def _by_head(gradient: Float[Tensor, "B n E"], H: int) -> Float[Tensor, "H B n E"]:
    """Return what of a gradient by the heads' outputs belongs to each head, 0 elsewhere."""
    split = gradient.unflatten(-1, (H, -1))
    alone = torch.eye(H, dtype=split.dtype, device=split.device)[:, None, None, :, None]
    return (split * alone).flatten(-2)

"""Rollouts that others propose: a matrix of shares a layer, and the last row of their product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from posbias.measure.quantities.contributions import contribution_shares
from posbias.models.norms import multiplier
from studies.rivals.layers import Layer, blocks

Kernel = Float[Tensor, "n n"]


def row_shares(x: Kernel) -> Kernel:
    """Return rows that sum to 1."""
    return x / x.sum(-1, keepdim=True)


def with_half(kernel: Kernel) -> Kernel:
    """Return half a kernel and half the token itself (Abnar and Zuidema 2020)."""
    return (kernel + torch.eye(len(kernel))) / 2


def without_first(kernel: Kernel) -> Kernel:
    """Return attention without the first token, which keeps itself: rows are made 1 again.

    >>> without_first(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]
    """
    left = kernel.clone()
    left[1:, 0] = 0.0
    return row_shares(left)


def attention_kernels(layer: Layer) -> dict[str, Kernel]:
    """Return mean attention with the residual stream, whole and without the first token.

    The residual stream has a half, or 1 - λ with the layer's own λ = ‖a‖ / (‖x‖ + ‖a‖), Frobenius
    norms.
    """
    mean, a, x = layer.attention.mean(0), layer.added.norm(), layer.x.norm()
    share, found = a / (x + a), {}
    for name, kernel in (("", mean), ("-rest", without_first(mean))):
        found[f"attention-half{name}"] = with_half(kernel)
        found[f"attention{name}"] = (1 - share) * torch.eye(len(mean)) + share * kernel
    return found


def part_kernels(layer: Layer) -> dict[str, Kernel]:
    """Return rollouts of what the parts T_ij are that a token's state is the sum of.

    ``norms``: ‖Σ_h A_h[i,j] f_h(x_j)‖ (Kobayashi et al. 2020, summed over heads), which
    has no residual stream, so half of it. ``norms-residual``: with x_i in the part of i itself
    (Kobayashi et al. 2021, *AttnRes*). ``norms-norm``: parts multiplied by the weights of the norm
    that reads their sum (*AttnResLn*); it divides all parts of a row by one number, which drops
    out. They describe a norm behind the sum; SmolLM2 has it before the MLP. ``globenc`` (Modarressi
    et al. 2022, N_Enc): the norm is that which reads the layer's output, and what the MLP adds is
    left out. ``contributions`` are ALTI's, as the page has them.
    """
    width = torch.ones(layer.x.shape[1])
    norms = {
        "norms": part_norms(layer, width, residual=False),
        "norms-residual": part_norms(layer, width),
        "norms-norm": part_norms(layer, multiplier(layer.module.post_attention_layernorm, width)),
        "globenc": part_norms(layer, multiplier(layer.next_norm, width)),
    }
    found = {name: row_shares(kernel) for name, kernel in norms.items()}
    found["norms"] = with_half(found["norms"])
    return found | {"contributions": contribution_kernel(layer)}


def part_norms(layer: Layer, weight: Float[Tensor, "d"], *, residual: bool = True) -> Kernel:
    """Return the Euclidean norms of the parts, their features multiplied by weights."""
    A, carried, x = layer.attention, layer.carried * weight, layer.x * weight
    by_key, each = A.permute(2, 1, 0), carried.transpose(0, 1)
    squares = ((by_key @ (each @ each.mT)) * by_key).sum(-1).mT.contiguous()
    if residual:
        own = torch.einsum("hii,hid->id", A, carried)
        squares.diagonal().add_((x * (x + 2 * own)).sum(-1))
    return squares.clamp_min(0).sqrt()


def contribution_kernel(layer: Layer) -> Kernel:
    """Return ALTI's contributions: how much shorter a state is without a part, rows made 1."""
    n, y = len(layer.x), layer.y
    found = torch.zeros(n, n)
    for queries in blocks(n):
        without, own = y[queries] - layer.parts(queries), torch.arange(n)[queries]
        without[own, own - queries.start] -= layer.x[queries]
        seen = own[:, None] >= torch.arange(queries.stop)
        found[queries, : queries.stop] = contribution_shares(without, y[queries], seen, own)
    return found


def rolled(kernels: Sequence[Kernel]) -> Float[Tensor, "n"]:
    """Return the last row of the product of the layers' kernels, the first layer's on the right.

    >>> rolled([torch.tensor([[1.0, 0.0], [0.5, 0.5]])] * 2).tolist()
    [0.75, 0.25]
    """
    row = torch.eye(len(kernels[0]))[-1]
    for kernel in reversed(kernels):
        row = row @ kernel
    return row

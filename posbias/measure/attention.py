"""What one layer's attention was given and gave, as a softmax shows it or as a fused kernel's arguments tell it.

A fused kernel shows no weights: they are computed again from its queries, keys and mask, a block of queries at a time,
so that no matrix over all pairs of tokens is ever whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ENTRIES = {"cpu": 1 << 19, "cuda": 1 << 26}
"""Entries of a block, all heads and prompts together: what stays in a core's cache; few launches."""
MOST_ENTRIES = {"cpu": 1 << 23, "cuda": 1 << 27}
"""The same where one prompt's heads need more, before there are fewer queries in a block."""


@dataclass(frozen=True)
class AttentionReading:
    """Hold what one layer's softmax was given and gave to tokens, valid until the layer ends."""

    layer: int
    logits: Float[Tensor, "B H n n"]
    """What went into the softmax; content plus bias where allowed, hugely negative elsewhere."""
    probabilities: Float[Tensor, "B H n n"]
    bias: Float[Tensor, "#H #n n"] | None
    """Position bias, the same for all prompts; None if there is none."""
    allowed: Bool[Tensor, "n n"]
    """Keys that the mask allows, read from the mask (a distant key's weight may well round to 0)."""
    product: Float[Tensor, "B H n n"] | None = None
    """Scaled q·k in 32 bits where the logits are rounded together with the bias; None elsewhere."""
    mixing: Float[Tensor, "B"] | None = None
    """λ of each prompt in this layer, Frobenius norms; None in a forward pass alone."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Prompts, heads and tokens."""
        return tuple(self.logits.shape[:3])  # type: ignore[return-value]

    def visible(self, queries: slice) -> Bool[Tensor, "q k"]:
        """Return the keys that queries may see, up to the last of them."""
        return self.allowed[queries, : queries.stop]

    def added(self, queries: slice) -> Float[Tensor, "#H q k"] | None:
        """Return the position bias of queries, None if there is none."""
        n = self.shape[-1]
        return None if self.bias is None else self.bias.expand(-1, n, n)[:, queries, : queries.stop]

    def content(self, prompts: slice = slice(None), queries: slice = slice(None)) -> Float[Tensor, "b H q k"]:
        """Return content logits in 32 bits: logits less bias, hugely negative where masked."""
        n = self.shape[-1]
        block = (..., queries, slice(0, queries.indices(n)[1]))
        if self.product is not None:
            return self.product[prompts][block].masked_fill(~self.allowed[block], -torch.inf)
        logits = self.logits[prompts][block]
        if self.bias is None:
            return logits.to(torch.float32, copy=True)
        return (logits - self.bias.expand(-1, n, n)[block]).float()

    def block(
        self, prompts: slice, queries: slice, *, content: bool = True, weights: bool = True
    ) -> tuple[Float[Tensor, "b H q k"] | None, Float[Tensor, "b H q k"] | None]:
        """Return content logits and weights of some queries, with the keys up to the last; None for what is not asked.

        The content logits are the caller's, to be overwritten as he likes.
        """
        p = self.probabilities[prompts][..., queries, : queries.stop] if weights else None
        return self.content(prompts, queries) if content else None, p


@dataclass(frozen=True)
class FusedReading:
    """Hold what one layer's fused attention was given; what :class:`AttentionReading` has too means the same."""

    layer: int
    query: Float[Tensor, "B H n D"]
    key: Float[Tensor, "B Hk n D"]
    """As the kernel takes it: fewer heads are shared."""
    mask: Tensor | None
    """What is added to the logits, or True where a key may be seen; None for a causal mask."""
    scale: float
    mixing: Float[Tensor, "B"] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Prompts, heads and tokens."""
        return tuple(self.query.shape[:3])  # type: ignore[return-value]

    @cached_property
    def keys(self) -> Float[Tensor, "B H D n"]:
        """The keys in 32 bits at least, one head for each head of queries, their features first."""
        wide = torch.promote_types(self.key.dtype, torch.float32)
        return self.key.to(wide).repeat_interleave(self.shape[1] // self.key.shape[1], dim=1).mT

    def visible(self, queries: slice) -> Bool[Tensor, "q k"]:
        """Return the keys that queries may see, up to the last of them."""
        if self.mask is None:
            rows = torch.arange(queries.start, queries.stop, device=self.query.device)
            return rows[:, None] >= torch.arange(queries.stop, device=self.query.device)
        mask = self.mask[0, 0, queries, : queries.stop]
        return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2

    def added(self, queries: slice) -> Float[Tensor, "#H q k"] | None:
        """Return the position bias of queries, which the mask carries; None if it only forbids."""
        if self.mask is None or self.mask.dtype == torch.bool:
            return None
        return self.mask[0, :, queries, : queries.stop].float().masked_fill(~self.visible(queries), 0.0)

    def block(
        self, prompts: slice, queries: slice, *, content: bool = True, weights: bool = True
    ) -> tuple[Float[Tensor, "b H q k"] | None, Float[Tensor, "b H q k"] | None]:
        """Return content logits and weights of some queries, as :meth:`AttentionReading.block` does."""
        q = self.query[prompts, :, queries].to(self.keys.dtype) * self.scale
        z = q @ self.keys[prompts, :, :, : queries.stop]
        z = z.masked_fill(~self.visible(queries), -torch.inf)
        p = None
        if weights:
            bias = self.added(queries)
            p = (z if bias is None else z + bias).softmax(-1)
        return z if content else None, p


Reading = AttentionReading | FusedReading
"""What an observer of the instrument is given, by how attention is computed."""


def blocks(reading: Reading, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Yield prompts and queries by which to go through a reading: a block stays small, and touches no later key.

    In eight blocks of queries little more than half of all pairs is touched.
    """
    B, H, n = reading.shape
    least, most = (sizes.get(device.type, sizes["cpu"]) for sizes in (ENTRIES, MOST_ENTRIES))
    rows = min(max(32, -(-n // 8)), max(8, most // (H * n)))
    for start in range(0, n, rows):
        queries = slice(start, min(start + rows, n))
        together = max(1, least // (H * (queries.stop - start) * queries.stop))
        for prompt in range(0, B, together):
            yield slice(prompt, min(prompt + together, B)), queries


def read_mask(
    arguments: dict[str, Any], bias: Tensor | None, n: int, causal: bool, width: int | None = None
) -> tuple[Tensor | None, Tensor]:
    """Return the whole position bias, and the keys that are allowed, for prompts without padding.

    A boolean mask is True where a key is hidden (MPT); any other holds what is added to the logits. ``width`` is that
    of a window inside the module, which the mask does not show (GPT-Neo).
    """
    mask = arguments.get("attention_mask")
    if mask is None or mask.dim() != 4:
        raise RuntimeError("expected a mask of four dimensions in the attention module, received another")
    mask = mask[0, ..., -n:]
    if mask.dtype == torch.bool:
        allowed = ~mask[0]
    else:
        allowed = mask[0] > torch.finfo(mask.dtype).min / 2
        carried = mask.float().masked_fill(~allowed, 0.0)
        if carried.any():
            bias = carried if bias is None else bias.float() + carried
    if width is not None:
        allowed = allowed.triu(1 - width)
    check_allowed(allowed, causal)
    return None if bias is None else bias.float(), allowed


def check_allowed(allowed: Bool[Tensor, "n n"], causal: bool = True) -> None:
    """Raise RuntimeError unless every query sees itself and, if ``causal``, no later key."""
    if not allowed.diagonal().all() or (causal and allowed.triu(1).any()):
        raise RuntimeError("expected a causal mask in which every query sees itself, received another")

"""One attention function for every family: what a layer's attention is given, and what it makes of it.

transformers hands queries, keys, values, mask, scale, soft cap and sinks to the function that a model is told to use.
Ours hands them on as a :class:`Reading` to whoever watches the model (:mod:`posbias.models.watch`), who returns
averages of values, with other weights or by a changed reading if it likes. Where attention is fused weights are
computed again, a block of queries at a time, so that no matrix over all pairs of tokens is ever whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

ENTRIES = {"cpu": 1 << 19, "cuda": 1 << 26}
"""Entries of a block, all heads and prompts together: what stays in a core's cache; few launches."""
MOST_ENTRIES = {"cpu": 1 << 23, "cuda": 1 << 27}
"""The same where one prompt's heads need more, before there are fewer queries in a block."""
NAMES = {"eager": "posbias", "sdpa": "posbias-fused"}
"""What the function is called in a configuration, by how attention was to be computed: masks are made accordingly."""


@dataclass(frozen=True)
class Reading:
    """Hold what one layer's attention was given, and what it made of it where that is known; valid in the layer."""

    layer: int
    query: Float[Tensor, "B H n D"]
    key: Float[Tensor, "B Hk n D"]
    """As attention takes it: fewer heads are shared."""
    value: Float[Tensor, "B Hk n V"]
    mask: Tensor | None
    """What is added to the logits, or True where a key may be seen; None for a causal mask."""
    scale: float
    """What q·k is multiplied by."""
    cap: float | None = None
    """c where content logits z become c·tanh(z / c)."""
    sinks: Float[Tensor, "H"] | None = None
    """Logits of a key that is no token and has no value: what it takes is missing from the weights."""
    beside: Float[Tensor, "H #n n"] | None = None
    """What is added to the logits beside the mask."""
    logits_qk: Float[Tensor, "B H n n"] | None = None
    """Content logits of all pairs, hidden ones too, where they were computed whole."""
    weights: Float[Tensor, "B H n n"] | None = None
    """Attention weights where they were computed whole."""
    mixing: Float[Tensor, "B"] | None = None
    """λ of each prompt in this layer, Frobenius norms; None in a forward pass alone."""
    stream: Float[Tensor, "B n d"] | None = None
    """x_t, what attention's output is added to; None in a forward pass alone."""
    gate: Float[Tensor, "B n channels"] | None = None
    """What the heads' averages, one head after another, are multiplied by; None where there is no gate."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Prompts, heads and tokens."""
        return tuple(self.query.shape[:3])  # type: ignore[return-value]

    @property
    def every(self) -> slice:
        """All queries."""
        return slice(0, self.shape[-1])

    @cached_property
    def keys(self) -> Float[Tensor, "B H D n"]:
        """The keys in 32 bits at least, one head for each head of queries, their features first."""
        return self._spread(self.key.to(_wide(self.key))).contiguous().mT

    @property
    def values(self) -> Float[Tensor, "B H n V"]:
        """The values, one head for each head of queries."""
        return self._spread(self.value)

    @property
    def allowed(self) -> Bool[Tensor, "n n"]:
        """Keys that the mask allows, read from the mask (a distant key's weight may well round to 0)."""
        return self.visible(self.every)

    @property
    def bias(self) -> Float[Tensor, "#H n n"] | None:
        """Position bias, the same for all prompts; None if there is none."""
        return self.added(self.every)

    @property
    def probabilities(self) -> Float[Tensor, "B H n n"]:
        """Attention weights of all pairs."""
        weights = self.block(slice(None), self.every, content=False)[1]
        assert weights is not None
        return weights

    @property
    def logits(self) -> Float[Tensor, "B H n n"]:
        """What the softmax is given: content plus bias, -∞ where a key is hidden."""
        bias = self.bias
        return self.content() if bias is None else self.content() + bias

    def visible(self, queries: slice) -> Bool[Tensor, "q k"]:
        """Return the keys that queries may see, up to the last of them."""
        if self.mask is None:
            rows = torch.arange(queries.start, queries.stop, device=self.query.device)
            return rows[:, None] >= torch.arange(queries.stop, device=self.query.device)
        mask = self.mask[0, 0, queries, : queries.stop]
        return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2

    def added(self, queries: slice) -> Float[Tensor, "#H q k"] | None:
        """Return the position bias of queries, None if there is none."""
        n = self.shape[-1]
        bias = None if self.beside is None else self.beside.expand(-1, n, n)[:, queries, : queries.stop].float()
        if self.mask is None or self.mask.dtype == torch.bool:
            return bias
        carried = self.mask[0, :, queries, : queries.stop].float().masked_fill(~self.visible(queries), 0.0)
        if not carried.any():
            return bias
        return carried if bias is None else bias + carried

    def content(self, prompts: slice = slice(None), queries: slice | None = None) -> Float[Tensor, "b H q k"]:
        """Return content logits in 32 bits, those of all queries unless given; -∞ where masked."""
        queries = self.every if queries is None else queries
        seen, wide = self.visible(queries), _wide(self.query)
        hidden = torch.zeros(seen.shape, dtype=wide, device=seen.device).masked_fill_(~seen, -torch.inf)
        if self.logits_qk is not None:
            return self.logits_qk[prompts, :, queries, : queries.stop].to(wide) + hidden
        q, k = self.query[prompts, :, queries].to(wide), self.keys[prompts, :, :, : queries.stop]
        if self.cap is not None:
            return _product(q, k, self) + hidden
        rows = (q * self.scale).flatten(0, 1)
        return torch.baddbmm(hidden.expand(len(rows), -1, -1), rows, k.flatten(0, 1)).unflatten(0, q.shape[:2])

    def block(
        self, prompts: slice, queries: slice, *, content: bool = True, weights: bool = True
    ) -> tuple[Float[Tensor, "b H q k"] | None, Float[Tensor, "b H q k"] | None]:
        """Return content logits and weights of some queries, with keys up to the last; None for what is not asked."""
        z = self.content(prompts, queries) if content or self.weights is None else None
        if not weights:
            return z, None
        if z is not None and self.weights is None:
            bias = self.added(queries)
            return z if content else None, softmax(z if bias is None else z + bias, self.sinks)
        assert self.weights is not None
        return z, self.weights[prompts, :, queries, : queries.stop]

    def whole(self) -> Reading:
        """Return the same with content logits and weights of all pairs, as eager attention computes them."""
        if self.weights is not None:
            return self
        z = content = _product(self.query, self._spread(self.key).mT, self)
        if self.mask is None or self.mask.dtype == torch.bool:
            z = z.masked_fill(~(self.allowed if self.mask is None else self.mask), -torch.inf)
        else:
            z = z + self.mask
        return replace(self, logits_qk=content, weights=softmax(z, self.sinks))

    def averages(self) -> Float[Tensor, "B H n V"]:
        """Return the values' averages, by torch's fused attention where weights are not whole."""
        if self.weights is not None:
            return self.weights.to(self.value.dtype) @ self.values
        return nn.functional.scaled_dot_product_attention(
            self.query,
            self._spread(self.key),
            self.values,
            attn_mask=self.mask,
            is_causal=self.mask is None,
            scale=self.scale,
        )

    def detached(self) -> Reading:
        """Return the same outside differentiation."""
        tensors: Any = {name: x.detach() for name, x in vars(self).items() if isinstance(x, Tensor) and name != "keys"}
        return replace(self, **tensors)

    def check(self, causal: bool = True) -> None:
        """Raise RuntimeError unless every query sees itself and, if ``causal``, no later key."""
        allowed = self.allowed if self.mask is not None else None
        if allowed is not None and not (allowed.diagonal().all() and not (causal and allowed.triu(1).any())):
            raise RuntimeError("expected a causal mask in which every query sees itself, received another")

    def _spread(self, x: Float[Tensor, "B Hk n D"]) -> Float[Tensor, "B H n D"]:
        """Return one head of keys or values for each head of queries."""
        shared = self.shape[1] // x.shape[1]
        return x if shared == 1 else x.repeat_interleave(shared, dim=1)


Attend = Callable[[Reading], Float[Tensor, "B H n V"]]
"""Takes what a layer's attention is given and returns averages of its values."""


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


@contextmanager
def handed(config: Any, layers: dict[nn.Module, int], attend: Attend) -> Iterator[None]:
    """Have ``attend`` compute a model's attention until the block ends; ``layers`` number its attention modules."""
    _register()
    token = _WATCH.set((layers, attend))
    try:
        with computed(config, NAMES[config._attn_implementation]):
            yield
    finally:
        _WATCH.reset(token)


@contextmanager
def computed(config: Any, implementation: str) -> Iterator[None]:
    """Compute attention in one of transformers' ways inside the block."""
    before = config._attn_implementation
    config._attn_implementation = implementation
    try:
        yield
    finally:
        config._attn_implementation = before


_WATCH: ContextVar[tuple[dict[nn.Module, int], Attend]] = ContextVar("watch")


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Float[Tensor, "B n H V"], None]:
    """Compute attention as transformers' models have it computed."""
    layers, attend = _WATCH.get()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = attend(Reading(layers[module], query, key, value, attention_mask, scale, softcap, s_aux))
    return out.transpose(1, 2).contiguous(), None


@cache
def _register() -> None:
    """Have transformers know the function; what it takes to load its models is loaded here."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask, sdpa_mask

    for name, mask in ((NAMES["eager"], eager_mask), (NAMES["sdpa"], sdpa_mask)):
        AttentionInterface.register(name, _attention)
        AttentionMaskInterface.register(name, mask)


def _product(
    query: Float[Tensor, "B H q D"], keys: Float[Tensor, "B H D k"], reading: Reading
) -> Float[Tensor, "B H q k"]:
    """Return content logits."""
    z = query @ keys * reading.scale
    return z if reading.cap is None else torch.tanh(z / reading.cap) * reading.cap


def softmax(z: Float[Tensor, "b H q k"], sinks: Float[Tensor, "H"] | None) -> Float[Tensor, "b H q k"]:
    """Return the softmax over keys, and over the sink where there is one."""
    if sinks is None:
        return z.softmax(-1, dtype=_wide(z))
    column = sinks.to(z).reshape(-1, 1, 1).expand(*z.shape[:-1], 1)
    return torch.cat([z, column], dim=-1).softmax(-1, dtype=_wide(z))[..., :-1]


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)

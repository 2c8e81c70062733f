"""Interventions on a model while it is measured: each is a context, and after it the model is what it was.

All are hooks and none changes a weight. They go through the instrument: what is read is what the changed model does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument
from posbias.networks.hooks import hooked


def rotary_module(instrument: Instrument) -> nn.Module:
    """Return the module that gives cos and sin of the rotary angles."""
    config: Any = instrument.model.config
    position = instrument.family.position_of(config)
    if position != "rotary":
        raise errors.invalid("model", "one with rotary positions (llama, mistral, qwen2, ...)", f"{position} positions")
    found = [module for name, module in instrument.model.named_modules() if name.endswith("rotary_emb")]
    if len(found) != 1:
        raise errors.invalid(
            "model", "one module of rotary angles for all layers", f"{len(found)} in {config.model_type}"
        )
    return found[0]


@contextmanager
def bidirectional(instrument: Instrument) -> Iterator[None]:
    """Let every query see later keys as well, |i - j| < window where there is a window; weights and angles stay."""

    def open_mask(module: nn.Module, args: Any, kwargs: Any) -> Any:
        mask = kwargs.get("attention_mask")
        if mask is None or mask.dim() != 4 or not mask.is_floating_point():
            raise errors.invalid("model", "attention with an additive mask as a keyword", type(module).__name__)
        return args, {**kwargs, "attention_mask": torch.maximum(mask, mask.transpose(-1, -2))}

    causal, instrument.causal = instrument.causal, False
    try:
        with hooked(before=[(attention, open_mask) for attention in instrument.attentions]):
            yield
    finally:
        instrument.causal = causal


@contextmanager
def replaced_rope(instrument: Instrument, by: str, seed: int = 0) -> Iterator[None]:
    """Rotate no query and key at all (``identity``), or each plane at another plane's rate (``scrambled``).

    Both leave q·k a function of content and i - j alone. What "scrambled" means in the paper is not in the review at
    hand; this is our choice.
    """
    if by not in ("identity", "scrambled"):
        raise errors.invalid("by", "identity or scrambled", by)
    rotary = rotary_module(instrument)

    def replace(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        cos, sin = output
        if by == "identity":
            size = (cos[..., :1, :].square() + sin[..., :1, :].square()).sqrt()  # 1, or what the model scales angles by
            return size.expand_as(cos).clone(), torch.zeros_like(sin)
        half = cos.shape[-1] // 2
        order = torch.randperm(half, generator=torch.Generator().manual_seed(seed)).to(cos.device)
        order = torch.cat([order, order + half])
        return cos[..., order], sin[..., order]

    with hooked(after=[(rotary, replace)]):
        yield


@contextmanager
def replaced_embeddings(instrument: Instrument, which: str, seed: int = 0) -> Iterator[None]:
    """Replace the first token's embedding, or all, by Gaussian vectors with the table's mean and deviation.

    Each prompt gets vectors of its own, drawn one after another from ``seed`` on as the passes of the context come.
    """
    if which not in ("first", "all"):
        raise errors.invalid("which", "first or all", which)
    embed: Any = instrument.model.get_input_embeddings()  # type: ignore[operator]
    mean, deviation = embed.weight.detach().mean(0), embed.weight.detach().std(0)
    generator = torch.Generator().manual_seed(seed)

    def replace(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        size = (len(output), 1 if which == "first" else output.shape[1], output.shape[2])
        drawn = mean + deviation * torch.randn(size, generator=generator).to(mean)
        return torch.cat([drawn, output[:, size[1] :]], dim=1)

    with hooked(after=[(embed, replace)]):
        yield

"""Another rotation while a model is measured: a context, after which the model is what it was.

It is a hook and changes no weight. What the instrument reads is what the changed model does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument
from posbias.models.hooks import hooked


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

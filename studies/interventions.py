"""Another rotation while a model is measured: a context, after which the model is what it was; no weight changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument
from posbias.models.hooks import hooked


def rotary_module(instrument: Instrument) -> nn.Module:
    """Return the module that gives cos and sin of the rotary angles of all layers."""
    position = instrument.family.position_of(instrument.model.config)
    if position != "rotary":
        raise errors.invalid("model", "one with rotary positions (llama, mistral, qwen2, ...)", f"{position} positions")
    (found,) = (module for name, module in instrument.model.named_modules() if name.endswith("rotary_emb"))
    return found


@contextmanager
def replaced_rope(instrument: Instrument, by: str, seed: int = 0) -> Iterator[None]:
    """Rotate no query and key at all (``identity``), or each plane at another plane's rate (``scrambled``, our choice).

    Both leave q·k a function of content and i - j alone.
    """

    def replace(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        cos, sin = output
        if by == "identity":
            size = (cos[..., :1, :].square() + sin[..., :1, :].square()).sqrt()  # 1, or what the model scales angles by
            return size.expand_as(cos).clone(), torch.zeros_like(sin)
        half = cos.shape[-1] // 2
        order = torch.randperm(half, generator=torch.Generator().manual_seed(seed)).to(cos.device)
        order = torch.cat([order, order + half])
        return cos[..., order], sin[..., order]

    with hooked(after=[(rotary_module(instrument), replace)]):
        yield

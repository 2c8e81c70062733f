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
from posbias.models.hooks import hooked


@contextmanager
def bidirectional(instrument: Instrument) -> Iterator[None]:
    """Let every query see later keys as well, |i - j| < window where there is a window; weights and angles stay."""

    def open_mask(module: nn.Module, args: Any, kwargs: Any) -> Any:
        mask = kwargs.get("attention_mask")
        if mask is None or mask.dim() != 4 or (mask.dtype == torch.bool and instrument.family.calls == "softmax"):
            expected = "attention with a mask, of what is added or of what is seen, as a keyword"
            raise errors.invalid("model", expected, type(module).__name__)
        return args, {**kwargs, "attention_mask": torch.maximum(mask, mask.transpose(-1, -2))}

    causal, instrument.causal = instrument.causal, False
    try:
        with hooked(before=[(attention, open_mask) for attention in instrument.attentions]):
            yield
    finally:
        instrument.causal = causal


@contextmanager
def replaced_embeddings(instrument: Instrument, which: str, seed: int = 0) -> Iterator[None]:
    """Replace the first token's embedding, or all, by Gaussian vectors with the table's mean and deviation."""
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

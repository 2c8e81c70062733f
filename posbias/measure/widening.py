"""A model of 16 bits that computes in 32 while it is checked, with the same weights.

Weights are replaced by copies in 32 bits while their layer works, so that there are copies of one layer at a time, and
of what lies outside the layers; of the embedding only what it gives is widened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from posbias.measure.instrument import Instrument
from posbias.measure.memory import memory_available
from posbias.measure.offload import works_on
from posbias.networks.hooks import hooked, rereturned, returned

Held = dict[str, Any]
Own = list[tuple[Held, str, Tensor]]


@contextmanager
def widened(instrument: Instrument) -> Iterator[None]:
    """Have a model compute in 32 bits at least inside the block; weights that are codes stay what they are."""
    model: Any = instrument.model
    units, taken = _units(instrument), dict[nn.Module, Own]()
    computes = [module for module in model.modules() if is_narrow(getattr(module, "compute_dtype", None))]
    formats = [module.compute_dtype for module in computes]  # of bitsandbytes

    def widen(unit: nn.Module, args: Any, kwargs: Any) -> None:
        taken[unit] = [one for part in units[unit] for one in _own(part)]
        for held, name, x in taken[unit]:
            held[name] = nn.Parameter(x.float(), False) if isinstance(x, nn.Parameter) else x.float()

    def restore(unit: nn.Module, *given: Any) -> None:
        for held, name, x in taken.pop(unit, []):
            held[name] = x

    def embedded(module: nn.Module, args: Any, output: Any) -> Any:
        x = returned(output)
        return rereturned(output, x.to(torch.promote_types(x.dtype, torch.float32)))

    after = [(unit, restore) for unit in units] + [(model.get_input_embeddings(), embedded)]
    try:
        for module in computes:
            module.compute_dtype = torch.float32
        with hooked([(unit, widen) for unit in units], after):
            yield
    finally:
        for unit in list(taken):
            restore(unit)
        for module, dtype in zip(computes, formats, strict=True):
            module.compute_dtype = dtype


def can_widen(instrument: Instrument) -> bool:
    """Tell whether a model's weights are all at hand, and there is memory for the copies."""
    if any(x.is_meta for x in instrument.model.parameters()):
        return False
    wanted = {
        unit: 4 * sum(x.numel() for part in parts for *_, x in _own(part)) for unit, parts in _units(instrument).items()
    }
    layers = [wanted.pop(layer) for layer in instrument.layers if layer in wanted]
    model: Any = instrument.model
    there = memory_available(works_on(model.get_input_embeddings()))
    return there is None or 2 * (max(layers, default=0) + sum(wanted.values())) < there


def computes_narrow(model: nn.Module) -> bool:
    """Tell whether some of a model computes in 16 bits."""
    formats = [x.dtype for x in model.parameters()]
    return any(map(is_narrow, [*formats, *(getattr(module, "compute_dtype", None) for module in model.modules())]))


def _units(instrument: Instrument) -> dict[nn.Module, list[nn.Module]]:
    """Return what is widened together when a module works: a layer, or what a module outside the layers has itself."""
    model: Any = instrument.model
    units = {layer: list(layer.modules()) for layer in instrument.layers}
    inside = {part for parts in units.values() for part in parts} | {model.get_input_embeddings()}
    units |= {module: [module] for module in model.modules() if module not in inside}
    return {unit: parts for unit, parts in units.items() if any(_own(part) for part in parts)}


def _own(module: nn.Module) -> Own:
    """Return a module's own weights and buffers of 16 bits, each with where it is kept under which name."""
    kept: tuple[Held, ...] = (module._parameters, module._buffers)
    found = [(held, name, x) for held in kept for name, x in held.items()]
    return [one for one in found if type(one[2]) in (nn.Parameter, Tensor) and is_narrow(one[2].dtype)]


def is_narrow(dtype: Any) -> bool:
    """Tell whether a number format has 16 bits."""
    return dtype in (torch.bfloat16, torch.float16)

"""Weights that accelerate keeps elsewhere: where a module works, and its weights for as long as they are read.

A model that is spread over devices and does not fit has weights in memory or on disk; its modules hold empty tensors
(on torch's meta device), which hooks of accelerate fill for as long as a module works. What reads weights without a
forward pass asks for them here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from posbias import errors

MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""How accelerate can be told to spread a model."""


def check_device_map(name: str) -> None:
    """Raise ValueError for what is neither one of :data:`MAPS` nor a device that is there.

    >>> check_device_map("everywhere")
    Traceback (most recent call last):
    ValueError: device_map: expected auto, balanced, balanced_low_0, sequential or a device, received 'everywhere'
    """
    if name in MAPS:
        return
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise errors.invalid("device_map", f"{', '.join(MAPS)} or a device", repr(name)) from None


def find_device(name: str | None) -> torch.device:
    """Return the device of that name, or a GPU if there is one; raise ValueError if there is no such device.

    Of several processes each has a GPU of its own.
    """
    if name is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    else:
        errors.device("device", name)
        try:
            device = torch.device(name)
            torch.zeros(1, device=device).item()
        except Exception:  # each kind of device that is not there has an error of its own
            raise errors.invalid("device", "cpu, cuda or cuda:0, cuda:1, …", repr(name)) from None
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    return device


def works_on(module: nn.Module) -> torch.device:
    """Return the device on which a module works: that of its weights, or to which accelerate brings them.

    >>> works_on(nn.Linear(2, 2))
    device(type='cpu')
    """
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if not parameter.is_meta:
                return parameter.device
            hook: Any = getattr(part, "_hf_hook", None)
            if hook is None:
                raise errors.invalid(f"weights of {type(part).__name__}", "numbers, or a file of them", "none (meta)")
            return torch.device(hook.execution_device)
    raise errors.invalid("module", "one with weights", type(module).__name__)


@contextmanager
def present(module: nn.Module) -> Iterator[None]:
    """Have a module's own weights at hand inside the block.

    >>> linear = nn.Linear(2, 2)
    >>> with present(linear):
    ...     linear.weight.is_meta
    False
    """
    hook: Any = getattr(module, "_hf_hook", None)
    if hook is None or not any(x.is_meta for x in module.parameters(recurse=False)):
        yield
        return
    hook.pre_forward(module)
    try:
        yield
    finally:
        hook.post_forward(module, None)

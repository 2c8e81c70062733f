"""Memory: whether there is enough for a model's weights, and what to try where it ran out.

Parameters are counted on torch's meta device, where a model has shapes and no numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from posbias import errors
from posbias.models.auto import causal_class

LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Where Linux has the limit of a container."""


def shape_of(config: Any) -> torch.nn.Module:
    """Return the model of a configuration on the meta device: all shapes, no numbers, no memory.

    >>> from transformers import GPT2Config
    >>> shape_of(GPT2Config()).num_parameters()
    124439808
    """
    try:
        with torch.device("meta"):
            return causal_class(config).from_config(config, attn_implementation="eager")  # type: ignore[no-any-return]
    except (ArithmeticError, AttributeError, AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
        received = f"{config.model_type}: {errors.short(error)}"
        raise errors.invalid("configuration", "one that makes a model", received) from None


def memory_available(device: torch.device) -> int:
    """Return how many bytes can be had on a device, at most what a container may have."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limit = LIMIT.read_text().strip() if LIMIT.is_file() else "max"
    there = int(psutil.virtual_memory().available)
    return min(there, int(limit)) if limit.isdigit() else there


def check_weights_fit(config: Any, dtype: torch.dtype, device: torch.device) -> None:
    """Raise ValueError if the weights take more memory than a device has; they go through the CPU's in any case."""
    wanted = sum(x.numel() for x in shape_of(config).parameters()) * dtype.itemsize
    for place in (torch.device("cpu"), device):
        if wanted > (there := memory_available(place)):
            received = f"weights of {wanted / 2**30:.1f} GiB in {str(dtype).removeprefix('torch.')}"
            expected = f"at most the {there / 2**30:.1f} GiB available on {place}"
            raise errors.invalid("memory", expected, f"{received}; try --device-map auto or --dtype bfloat16")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory ran out."""
    words = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(phrase in str(error).lower() for phrase in words)


def out_of_memory() -> ValueError:
    """Return what to try where memory ran out."""
    ways = "a smaller --length or --batch-size, fewer --quantities, or --device-map auto"
    return errors.invalid("memory", "enough to measure", f"too little; try {ways}")

"""Weights: whether they are the model's, whether they fit a machine, and where they are while they are read.

A model that accelerate spreads over devices, memory and disk has modules with empty tensors (on torch's meta device),
which hooks fill for as long as a module works; what reads weights without a forward pass asks for them here.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias import errors
from posbias.models.families import causal_class, output_projection

_BUFFERS = re.compile(r"(^|\.)((attn|attention|self_attn)\.(masked_)?bias|inv_freq|position_ids|embed_positions)$")
"""Tensors of older checkpoints that are computed today: causal masks, frequencies and positions."""

LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Where Linux has the limit of a container."""


def check_weights(where: str, missing: Iterable[str], unexpected: Iterable[str], mismatched: Iterable[Any]) -> None:
    """Raise ValueError unless every weight of a model came from its checkpoint, and every tensor there was used."""
    found = {
        "of another shape": [f"{name}: {tuple(there)} for {tuple(wanted)}" for name, there, wanted in mismatched],
        "missing": missing,
        "unknown": [name for name in unexpected if not _BUFFERS.search(name)],
    }
    said = [f"{len(names)} {what} ({names[0]})" for what, x in found.items() if (names := sorted(x))]
    if said:
        raise errors.invalid(f"{where}: weights", "those of its configuration", ", ".join(said))


def is_coded(weight: Any) -> bool:
    """Tell whether a weight is kept as codes of its numbers, of 8 bits or fewer, which only its own module reads.

    >>> list(map(is_coded, (w := nn.Linear(2, 2).weight.detach(), w.char(), w.to(torch.float8_e4m3fn), None)))
    [False, True, True, True]
    """
    if not isinstance(weight, Tensor) or type(weight) not in (nn.Parameter, Tensor):
        return True  # no weight where one belongs, or a class of its own
    return not weight.is_floating_point() or weight.dtype.itemsize < 2


def coded_layers(model: nn.Module) -> list[str]:
    """Return the names of the classes of modules whose weights are codes: quantised layers."""
    own = ((module, x) for module in model.modules() for x in module.parameters(recurse=False))
    return sorted({type(module).__name__ for module, x in own if is_coded(x)})


def let_gradients_pass(model: nn.Module) -> None:
    """Keep 4-bit layers of bitsandbytes from packing their weights for a CPU: packed ones let no gradient through.

    They are packed by the first pass without gradient, of which a measurement has many. 8-bit layers are kept from
    saying in each pass, layer by layer, that they round what they are given.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]


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


def find_device(name: str | None) -> torch.device:
    """Return the device of that name, or this process's GPU if there is one; raise ValueError if it is not there."""
    try:
        own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
        there = torch.zeros(1, device=own if name is None else name)
        there.item()
    except Exception:  # each kind of device that is not there has an error of its own
        raise errors.invalid("device", "cpu, cuda or cuda:0, cuda:1, …", repr(name)) from None
    return there.device


def works_on(module: nn.Module) -> torch.device:
    """Return the device on which a module works: that of its weights, or to which accelerate brings them.

    >>> works_on(nn.Linear(2, 2))
    device(type='cpu')
    """
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            hook: Any = getattr(part, "_hf_hook", None)
            return torch.device(hook.execution_device) if parameter.is_meta else parameter.device
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


def output_weight(attention: nn.Module) -> Float[Tensor, "d values"]:
    """Return W_O of all heads of an attention module in 32 bits."""
    return projection_weight(output_projection(attention))


def projection_weight(projection: Any) -> Float[Tensor, "out in"]:
    """Return a projection's weight in 32 bits, a row for each output."""
    with present(projection):
        weight: Tensor = projection.weight.detach().float()
    return weight.mT if type(projection).__name__ == "Conv1D" else weight


def projection_bias(projection: Any) -> Float[Tensor, "out"]:
    """Return a projection's bias in 32 bits, zeros where it has none."""
    with present(projection):
        if getattr(projection, "bias", None) is not None:
            return projection.bias.detach().float()  # type: ignore[no-any-return]
    return torch.zeros_like(projection_weight(projection)[:, 0])

"""Weights by name: those of the checkpoint are those of the configuration, or the difference is said."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from typing import Any

from torch import Tensor, nn

from posbias import errors
from posbias.models.families import row_of

_BUFFERS = re.compile(r"(^|\.)((attn|attention|self_attn)\.(masked_)?bias|inv_freq|position_ids|embed_positions)$")
"""Tensors of older checkpoints that are computed today: causal masks, frequencies and positions."""

Mismatch = tuple[str, Iterable[int], Iterable[int]]


def check_weights(
    where: str,
    model: nn.Module,
    *,
    missing: Collection[str],
    unexpected: Collection[str],
    mismatched: Collection[Mismatch],
) -> None:
    """Raise ValueError unless every weight of a model came from its checkpoint, and every tensor there was used.

    What transformers takes from elsewhere is not missing: an output layer that is tied to the embedding, and names
    without the base model's prefix. Buffers of older checkpoints are no surplus.
    """
    missing, unexpected = sorted(missing), sorted(key for key in unexpected if not _BUFFERS.search(key))
    T, found = _layers(model, missing, unexpected)
    if T != found:
        raise errors.invalid(f"{where}: layers", f"the {T} of its configuration", f"{found} in its weights")
    if mismatched:
        name, there, wanted = min(mismatched, key=lambda item: item[0])
        more = _more(len(mismatched) - 1)
        raise errors.invalid(
            f"{where}: {name}", f"the shape {tuple(wanted)} of its configuration", f"{tuple(there)}{more}"
        )
    if missing:
        received = f"none for {missing[0]}{_more(len(missing) - 1)}"
        received += f", and {unexpected[0]}{_more(len(unexpected) - 1)} that it does not have" if unexpected else ""
        raise errors.invalid(f"{where}: weights", "a tensor for each of the model's", received)
    if unexpected:
        raise errors.invalid(
            f"{where}: weights", "the model's alone", f"{unexpected[0]}{_more(len(unexpected) - 1)} besides"
        )


def is_coded(weight: Any) -> bool:
    """Tell whether a weight is kept as codes of its numbers, of 8 bits or fewer, which only its own module reads.

    >>> is_coded(nn.Linear(2, 2).weight), is_coded(nn.Linear(2, 2).weight.char()), is_coded(None)
    (False, True, True)
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


def _layers(model: Any, missing: Collection[str], unexpected: Collection[str]) -> tuple[int, int]:
    """Return how many layers a model has, and how many its checkpoint: whole ones are missing, or there are more."""
    if (row := row_of(model.config)) is None:  # whose layers nobody knows
        return 0, 0
    blocks = row.blocks
    try:
        T = len(model.get_submodule(blocks))
    except (AttributeError, TypeError):  # a row that was added and does not fit, which is said where it is used
        return 0, 0
    inner = blocks.removeprefix(f"{model.base_model_prefix}.")
    layer = re.compile(rf"(?:^|\.){re.escape(inner)}\.(\d+)\.")
    more = [int(found[1]) for key in unexpected if (found := layer.search(key))]
    if max(more, default=-1) >= T:
        return T, max(more) + 1
    names = [key for key in model.state_dict() if not _BUFFERS.search(key)]
    whole = {t: {key for key in names if (found := layer.search(key)) and int(found[1]) == t} for t in range(T)}
    return T, T - sum(keys <= set(missing) for keys in whole.values())


def _more(count: int) -> str:
    return f" and {count} more" if count else ""

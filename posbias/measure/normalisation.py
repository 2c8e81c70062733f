"""What a normalisation layer divides by."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias import errors


def denominators(norm: nn.Module, x: Float[Tensor, "... D"]) -> Float[Tensor, "... 1"]:
    """Return what a norm divides by: √(variance over the features + ε), with RMSNorm √(mean square + ε).

    >>> float(denominators(nn.LayerNorm(2, eps=0.0), torch.tensor([1.0, 5.0])))
    2.0
    """
    eps: Any = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if eps is None or not is_norm(norm):
        raise errors.invalid("norm", "LayerNorm or RMSNorm", type(norm).__name__)
    return (size_over_features(x, centres(norm)).square() + eps).sqrt()[..., None]


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module is LayerNorm or an RMSNorm."""
    return centres(module) or "RMSNorm" in type(module).__name__


def centres(norm: nn.Module) -> bool:
    """Tell whether a norm takes the mean over the features away, as LayerNorm does and RMSNorm does not."""
    return isinstance(norm, nn.LayerNorm)


def size_over_features(x: Float[Tensor, "... D"], centred: bool) -> Float[Tensor, "..."]:
    """Return the root mean square over the features, in 32 bits at least; centred, the standard deviation."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return (x - x.mean(-1, keepdim=True) if centred else x).square().mean(-1).sqrt()

"""Norms, seen from outside: what they divide by, what they multiply by, and whether they take a mean away."""

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
    fixed = 1e-5 if type(norm).__name__ == "OlmoLayerNorm" else None  # which has it in its forward pass
    eps: Any = getattr(norm, "variance_epsilon", getattr(norm, "eps", fixed))
    if eps is None or not is_norm(norm):
        raise errors.invalid("norm", "LayerNorm or RMSNorm", type(norm).__name__)
    return (size_over_features(x, centres(norm)).square() + eps).sqrt()[..., None]


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module is LayerNorm or an RMSNorm."""
    return centres(module) or "RMSNorm" in type(module).__name__


def centres(norm: nn.Module) -> bool:
    """Tell whether a norm takes the mean over the features away, as LayerNorm does and RMSNorm does not.

    Some families have a LayerNorm of their own, named after them.
    """
    return isinstance(norm, nn.LayerNorm) or type(norm).__name__.endswith("LayerNorm")


def multiplier(norm: nn.Module, like: Float[Tensor, "... D"]) -> Float[Tensor, "D"]:
    """Return what a norm multiplies each feature by after its division, seen in what it makes of ±1 in turn.

    Its weights, or 1 plus these, or 1 where it has none; ``like`` gives the width and the device.

    >>> multiplier(nn.LayerNorm(3, elementwise_affine=False), torch.zeros(3)).round(decimals=5).tolist()
    [1.0, 1.0, 1.0]
    """
    x = 1 - 2.0 * (torch.arange(like.shape[-1], device=like.device) % 2)
    left = x - x.mean() if centres(norm) else x
    with torch.no_grad():
        own = x.to(next((w.dtype for w in norm.parameters()), x.dtype))  # ±1 in any format
        made = norm(own).float() - norm(-own).float()  # a bias goes out
        return made / 2 * denominators(norm, x) / left


def size_over_features(x: Float[Tensor, "... D"], centred: bool) -> Float[Tensor, "..."]:
    """Return the root mean square over the features, in 32 bits at least; centred, the standard deviation."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return (x - x.mean(-1, keepdim=True) if centred else x).square().mean(-1).sqrt()

"""Watch a model's attention: whatever family it is of, one function is given its readings and computes it.

Most families follow transformers' attention interface (:mod:`posbias.models.attention`). Five do not. GPT-J and
GPT-Neo have a method that is given queries, keys, values and mask: it is exchanged. Falcon calls torch's fused
attention, if told to, which is watched. BLOOM and MPT write their attention out: watched are the product of queries and
keys, the softmax, and the product of its weights with values, whose result is exchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias.models.attention import Attend, Reading, computed, handed
from posbias.models.families import Family, text_config, window
from posbias.models.hooks import hooked

SOFTMAX = {torch.nn.functional.softmax, torch.softmax, Tensor.softmax}
FUSED = torch.nn.functional.scaled_dot_product_attention
PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.baddbmm, Tensor.baddbmm}


@contextmanager
def watched(model: nn.Module, family: Family, attend: Attend) -> Iterator[None]:
    """Have ``attend`` compute a model's attention until the block ends, however it ends."""
    config: Any = text_config(model.config)
    every = enumerate(family.layers(model))
    layers = {family.attention_of(layer): t for t, layer in every if family.kind_of(layer) == "attention"}
    if family.calls == "interface":
        with handed(config, layers, attend):
            yield
    elif family.calls == "_attn":
        try:
            for module, t in layers.items():
                module._attn = _method(module, t, config, family, attend)
            yield
        finally:
            for module in layers:
                module.__dict__.pop("_attn", None)
    else:
        watch = _Watch(family, layers, attend)
        before, after = [(module, watch.enter) for module in layers], [(module, watch.leave) for module in layers]
        way = "sdpa" if family.calls == "sdpa" else config._attn_implementation
        with computed(config, way), hooked(before, after), watch:
            yield


def _method(module: nn.Module, t: int, config: Any, family: Family, attend: Attend) -> Any:
    """Return what stands for the method ``_attn``: with queries and keys in 32 bits, and GPT-Neo's window."""
    width = window(module, config)

    def _attn(query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor) -> tuple[Tensor, None]:
        mask = attention_mask
        if width is not None:
            beyond = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril(-width)
            mask = mask.masked_fill(beyond, torch.finfo(mask.dtype).min)
        return attend(Reading(t, query.float(), key.float(), value, mask, family.scale(module))), None

    return _attn


class _Watch(TorchFunctionMode):
    """Watch what an attention module calls while it works."""

    def __init__(self, family: Family, layers: dict[nn.Module, int], attend: Attend) -> None:
        super().__init__()
        self.family, self.layers, self.attend = family, layers, attend
        self.module: nn.Module | None = None  # at work
        self.arguments: dict[str, Any] = {}
        self.factors: list[Tensor] = []  # queries, and keys with their features first
        self.weights: Tensor | None = None

    def enter(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Remember which module works, on what."""
        self.module, self.arguments, self.weights = module, kwargs, None

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """Forget it."""
        self.module, self.arguments, self.factors, self.weights = None, {}, [], None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``, or what stands for it."""
        kwargs = kwargs or {}
        if self.module is None:
            return func(*args, **kwargs)
        if func is FUSED:
            return self._fused(*args, **kwargs)
        if func in PRODUCTS:
            factors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)][-2:]
            if self.weights is not None:
                return self._averaged(factors[1])
            self.factors = factors
        out = func(*args, **kwargs)
        if func in SOFTMAX:
            self.weights = out
        return out

    def _fused(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool = False, **_: Any
    ) -> Float[Tensor, "B H n V"]:
        """Return what fused attention gives."""
        assert self.module is not None
        if attn_mask is None and not is_causal:
            raise RuntimeError("expected a causal mask in fused attention, received none")
        t, scale = self.layers[self.module], self.family.scale(self.module)
        return self.attend(Reading(t, query, key, value, attn_mask, scale))

    def _averaged(self, value: Float[Tensor, "*BH n V"]) -> Float[Tensor, "*BH n V"]:
        """Return the averages of values, in the shape in which they are given."""
        assert self.module is not None and self.weights is not None
        B, H, n = self.weights.shape[:3]
        mask = self.arguments["attention_mask"][..., -n:]
        query, keys, heads = (x.reshape(B, H, *x.shape[-2:]) for x in (*self.factors, value))
        reading = Reading(
            self.layers[self.module],
            query,
            keys.mT,
            heads,
            ~mask if mask.dtype == torch.bool else mask,  # MPT's is True where a key is hidden
            self.family.scale(self.module),
            beside=None if self.family.bias is None else self.family.bias(self.arguments, self.module, n),
            weights=self.weights,
        )
        self.weights = None
        return self.attend(reading).reshape(value.shape)

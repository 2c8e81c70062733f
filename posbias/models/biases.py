"""Position biases that are added to a finished model while it works.

Hooks hand other arguments to the attention modules, eager or fused: BLOOM and MPT are given logits in their ALiBi,
every other family in the mask. Whatever a bias says, a mask hides what it hid. Positions count from the first token of
a prompt, so that prompts may be padded on the right and not on the left; tokens that a cache holds count. Logits have
the number format of the mask, in 16 bits with its rounding.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias import errors
from posbias.models.families import family_of, layer_number, text_config, window
from posbias.models.hooks import Before, hooked
from posbias.rollout.position_bias import Biases, PositionBias, describe, layered_biases

Arguments = dict[str, Any]

FIELD = "bias"
"""What a bias is called in messages."""

Input = Callable[[Arguments, Tensor], Arguments]
"""Returns the arguments of an attention module that change, of these and logits (H, queries, keys) that are 0 at keys
after their query."""


def description_text(biases: Biases) -> str:
    """Return a description as one line of JSON, as short as it can be: one bias, those of heads, or of layers.

    >>> from posbias.rollout.position_bias import LogBias
    >>> description_text(((LogBias(1.0), LogBias(1.0)),))
    '{"kind": "log", "alpha": 1.0}'
    """
    heads = [list(map(describe, row)) for row in biases]  # of each layer
    if len(set(biases)) > 1:
        return json.dumps(heads)
    return json.dumps(heads[0][0] if len(set(biases[0])) == 1 else heads[0])


def _as_alibi(arguments: Arguments, logits: Tensor) -> Arguments:
    """Add logits to BLOOM's ALiBi, (B·H, queries, keys)."""
    alibi = arguments["alibi"]
    every = _fitting(logits, alibi.dtype).repeat(alibi.shape[0] // logits.shape[0], 1, 1)
    return {"alibi": alibi[..., -every.shape[-1] :] + every}


def _as_position_bias(arguments: Arguments, logits: Tensor) -> Arguments:
    """Add logits to MPT's ALiBi, (H, queries, keys)."""
    every = _fitting(logits, arguments["hidden_states"].dtype)
    return {"position_bias": arguments["position_bias"][..., -every.shape[-1] :] + every}


def _as_mask(arguments: Arguments, logits: Tensor) -> Arguments:
    """Add logits to what the mask carries where it allows, (B, H, queries, keys)."""
    mask, dtype = arguments.get("attention_mask"), arguments["hidden_states"].dtype
    queries, keys = logits.shape[-2:]
    if mask is None:
        allowed = torch.ones(queries, keys, dtype=torch.bool, device=logits.device).tril(keys - queries)[None, None]
    elif mask.dtype == torch.bool:
        allowed = mask
    else:
        dtype, allowed = mask.dtype, mask > torch.finfo(mask.dtype).min / 2
    every = _fitting(logits, dtype)
    if mask is not None and mask.dtype != torch.bool:
        every = mask + every
    return {"attention_mask": torch.where(allowed, every, torch.finfo(dtype).min)}


def _fitting(logits: Tensor, dtype: torch.dtype) -> Tensor:
    """Return logits in a number format, none so low that a mask beside it would be lost."""
    most = torch.finfo(dtype).max / 4
    if logits.max() > most:
        raise errors.invalid(FIELD, f"logits of at most {most:.3g}, as {dtype} needs", f"{float(logits.max()):.3g}")
    return logits.clamp(min=-most).to(dtype)


INPUTS: Mapping[str, Input] = {"bloom": _as_alibi, "mpt": _as_position_bias}
"""How a family takes biases, where not by its mask."""


def bias_hooks(model: nn.Module, biases: Biases) -> list[tuple[nn.Module, Before]]:
    """Return each layer's attention module with the hook that adds its biases."""
    config: Any = model.config
    family = family_of(config)
    rows = {row: _Layer(row, text_config(config)) for row in biases}
    layers = enumerate(family.layers(model))
    return [(family.attention_of(layer), rows[biases[min(t, len(biases) - 1)]]) for t, layer in layers]


class _Layer:
    """The biases of a layer's heads: called before its attention works, returns other arguments for it."""

    def __init__(self, biases: tuple[PositionBias, ...], config: Any) -> None:
        self.biases, self.config = biases, config
        self.put = INPUTS.get(family_of(config).name, _as_mask)
        self.known: dict[tuple[int, torch.device], Tensor] = {}  # the last logits

    def __call__(self, module: nn.Module, args: Any, kwargs: Arguments) -> Any:
        arguments = kwargs if "hidden_states" in kwargs else {**kwargs, "hidden_states": args[0]}
        x = arguments["hidden_states"]
        mask, past = kwargs.get("attention_mask"), held(module, kwargs)
        with torch.no_grad():
            n = past + x.shape[1]
            _check_mask(self._allowed(mask), past, n, window(module, self.config))
            keys = n if mask is None else mask.shape[-1]  # a cache of a window holds the last ones
            logits = self.logits(n, x.device if mask is None else mask.device)[:, past:, n - keys :]
            return args, {**kwargs, **self.put(arguments, logits)}

    def _allowed(self, mask: Tensor | None) -> Tensor | None:
        """Return a mask as truth values, True where a key may be seen."""
        if mask is None or mask.dtype != torch.bool:
            return None if mask is None else mask > torch.finfo(mask.dtype).min / 2
        return ~mask if self.config.model_type == "mpt" else mask

    def logits(self, n: int, device: torch.device) -> Float[Tensor, "H n n"]:
        """Return the logits of n tokens in 32 bits, 0 at keys after their query; each bias is evaluated once."""
        if (n, device) not in self.known:
            once = {bias: torch.from_numpy(bias.logits(n)).float().tril() for bias in dict.fromkeys(self.biases)}
            self.known = {(n, device): torch.stack([once[bias] for bias in self.biases]).to(device)}
        return self.known[n, device]


def held(module: nn.Module, kwargs: Arguments) -> int:
    """Return how many tokens the cache holds before a layer's attention adds its own."""
    cache = next((x for x in (kwargs.get("past_key_values"), kwargs.get("layer_past")) if x is not None), None)
    return 0 if cache is None else int(cache.get_seq_length(layer_number(module)))


def _check_mask(allowed: Tensor | None, past: int, n: int, width: int | None) -> None:
    """Raise unless a mask is of tokens that are there, and the first of them is no padding."""
    if allowed is None:
        return
    keys = allowed.shape[-1]
    if keys > n:
        raise errors.invalid(FIELD, f"a mask of the {n} tokens that are there", f"one of {keys}, as of a static cache")
    query = min(width or n, n) - 1 - past  # the last one that may see the first token
    if keys == n and 0 <= query < allowed.shape[-2] and not allowed[:, 0, query, 0].all():
        raise errors.invalid(FIELD, "prompts without padding on the left, where positions are counted from", "some")


@contextmanager
def added_biases(model: nn.Module, biases: Any) -> Iterator[None]:
    """Add position biases to the logits of a model's query heads until the block ends, however it ends."""
    config: Any = text_config(model.config)
    with hooked(before=bias_hooks(model, fitting_biases(config, biases))):
        yield


def fitting_biases(config: Any, biases: Any) -> Biases:
    """Return the biases of a description, or those that are given, for a model with this configuration.

    >>> from transformers import GPT2Config
    >>> fitting_biases(GPT2Config(), [{"kind": "none"}] * 2)
    Traceback (most recent call last):
    ValueError: bias: expected one bias, or one for each of 12 heads, received 2
    """
    if isinstance(biases, tuple):
        return biases
    family_of(config)  # raises where there is no row
    return layered_biases(biases, int(config.num_hidden_layers), int(config.num_attention_heads), FIELD)

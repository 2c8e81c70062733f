"""Position biases that a network is given, through the input that its family has for them.

A network's configuration may hold ``position_bias``: a description for all heads, one for each head, or a list of these
for each layer (:mod:`posbias.rollout.position_bias`). Its logits then take the place of the family's own ALiBi, or are
added to the mask. Nothing of a forward pass is copied: hooks hand other arguments to the attention modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posbias import checks
from posbias.networks.families import family_of
from posbias.networks.hooks import attach
from posbias.rollout.position_bias import Biases, layered_biases

FIELD = "position_bias"
"""The field of a configuration that describes given biases."""
KEPT = 4
"""Lengths for which the logits are kept."""

Input = Callable[[dict[str, Any], Tensor], dict[str, Any]]
"""Puts logits (H, n, n) into an attention module's arguments."""


def _as_alibi(arguments: dict[str, Any], logits: Tensor) -> dict[str, Any]:
    """Put logits in the place of BLOOM's ALiBi, (B·H, n, n)."""
    alibi = arguments["alibi"]
    prompts = alibi.shape[0] // logits.shape[0]
    return {**arguments, "alibi": logits.to(alibi.dtype).repeat(prompts, 1, 1)}


def _as_mask(arguments: dict[str, Any], logits: Tensor) -> dict[str, Any]:
    """Add logits to the mask, (B, H, n, n); a causal one where fused attention has none of its own."""
    mask = arguments.get("attention_mask")
    n = logits.shape[-1]
    dtype = arguments["hidden_states"].dtype if mask is None or mask.dtype == torch.bool else mask.dtype
    least = torch.finfo(dtype).min
    if mask is None:
        later = torch.ones(n, n, dtype=torch.bool, device=logits.device).triu(1)
        return {**arguments, "attention_mask": logits.to(dtype).masked_fill(later, least)[None]}
    allowed = mask if mask.dtype == torch.bool else mask > least / 2
    return {**arguments, "attention_mask": torch.where(allowed, logits.to(dtype), least)}


INPUTS: Mapping[str, Input] = {"bloom": _as_alibi, "llama": _as_mask}
"""How each family takes given biases."""


def given_biases(config: Any) -> Biases | None:
    """Return the biases that a configuration describes, None if it describes none.

    Raises
    ------
    ValueError
        For a description that is none or of other heads or layers, and for a family that takes none.
    """
    description = getattr(config, FIELD, None)
    if description is None:
        return None
    if config.model_type not in INPUTS:
        raise checks.refuse(FIELD, f"a model of {', '.join(INPUTS)}", config.model_type)
    return layered_biases(description, config.num_hidden_layers, config.num_attention_heads)


def attach_biases(model: nn.Module) -> Biases | None:
    """Give a model the biases that its configuration describes, for good; return them, None for none.

    Raises
    ------
    ValueError
        As :func:`given_biases` does.
    """
    biases = given_biases(model.config)
    if biases is None:
        return None
    family = family_of(model.config)
    rows = [_Logits(row) for row in biases]
    for t, layer in enumerate(family.layers(model)):
        row = rows[min(t, len(rows) - 1)]
        attach(family.attention_of(layer), _hook(INPUTS[family.name], row))
    return biases


class _Logits:
    """The logits of one layer's heads, made once for a length and a device."""

    def __init__(self, biases: tuple[Any, ...]) -> None:
        self.biases = biases
        self.made: dict[tuple[int, torch.device], Tensor] = {}

    def of(self, n: int, device: torch.device) -> Float[Tensor, "H n n"]:
        if (n, device) not in self.made:
            if len(self.made) >= KEPT:
                self.made.clear()
            once = {bias: torch.from_numpy(bias.logits(n)).float() for bias in dict.fromkeys(self.biases)}
            self.made[n, device] = torch.stack([once[bias] for bias in self.biases]).to(device)
        return self.made[n, device]


def _hook(put: Input, row: _Logits) -> Any:
    def before(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        x = args[0] if args else kwargs["hidden_states"]
        changed = put({"hidden_states": x, **kwargs}, row.of(x.shape[1], x.device))
        if args:
            changed.pop("hidden_states")
        return args, changed

    return before

"""Networks that are given position biases in the place of their own: ALiBi is silenced, rotation can be switched off.

A ``config.json`` then holds ``position_bias``, a description as :func:`posbias.rollout.position_bias.layered_biases`
reads it. Rotary and learned positions stay beside biases that are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig

from posbias.models.biases import bias_hooks, description_text
from posbias.models.families import family_of
from posbias.models.hooks import attach
from posbias.models.loading import Source
from posbias.rollout.position_bias import Biases, layered_biases

FIELD = "position_bias"
"""The field of a configuration that describes given biases."""
NOTHING = 1e20
"""Rotary positions that are stretched by more than this turn nothing."""


def given_biases(config: Any) -> Biases | None:
    """Return the biases that a configuration describes, None if it describes none."""
    description = getattr(config, FIELD, None)
    if description is None:
        return None
    return layered_biases(description, config.num_hidden_layers, config.num_attention_heads, FIELD)


def attach_biases(model: nn.Module) -> None:
    """Give a model the biases that its configuration describes, for good and once."""
    biases = given_biases(model.config)
    for attention, hook in () if biases is None else bias_hooks(model, biases):
        attach(attention, _silence)
        attach(attention, hook)


def _silence(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    """Give attention zeros in the place of BLOOM's and MPT's ALiBi."""
    own: dict[str, Tensor] = {name: torch.zeros_like(kwargs[name]) for name in ("alibi", FIELD) if name in kwargs}
    return args, {**kwargs, **own}


def about(config: Any) -> dict[str, str]:
    """Return the attributes ``position_bias`` and ``position`` of what is measured of such a network."""
    biases, own = given_biases(config), family_of(config).position_of(config)
    rotary = getattr(config, "rope_parameters", None)
    off = own == "rotary" and isinstance(rotary, Mapping) and float(rotary.get("factor") or 1.0) > NOTHING
    if biases is None:
        return {"position": "none"} if off else {}
    return {FIELD: description_text(biases), "position": "given" if own == "alibi" or off else f"{own} and given"}


@dataclass(frozen=True)
class Biased(Source):
    """Name a network in a directory, with the biases that its configuration may describe."""

    def read_config(self) -> Any:
        """Return the configuration."""
        return AutoConfig.from_pretrained(self.model)

    def about(self) -> dict[str, str]:
        """Return what is given."""
        return about(self.config())

    def read_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str) -> Any:
        """Return the network with its biases."""
        model = super().read_model(dtype, device, device_map, attention)
        attach_biases(model)
        return model

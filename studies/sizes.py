"""Untrained networks, those of published sizes and of two of ours by name; ``sizes.json`` has the source of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from posbias.models.families import causal_class, family_of
from posbias.models.loading import config_digest, last_part
from studies.biased import Biased, attach_biases
from studies.rotation import NO_ROTATION


@dataclass(frozen=True)
class Size:
    """Say what a network's shape is: fields that differ from the defaults of ``family``, and where they are from."""

    family: str
    fields: Mapping[str, Any]
    source: str

    def config(self) -> Any:
        """Return the configuration."""
        return AutoConfig.for_model(self.family, **self.fields)


_EVERY = {name: Size(**row) for name, row in json.loads(Path(__file__).with_suffix(".json").read_text()).items()}
SIZES = {name: size for name, size in _EVERY.items() if "12x256" not in name}
"""Published sizes by name."""
BODIES = {name: size for name, size in _EVERY.items() if "12x256" in name}
"""Sizes of ours, 12 layers of width 256: bodies for position biases."""


@dataclass(frozen=True)
class Untrained(Biased):
    """Name an untrained network: a directory with a config.json, of which nothing else is read.

    Weights are drawn as transformers draws them for the family, for some (Pythia, MPT) not as their authors did;
    ``spread`` is their standard deviation, the family's own unless given. ``position_bias`` describes biases that take
    the place of ALiBi or of the rotation. A tokenizer is needed for prompts that are cut from text alone.
    """

    seed: int = 0
    position_bias: Any = None
    spread: float | None = None

    def as_it_is(self) -> Any:
        """Return the configuration without what is changed."""
        return super().read_config()

    def read_config(self) -> Any:
        """Return the configuration."""
        config = self.as_it_is()
        if self.spread is not None:
            config.initializer_range = self.spread
        if self.position_bias is not None:
            config.position_bias = self.position_bias
            if family_of(config).position_of(config) == "rotary":
                config.rope_parameters = NO_ROTATION["rope_parameters"]
        return config

    def name(self) -> str:
        """Return what the network is called in results."""
        return f"{last_part(self.model)}{'' if self.position_bias is None else ', given biases'} (untrained)"

    def version(self) -> str:
        """Return a digest of the configuration, and the seed of the weights."""
        return f"config-{config_digest(self.config()).hexdigest()[:16]}, seed {self.seed}"

    def read_model(self, dtype: torch.dtype, device: str, device_map: str | None, attention: str) -> Any:
        """Return the network with weights drawn on the CPU: the same bits for every device, attention and bias."""
        config = self.read_config()
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self.seed)
            model = causal_class(config).from_config(config, attn_implementation=attention, dtype=dtype)
        attach_biases(model)
        return model.eval().to(device)

    def find_tokenizer(self) -> str | None:
        """Return the tokenizer that is given."""
        return self.tokenizer


@dataclass(frozen=True)
class Sized(Untrained):
    """Name an untrained network of one of these sizes.

    >>> Sized("gpt2", seed=3).name()
    'gpt2 (untrained)'
    """

    def as_it_is(self) -> Any:
        """Return the configuration of the table."""
        return _EVERY[self.model].config()

"""Untrained networks of published sizes, and of two of ours, by name; ``sizes.json`` has the source of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from posbias.models.loading import Untrained
from posbias.models.opening import GIVEN


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
class Sized(Untrained):
    """Name an untrained network of one of these sizes.

    >>> Sized("gpt2", seed=3).name()
    'gpt2 (untrained)'
    """

    def as_it_is(self) -> Any:
        """Return the configuration of the table."""
        return _EVERY[self.model].config()

    def name(self) -> str:
        """Return what the network is called in results."""
        return f"{self.model}{'' if self.position_bias is None else GIVEN} (untrained)"

    def find_tokenizer(self) -> str | None:
        """Return the tokenizer that is given."""
        return self.tokenizer

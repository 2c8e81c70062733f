"""A design on the command line: a rollout configuration whose position biases a network is built with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posbias import errors
from posbias.networks.description import FIELD


@dataclass(frozen=True)
class Design:
    """Hold what a rollout configuration says of the position biases of a network.

    Parameters
    ----------
    file
        The configuration.
    layers
        Number of layers.
    heads
        Number of heads; None where one bias is for all, and no number is stated.
    description
        As a ``config.json`` has it.
    """

    file: Path
    layers: int
    heads: int | None
    description: Any

    def check(self, name: str, layers: int, heads: int) -> None:
        """Raise ValueError unless a network has as many layers and heads."""
        for field, own, there in (("num_layers", self.layers, layers), ("num_heads", self.heads, heads)):
            if own not in (None, there):
                raise errors.invalid(f"{self.file}: {field}", f"{there}, as {name} has", own)


def read_design(file: Path) -> Design:
    """Read the position biases of a rollout configuration; what else it has, a network has of its own."""
    from posbias.published.configuration import read_config

    config = read_config(file)
    if config.position_bias is None:
        raise errors.invalid(f"{file}: {FIELD}", "a description of position biases", "none")
    attention = config.attention_config
    weights = np.array([np.divide(row, max(row)) for row in attention.head_weights or [[1.0]]])
    if (weights != 1).any():
        received = "others; repeat a bias for each head that is to have it"
        raise errors.invalid(f"{file}: attention_config.head_weights", "equal weights, for a network", received)
    one = not isinstance(config.position_bias, list) and attention.num_heads == 1
    return Design(file, config.num_layers, None if one else attention.num_heads, config.position_bias)

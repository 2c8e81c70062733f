"""Position biases given in JSON or files: those of a network that is built, or one to add to a finished model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posbias import errors
from posbias.rollout.position_bias import layered_biases

FIELD = "bias"
"""What the option is called in messages."""
SUFFIXES = (".yaml", ".yml")
HELP = (
    'A position bias to add to the model\'s logits while it works: a description in JSON such as \'{"kind": "log", '
    '"alpha": 1.4}\', or a file (.yaml) with a position_bias, as posbias design --measured writes; none unless given.'
)


def read_bias(text: str) -> Any:
    """Return the description of the bias that ``--bias`` names, None for ``none``.

    >>> read_bias('[{"kind": "none"}, {"kind": "log", "alpha": 1}]')[1]
    {'kind': 'log', 'alpha': 1}
    """
    if text == "none":
        return None
    if text.endswith(SUFFIXES):
        return read_design(Path(text))
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        expected = f"none, a description in JSON, or a file that ends in {' or '.join(SUFFIXES)}"
        raise errors.invalid(FIELD, expected, repr(text[:60])) from None


def read_design(file: Path) -> Any:
    """Return the position biases in a file, alone or in a rollout configuration; a network has the rest of its own."""
    from posbias.configuration import read_config, read_content

    content = read_content(file)
    if not isinstance(content, Mapping) or content.get("position_bias") is None:
        raise errors.invalid(f"{file}: position_bias", "a description of position biases", "none")
    weights = None if len(content) == 1 else read_config(file).attention_config.head_weights
    if any(weight != max(row) for row in weights or [] for weight in row):
        received = "others; repeat a bias for each head that is to have it"
        raise errors.invalid(f"{file}: attention_config.head_weights", "equal weights, for a network", received)
    description = content["position_bias"]
    layers = len(description) if isinstance(description, list) else 1
    layered_biases(description, layers, field=f"{file}: position_bias")  # raises
    return description

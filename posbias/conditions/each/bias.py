"""Adds a position bias to the model's logits: a description in JSON, or a .yaml file with a position_bias."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from posbias import errors
from posbias.conditions import FIELD, ChangedRun
from posbias.models.biases import added_biases as bias
from posbias.models.biases import description_text, fitting_biases
from posbias.prompts import Prompt
from posbias.rollout.position_bias import layered_biases

SUFFIXES = (".yaml", ".yml")


def read_bias(text: str) -> Any:
    """Return the description that a text is, or that of the file that it names.

    >>> read_bias('[{"kind": "none"}, {"kind": "log", "alpha": 1}]')[1]
    {'kind': 'log', 'alpha': 1}
    """
    if text.endswith(SUFFIXES):
        return read_design(Path(text))
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        expected = f"a description in JSON, or a file that ends in {' or '.join(SUFFIXES)}"
        raise errors.invalid(f"{FIELD} bias", expected, repr(text[:60])) from None


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


class Condition(ChangedRun):
    changes = "model"
    needs = "a model in this process, of a family with a row"
    cost = "nothing"

    def __init__(self, argument: str) -> None:
        self.description = read_bias(argument)

    def check(self, config: Any) -> None:
        fitting_biases(config, self.description)

    def resolved(self, text: str, config: Any) -> str:
        return f"bias:{description_text(fitting_biases(config, self.description))}"

    def changed(self, model: Any, prompt: Prompt | None) -> AbstractContextManager[None]:
        return bias(model, self.description)

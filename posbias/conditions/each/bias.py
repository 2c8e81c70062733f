"""Adds a position bias to the model's logits: a description in JSON, or a .yaml file with a position_bias."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from posbias import errors
from posbias.conditions import FIELD, ChangedRun
from posbias.measure.biases import read_bias
from posbias.models.biases import added_biases as bias
from posbias.models.biases import fitting_biases
from posbias.prompts import Prompt

__all__ = ["Condition", "bias"]


class Condition(ChangedRun):
    """Add a bias."""

    changes = "model"
    needs = "a model in this process, of a family with a row"
    cost = "nothing"

    def __init__(self, argument: str) -> None:
        if not argument:
            raise errors.invalid(f"{FIELD} bias", "a description in JSON, or a .yaml file, behind a colon", "none")
        self.description = read_bias(argument)

    def check(self, config: Any) -> None:
        """Raise ValueError for a bias that the model cannot have."""
        fitting_biases(config, self.description)

    def changed(self, model: Any, prompt: Prompt) -> AbstractContextManager[None]:
        """Add the bias."""
        return bias(model, self.description)

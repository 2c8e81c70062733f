"""Sets the first token's value to zero, in all layers or in given ones: heads that rest there add nothing."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posbias import errors
from posbias.conditions import FIELD, ChangedRun, arguments
from posbias.models.biases import held
from posbias.models.families import Family, family_of, text_config
from posbias.models.hooks import After, Before, hooked
from posbias.prompts import Prompt


@contextmanager
def sink_off(model: nn.Module, layers: Sequence[int] | None = None) -> Iterator[None]:
    """Set the value of a prompt's first token to zero in layers, all unless given, until the block ends."""
    family = family_of(model.config)
    check_values(family)
    modules = [family.attention_of(layer) for layer in family.layers(model)]
    check_layers(layers, len(modules))
    before: list[tuple[nn.Module, Before]] = []
    after: list[tuple[nn.Module, After]] = []
    for t in range(len(modules)) if layers is None else layers:
        silent = _Silent(family, modules[t])
        before.append((modules[t], silent.enter))
        after.append((silent.projection, silent.leave))
    with hooked(before, after):
        yield


def check_values(family: Family) -> None:
    """Raise ValueError for a family whose values are made of a vector that keys share."""
    if family.latent is not None:
        raise errors.invalid("model", "a family with a projection of values", f"{family.name}, whose values are latent")


def check_layers(layers: Sequence[int] | None, T: int) -> None:
    """Raise ValueError for a layer that is not there."""
    if missing := [t for t in layers or () if not 0 <= t < T]:
        raise errors.invalid(f"{FIELD}: layers", f"layers from 0 to {T - 1}", missing[0])


class _Silent:
    """Silence the first token in one layer, where it is not in a cache already."""

    def __init__(self, family: Family, attention: nn.Module) -> None:
        self.family, self.attention = family, attention
        self.which = len(family.projections) - 1
        self.projection = family.projections_of(attention)[self.which]
        self.is_first = True

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """See whether the first token is among those that are read."""
        self.is_first = held(module, kwargs) == 0

    def leave(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """Return the projection with the first token's value set to zero."""
        if not self.is_first:
            return output
        columns = self.family.columns(self.attention, self.which, output.shape[-1])
        values = torch.from_numpy(np.flatnonzero(columns == "v")).to(output.device)
        silenced = output.clone()
        silenced[:, 0, values] = 0
        return silenced


def read_layers(text: str) -> list[int]:
    """Return layers such as 3+5."""
    return [int(one) for one in text.split("+")]


class Condition(ChangedRun):
    changes = "model"
    needs = "a model in this process, of a family with a row; layers=3+5 for some layers"
    cost = "nothing"

    def __init__(self, argument: str) -> None:
        self.layers = arguments(argument, layers=read_layers).get("layers")

    def check(self, config: Any) -> None:
        check_values(family_of(config))
        check_layers(self.layers, int(text_config(config).num_hidden_layers))

    def changed(self, model: Any, prompt: Prompt | None) -> AbstractContextManager[None]:
        return sink_off(model, self.layers)

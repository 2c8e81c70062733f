"""Quantities with a file of their own here: what each keeps in a file, and how it reads the prompts of a batch.

The name of the file is that of the quantity, its first line what it means. It has a class ``Quantity``, made for a
measurement in which the quantity is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from posbias.measure.instrument import Instrument
from posbias.models.mixers import Seen
from posbias.settings import OWN_FILE

if TYPE_CHECKING:
    from posbias.measure.traces import Traces

Variables = dict[str, tuple[tuple[str, ...], str]]
"""Name → dimensions and meaning; where the first one is ``prompt``, :meth:`Quantity.read` gives the rows."""


class Quantity:
    """Read a quantity of all prompts; a kind of it has ``variables`` and ``read``, and what else it needs."""

    variables: ClassVar[Variables]

    def __init__(self, traces: Traces) -> None:
        self.traces, self.instrument = traces, traces.instrument
        self.sums: dict[str, Tensor] = {}  # over prompts
        sizes = {"prompt": len(traces.ids), "position": traces.settings.length}
        shapes = {name: [*map(sizes.get, dims)] for name, (dims, _) in self.variables.items() if dims[0] == "prompt"}
        self.rows = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}  # type: ignore[arg-type]

    @staticmethod
    def lacking(instrument: Instrument) -> str | None:
        """Return why a model has none, None if it has."""
        return None

    def start(self, ids: Int[Tensor, "B n"]) -> None:
        """Be ready for prompts."""

    def observe(self, seen: Seen) -> None:
        """Look at a layer's mixing of these prompts, from the last layer to the first."""

    def read(self, batch: slice, ids: Int[Tensor, "B n"]) -> dict[str, Tensor]:
        """Return the rows of these prompts, which are those of ``batch``, when all layers were seen."""
        raise NotImplementedError

    def arrays(self, prompts: int) -> dict[str, np.ndarray]:
        """Return what there is of all prompts beside the rows."""
        return {}


def kinds_of(names: Iterable[str]) -> dict[str, Any]:
    """Return the classes of those of these quantities that have a file here, by name."""
    return {name: import_module(f"{__name__}.{name}").Quantity for name in names if name in OWN_FILE}

"""Mixers: what in a layer carries something from one token to another, whatever it computes it with.

A layer adds to token i a sum of parts T_ij, one for each token j up to i, and biases, which are nobody's. A mixer gives
them, a few queries at a time, from what the layer is given and from weights. Whether they add up to what the layer adds
is compared at every measurement (:mod:`posbias.measure.check`). Each kind has a file here, with a class ``Mixer`` that
is made of a family's row, which names the file, and a layer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from posbias.models.families import Family
from posbias.models.weights import is_coded, projection_bias, projection_weight


class Parts(Protocol):
    """What a layer adds to the tokens of one prompt; keys are those up to the last of the queries, in 32 bits."""

    def parts(self, queries: slice) -> Float[Tensor, "k q d"]:
        """Return T_ij for queries i and keys j: what query i is given of key j."""

    def biases(self, queries: slice) -> Float[Tensor, "q d"]:
        """Return what queries are given that is no token's part."""

    def weights(self, queries: slice) -> Float[Tensor, "H q k"] | None:
        """Return the weights of the heads' values, signed where they may be; None of a mixer without heads."""


class Seen(Protocol):
    """What was seen of a layer while it ran, which is enough for its parts."""

    @property
    def layer(self) -> int:
        """Number of the layer, from 0."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Prompts, heads and tokens."""

    @property
    def mixing(self) -> Float[Tensor, "B"] | None:
        """λ of each prompt; None in a forward pass alone."""

    @property
    def stream(self) -> Float[Tensor, "B n d"] | None:
        """x_t, what the parts are added to; None in a forward pass alone."""

    def visible(self, queries: slice) -> Bool[Tensor, "q k"]:
        """Return the keys that queries may see, up to the last of them."""


class Mixer(Protocol):
    """What mixes the tokens in one layer."""

    def lacking(self) -> str | None:
        """Return why its parts cannot be read, None if they can."""

    def prompts(self, seen: Any) -> Iterator[Parts]:
        """Yield what it adds to each prompt of a batch; ``seen`` is a :class:`Seen` of its kind."""


@dataclass(frozen=True)
class Given:
    """Hold what a module was given that mixes without attention; valid in the layer."""

    layer: int
    input: Float[Tensor, "B n d"]
    mixing: Float[Tensor, "B"] | None = None
    stream: Float[Tensor, "B n d"] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Prompts, no heads of attention, and tokens."""
        return len(self.input), 0, self.input.shape[1]

    def visible(self, queries: slice) -> Bool[Tensor, "q k"]:
        """Return the keys that queries may see, up to the last of them: all up to each query."""
        places = torch.arange(queries.stop, device=self.input.device)
        return places[queries, None] >= places


class ModuleMixer:
    """Be a mixer that is a module of its own, with a convolution and an output projection."""

    convolution = "conv1d"
    """Name of the convolution in the module."""

    def __init__(self, family: Family, layer: nn.Module) -> None:
        self.module: Any = family.mixer_of(layer)
        self.times = family.multiplier(layer)

    def lacking(self) -> str | None:
        return coded(getattr(self.module, self.convolution), self.module.out_proj)

    def projection(self) -> tuple[Float[Tensor, "d c"], Float[Tensor, "d"]]:
        """Return the weight of the output projection and its bias, as they reach the stream."""
        out = self.module.out_proj
        return projection_weight(out) * self.times, projection_bias(out) * self.times


def mixer_of(family: Family, layer: nn.Module) -> Mixer:
    """Return the mixer of a layer."""
    kind = import_module(f"{__name__}.{family.kind_of(layer)}")
    return kind.Mixer(family, layer)  # type: ignore[no-any-return]


def coded(*modules: nn.Module, of: str = "") -> str | None:
    """Return that weights ``of`` something, one of these modules, cannot be read as matrices; None if they can."""
    names = (type(x).__name__ for x in modules if is_coded(x._parameters.get("weight")))
    name = next(names, None)
    return None if name is None else f"{of}weights that are codes, or have adapters beside them ({name})"

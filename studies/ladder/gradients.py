"""The gradient on its way down the residual stream: how large it is at every layer, and which way it took.

A layer takes x_t, adds the attention's a_t, and goes on. On its way back the gradient by x_t has a part that came
through the attention, and a part that went around it: :func:`read_streams`. The MLP belongs to the stream here, as in
the theory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias.measure.instrument import Instrument
from posbias.models.hooks import given, hooked, regiven, returned
from posbias.models.watch import SOFTMAX


@dataclass(frozen=True)
class StreamReading:
    """Hold sizes of gradients along the stream of each prompt."""

    influence: Float[Tensor, "B n"]  # ‖∂p/∂e‖, e the input embedding
    entering: Float[Tensor, "depths B n"]  # ‖∂p/∂x_t‖, x_t what enters layer t; the last one leaves the last layer
    branch: Float[Tensor, "T B n"]  # the part of ∂p/∂x_t that came through the attention
    around: Float[Tensor, "T B n"]  # the rest


@dataclass
class Kept:
    """What the hooks keep of a forward pass, with its graph."""

    streams: list[Tensor] = field(default_factory=list)  # x_0 … x_T
    given: list[Tensor] = field(default_factory=list)  # what each attention module would be given
    taken: list[Tensor] = field(default_factory=list)  # the same under another name, used by the attention alone


@contextmanager
def kept_streams(instrument: Instrument) -> Iterator[Kept]:
    """Keep the streams and the attention's inputs of a forward pass; outputs do not change."""
    kept = Kept()

    def layer_in(module: nn.Module, args: Any, kwargs: Any) -> None:
        kept.streams.append(given(args, kwargs))

    def layer_out(module: nn.Module, args: Any, output: Any) -> None:
        kept.streams.append(returned(output))

    def attention_in(module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = given(args, kwargs)
        kept.given.append(x)
        kept.taken.append(x.view_as(x))
        return regiven(args, kwargs, kept.taken[-1])

    layers = instrument.layers
    before = [*((x, layer_in) for x in layers), *((x, attention_in) for x in instrument.attentions)]
    with hooked(before, [(layers[-1], layer_out)]):
        yield kept


class fixed_weights(TorchFunctionMode):  # noqa: N801 - a context, as no_grad is
    """Take what softmax gives out of differentiation: attention weights count as constants, as in a rollout."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``."""
        out = func(*args, **(kwargs or {}))
        return out.detach() if func in SOFTMAX else out


def read_streams(instrument: Instrument, ids: Int[Tensor, "B n"], *, values_only: bool = False) -> StreamReading:
    """Return the sizes of the gradient of p(most likely next token) at every layer."""
    T = instrument.T
    e = instrument.embeddings(ids).requires_grad_(True)
    with torch.enable_grad(), kept_streams(instrument) as kept:
        with fixed_weights() if values_only else nullcontext():
            logits = instrument.logits(e)
        p = logits.softmax(-1).amax(-1).sum()
        gradients = torch.autograd.grad(p, [e, *kept.streams, *kept.taken], retain_graph=True)
        by_stream, by_taken = gradients[1 : T + 2], gradients[T + 2 :]
        through = [
            torch.autograd.grad(given, x, back, retain_graph=True)[0]
            for given, x, back in zip(kept.given, kept.streams[:-1], by_taken, strict=True)
        ]
    return StreamReading(
        influence=_sizes([gradients[0]])[0],
        entering=_sizes(by_stream),
        branch=_sizes(through),
        around=_sizes([by_stream[t] - through[t] for t in range(T)]),
    )


def _sizes(vectors: Iterable[Tensor]) -> Tensor:
    """Return the lengths of vectors along the last axis, in 64 bits, stacked."""
    return torch.stack([v.detach().double().norm(dim=-1).cpu() for v in vectors])

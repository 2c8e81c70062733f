"""The ladder: a batch's gradient carried back through layers that are simpler, one hypothesis at a time.

The exact gradient goes through J_t(s)ᵀ, the Jacobian of layer t on prompt s. On each rung the layer that a gradient
goes through is another prompt's (:func:`ring`), and from rung to rung less of it is kept; see
:data:`~posbias.settings.RUNGS`. Layers run on the inputs that the way forward has kept.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.models.attention import Reading, blocks, softmax
from posbias.settings import RUNGS

Weights = Callable[[], Iterator[tuple[slice, Tensor]]]
"""Yields queries and their weights, (H, q, k) with the keys up to the last of them."""


@dataclass(frozen=True)
class Rungs:
    """Say how a batch climbs the ladder."""

    pairings: Int[np.ndarray, "P B"]
    """Which prompt's gradient each prompt takes over in every layer; its own where nothing is to be independent."""
    kernels: Float[Tensor, "T H n n"] | None = None
    """What stands for attention on the rung ``positions``; softmax of the position bias where allowed, unless given."""
    names: tuple[str, ...] = tuple(RUNGS)
    """The rungs that are climbed."""
    turns: Float[Tensor, "depths d d"] | None = None
    """What each position's gradient by x_0 … x_T is multiplied by, from the right; nothing if None."""
    changed: Callable[[int], AbstractContextManager[None]] = lambda t: nullcontext()
    """What else is changed while layer t runs with attention that is replaced."""


def ring(prompts: int, seed: tuple[int, ...]) -> Int[np.ndarray, "B"]:
    """Return a random pairing of a batch: in one ring of all prompts, each takes over from the one before it.

    From layer to layer a gradient comes to a prompt where it has not been, until it has been to all.

    >>> ring(4, (0, 0)).tolist()
    [2, 0, 3, 1]
    """
    order = np.random.default_rng(seed).permutation(prompts)
    taken = np.empty(prompts, dtype=np.int64)
    taken[order] = np.roll(order, 1)
    return taken


class Climb:
    """Carry the gradients of all rungs and pairings of one batch."""

    def __init__(self, rungs: Rungs, top: Float[Tensor, "B n d"]) -> None:
        self.pairings = [torch.from_numpy(row) for row in rungs.pairings]
        self.gradients = {rung: [top] * len(self.pairings) for rung in rungs.names}
        self.turns, self.changed = rungs.turns, rungs.changed

    def turn(self, t: int) -> None:
        """Turn the gradients by x_t as the rungs say."""
        if self.turns is not None:
            for rung, gradients in self.gradients.items():
                self.gradients[rung] = [g @ self.turns[t].to(g) for g in gradients]

    def back(self, rung: str, y: Tensor, x: Tensor) -> None:
        """Take a rung's gradients by ``y`` to those by ``x``; what autograd keeps of ``y`` stays."""
        for k, pairing in enumerate(self.pairings):
            g = self.gradients[rung][k]
            paired = g[pairing.to(g.device)].to(y.device)
            (self.gradients[rung][k],) = torch.autograd.grad(y, x, paired, retain_graph=True)

    def end(self, entered: Tensor, x: Tensor) -> None:
        """Take the gradients of all rungs to the embeddings ``x``, which the first layer is given as ``entered``."""
        self.turn(0)
        for rung in self.gradients:
            self.back(rung, entered, x)

    def norms(self) -> Float[Tensor, "B rungs P n"]:
        """Return the norms of the gradients at each token."""
        found = [torch.stack(list(map(_norms, gradients)), dim=1) for gradients in self.gradients.values()]
        return torch.stack(found, dim=1)


def mean_weights(reading: Reading) -> Weights:
    """Return the mean over prompts of a layer's attention, by blocks of queries."""

    def weights() -> Iterator[tuple[slice, Tensor]]:
        for queries, parts in groupby(blocks(reading, reading.query.device), key=lambda part: part[1]):
            found = [reading.block(prompts, queries, content=False)[1] for prompts, _ in parts]
            yield queries, sum(p.sum(0) for p in found if p is not None) / reading.shape[0]  # type: ignore[misc]

    return weights


def position_weights(reading: Reading) -> Weights:
    """Return the softmax of the position bias alone, by blocks of queries; sinks keep their logits."""
    H = reading.shape[1]

    def weights() -> Iterator[tuple[slice, Tensor]]:
        for queries, _ in groupby(blocks(reading, reading.query.device), key=lambda part: part[1]):
            seen, bias = reading.visible(queries), reading.added(queries)
            free = torch.zeros(H, *seen.shape, device=seen.device) + (0.0 if bias is None else bias)
            yield queries, softmax(free.masked_fill(~seen, -torch.inf), reading.sinks)

    return weights


def given_weights(kernels: Float[Tensor, "H n n"]) -> Weights:
    """Return kernels as one block."""
    return lambda: iter([(slice(0, kernels.shape[-1]), kernels)])


class WeighedValues(torch.autograd.Function):
    """Take averages of values with weights that are made when they are needed, and once more on the way back."""

    @staticmethod
    def forward(ctx: Any, value: Float[Tensor, "B H n D"], weights: Weights) -> Float[Tensor, "B H n D"]:  # type: ignore[override]
        """Return the averages."""
        if value.shape[2] <= value.shape[0] * value.shape[3]:  # n² a head, and B n D
            kept = list(weights())
            weights = lambda: iter(kept)  # noqa: E731 - as given_weights does
        ctx.weights = weights
        out = torch.empty_like(value)
        for queries, w in weights():
            out[:, :, queries] = w.to(value) @ value[:, :, : queries.stop]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, "B H n D"]) -> tuple[Tensor, None]:  # type: ignore[override]
        """Return the gradient by the values."""
        out = torch.zeros_like(grad)
        for queries, w in ctx.weights():
            out[:, :, : queries.stop] += w.to(grad).mT @ grad[:, :, queries]
        return out, None


def _norms(g: Tensor) -> Float[Tensor, "B n"]:
    return g.to(torch.promote_types(g.dtype, torch.float32)).norm(dim=-1).double().cpu()

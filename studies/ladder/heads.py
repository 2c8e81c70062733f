"""Head averages in which a head counts by what it moves: attention weights times sizes of values.

A head that looks at a token and takes a small value from it moves little. Three weights for query i and key j, each
then normalised over the keys: Σ_h A^h_ij ‖v^h_j‖ (values), Σ_h A^h_ij ‖W^h v^h_j‖ (after the output projection) and
‖Σ_h A^h_ij W^h v^h_j‖ (heads added as vectors, the norm of Kobayashi et al. 2020 without the bias).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias.measure.instrument import SOFTMAX, Instrument
from posbias.networks.families import output_projection
from posbias.networks.hooks import hooked

WEIGHTINGS = ("uniform", "values", "projected", "vectors")
"""Plain head average, and the three weighted ones."""

PRODUCTS = {torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__}


@dataclass(frozen=True)
class ValueReading:
    """Hold what one layer's heads average, valid until the layer ends."""

    layer: int  # 0-based
    weights: Float[Tensor, "B H n n"]  # A, after the softmax
    values: Float[Tensor, "B H n D_h"]  # v, as every query head sees them
    projected: Float[Tensor, "B H n D"]  # W^h v^h_j, each head's share of the output projection, without its bias

    def kernels(self) -> Float[Tensor, "weightings B n n"]:
        """Return each prompt's kernels in the order of :data:`WEIGHTINGS`; rows sum to 1."""
        A = self.weights.float()
        projected = self.projected.float().movedim(1, 2)
        gram = projected @ projected.mT  # (B, n, H, H): ‖Σ_h A^h_ij w^h_j‖² is a form in the H weights of i and j
        by_key = A.permute(0, 3, 2, 1)
        squares = ((by_key @ gram) * by_key).sum(-1).mT
        moved = [
            A.mean(1),
            torch.einsum("bhij,bhj->bij", A, self.values.float().norm(dim=-1)),
            torch.einsum("bhij,bhj->bij", A, self.projected.float().norm(dim=-1)),
            squares.clamp_min(0).sqrt(),
        ]
        return torch.stack([x / x.sum(-1, keepdim=True) for x in (y.double() for y in moved)])


def read_values(instrument: Instrument, ids: Int[Tensor, "B n"], observe: Callable[[ValueReading], None]) -> None:
    """Run a forward pass, handing each layer's weights and values to ``observe``, in order.

    Raises RuntimeError if not every layer multiplied what its softmax gave by values.
    """
    watch = _Values(instrument, len(ids), observe)
    before = [(attention, watch.enter(t)) for t, attention in enumerate(instrument.attentions)]
    after = [(attention, watch.leave) for attention in instrument.attentions]
    with hooked(before, after), watch:
        instrument.forward(ids, lambda reading: None)
    if watch.seen != list(range(instrument.T)):
        raise RuntimeError(f"expected values in each of {instrument.T} layers, received layers {watch.seen}")


class _Values(TorchFunctionMode):
    """Watch for the first product after a softmax inside an attention module."""

    def __init__(self, instrument: Instrument, B: int, observe: Callable[[ValueReading], None]) -> None:
        super().__init__()
        self.B, self.H, self.observe = B, instrument.H, observe
        self.projections = [output_projection(attention) for attention in instrument.attentions]
        self.working: int | None = None
        self.weighted = False
        self.seen: list[int] = []

    def enter(self, t: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.working, self.weighted = t, False

        return hook

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self.working = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.working is not None:
            if func in SOFTMAX:
                self.weighted = True
            elif func in PRODUCTS and self.weighted:
                self.weighted = False
                self._read(self.working, args[0], args[1])
        return out

    def _read(self, t: int, weights: Tensor, values: Tensor) -> None:
        n = weights.shape[-1]
        A, v = weights.reshape(self.B, self.H, n, n), values.reshape(self.B, -1, n, values.shape[-1])
        v = v.expand(self.B, self.H, n, v.shape[-1])
        self.seen.append(t)
        W = _head_matrices(self.projections[t], self.H)
        self.observe(ValueReading(t, A, v, torch.einsum("hed,bhnd->bhne", W, v)))


def _head_matrices(projection: Any, H: int) -> Float[Tensor, "H D D_h"]:
    """Return each head's columns of the output projection; GPT-2 keeps the matrix transposed."""
    W = projection.weight if isinstance(projection, nn.Linear) else projection.weight.T
    return W.detach().unflatten(1, (H, -1)).movedim(1, 0)

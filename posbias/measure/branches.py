"""What the law at birth needs of a network: gains of attention branches, denominators, and the Gram factors of steps.

Gains come from weights alone, denominators from forward passes. A step, what a layer does after its attention, is
differentiated with the attention's output held fixed: what a random gradient becomes on its way back through it, at
every position, gives the Gram matrix of the step's derivatives whatever the MLP, its norms and its gates are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.measure.instrument import Instrument
from posbias.measure.normalisation import centres, denominators, is_norm
from posbias.measure.offload import present
from posbias.networks.families import output_projection
from posbias.networks.hooks import After, Before, given, hooked, regiven, rereturned, returned
from posbias.rollout.token_bins import TokenBins, token_bins

MOST_PROMPTS = 16
"""Prompts that are read: a mean over positions and prompts needs no more."""


@dataclass(frozen=True)
class Branches:
    """Hold what the law of untrained networks needs beside kernels, under the names that files have."""

    branch_gain: Float[np.ndarray, "T H"]
    """c_{t,h} = ‖W_O W_V Γ‖_F/√d of each head, with what the norms around the attention multiply by."""
    branch_scale: Float[np.ndarray, "T n"]
    """Root mean square over prompts of 1/σ_j, σ the denominator of the norm before attention."""
    output_scale: Float[np.ndarray, "T n"]
    """The same of the norm after attention at the query, 1 where there is none."""
    step_gain: Float[np.ndarray, "T cells cells"]
    """K[j, j'], the mean over prompts of tr(J_j J_j'ᵀ)/d, J the Jacobian of the step without its skip; beyond the
    number of cells its mean over the pairs of different tokens in a pair of cells, with ``step_size``."""
    step_size: Float[np.ndarray, "T n"] | None
    """K[j, j]; None where ``step_gain`` has it."""
    parallel: Int[np.ndarray, "T"]
    """1 where the step reads what the attention reads, else 0."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by the names that files have."""
        found = dict(vars(self))
        size = found.pop("step_size")
        if size is not None:
            found |= {"step_gain_cells": found.pop("step_gain"), "step_gain_diagonal": size}
        return found


def has_branches(instrument: Instrument) -> bool:
    """Tell whether a model's layers are sums of a skip and branches: not where a norm acts on the sum."""
    return not any(
        getattr(layer, "apply_residual_connection_post_layernorm", False)  # BLOOM's; Falcon's layers ignore the setting
        or not getattr(layer, "do_layer_norm_before", True)
        for layer in instrument.layers
    )


def read_branches(instrument: Instrument, ids: Int[Tensor, "N n"], cells: TokenBins | None = None) -> Branches:
    """Return what a model's branches do to random gradients, read on its first prompts.

    Source: ours; the chapter on the law at birth. Random gradients are drawn from a fixed seed.
    """
    ids = ids[:MOST_PROMPTS]
    (N, n), T = ids.shape, instrument.T
    generator = torch.Generator().manual_seed(0)
    cells = token_bins(n, n) if cells is None else cells
    reading = _Reading(instrument, cells)
    for prompt in ids:
        reading.add(prompt[None], generator)
    parallel = instrument.family.is_parallel(instrument.model.config)
    return Branches(
        branch_gain=np.stack([branch_gains(instrument, t) for t in range(T)]),
        branch_scale=(reading.inputs / N).sqrt().numpy(),
        output_scale=(reading.outputs / N).sqrt().numpy() if reading.has_outputs else np.ones((T, n)),
        step_gain=(reading.steps / N).numpy(),
        step_size=(reading.sizes / N).numpy() if len(cells.starts) < n else None,
        parallel=np.full(T, int(parallel)),
    )


def branch_gains(instrument: Instrument, t: int) -> Float[np.ndarray, "H"]:
    """Return ‖W_O W_V Γ‖_F/√d for each head of layer ``t``, read from its weights.

    Γ is what the norm before the attention multiplies by; a norm after it multiplies W_O likewise.
    """
    W_O, W_V = head_maps(instrument, t)
    squares = ((W_O.mT @ W_O) * (W_V @ W_V.mT)).sum((-2, -1))  # tr W_O W_V W_Vᵀ W_Oᵀ
    return np.asarray((squares / W_V.shape[-1]).sqrt().double().cpu().numpy())


def head_maps(instrument: Instrument, t: int) -> tuple[Float[Tensor, "H d size"], Float[Tensor, "H size d"]]:
    """Return W_O and W_V Γ of each head of layer ``t``; their product is its value-output map."""
    family, layer, attention = instrument.family, instrument.layers[t], instrument.attentions[t]
    values = []
    for k, projection in enumerate(family.projections_of(attention)):
        weight = _weight(projection)
        values.append(weight[torch.from_numpy(family.columns(attention, k, len(weight)) == "v").to(weight.device)])
    W_O, W_V = _weight(output_projection(attention)), torch.cat(values)
    d, H = len(W_O), instrument.H
    size = W_O.shape[1] // H
    W_V = (W_V * _multiplier(family.norm_of(layer), W_V)).view(-1, size, d)
    W_V = W_V.repeat_interleave(H // len(W_V), dim=0)  # heads that share values
    output = family.output_of(layer)
    if is_norm(output):
        W_O = W_O * _multiplier(output, W_O.mT)[:, None]
    return W_O.reshape(d, H, size).permute(1, 0, 2), W_V


class _Reading:
    """Sums over prompts of squared scales and of Gram factors, filled by one forward pass a prompt.

    Every layer is entered with a detached state and its attention's output is detached, so that what autograd keeps is
    one step at a time.
    """

    def __init__(self, instrument: Instrument, cells: TokenBins) -> None:
        T, n, g = instrument.T, cells.n, len(cells.starts)
        self.instrument, self.cells = instrument, cells
        self.inputs, self.outputs, self.sizes = torch.zeros(3, T, n, dtype=torch.float64)
        self.steps = torch.zeros(T, g, g, dtype=torch.float64)
        self.has_outputs = all(is_norm(instrument.family.output_of(layer)) for layer in instrument.layers)

    def add(self, ids: Int[Tensor, "1 n"], generator: torch.Generator) -> None:
        """Add a prompt."""
        family, layers = self.instrument.family, self.instrument.layers
        before: list[tuple[nn.Module, Before]] = []
        after: list[tuple[nn.Module, After]] = []
        for t, layer in enumerate(layers):
            entered: list[Tensor] = []
            before.append((layer, _entering(entered)))
            after.append((family.norm_of(layer), _scaling(self.inputs[t])))
            if self.has_outputs:
                after.append((family.output_of(layer), _scaling(self.outputs[t])))
            after += [(family.output_of(layer), _detached), (layer, self._leaving(entered, t, generator))]
        with torch.enable_grad(), hooked(before, after):
            self.instrument.logits(self.instrument.embeddings(ids))

    def _leaving(self, entered: list[Tensor], t: int, generator: torch.Generator) -> After:
        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            y = returned(output)
            g = torch.randn(y.shape[-1], generator=generator).to(y)
            (back,) = torch.autograd.grad(y, entered.pop(), g.expand_as(y))
            change = (back - g)[0].to(torch.promote_types(y.dtype, torch.float32)) / g.float().norm()
            self.sizes[t] += change.square().sum(-1).double().cpu()
            self.steps[t] += self._gram(change).double().cpu()
            return rereturned(output, y.detach())

        return hook

    def _gram(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "cells cells"]:
        """Return the products of all pairs of tokens, or their means over the pairs of different tokens in cells."""
        if len(self.cells.starts) == self.cells.n:
            return x @ x.mT
        index, sizes = (torch.from_numpy(y).to(x.device) for y in (self.cells.index, self.cells.sizes))
        total = x.new_zeros(len(sizes), x.shape[-1]).index_add_(0, index, x)
        own = x.new_zeros(len(sizes)).index_add_(0, index, x.square().sum(-1))
        pairs = sizes[:, None] * sizes - sizes.diag()
        return (total @ total.mT - own.diag()) / pairs.clamp_min(1)


def _entering(entered: list[Tensor]) -> Before:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
        entered[:] = [given(args, kwargs).detach().requires_grad_(True)]
        return regiven(args, kwargs, entered[0])

    return hook


def _scaling(total: Float[Tensor, "n"]) -> After:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        with torch.no_grad():
            total.add_(denominators(module, args[0])[0, :, 0].double().cpu() ** -2)

    return hook


def _detached(module: nn.Module, args: Any, output: Any) -> Any:
    return rereturned(output, returned(output).detach())


def _weight(projection: Any) -> Float[Tensor, "out in"]:
    """Return a projection's weight in 32 bits, a row for each output."""
    with present(projection):
        weight: Tensor = projection.weight.detach().float()
    return weight.mT if type(projection).__name__ == "Conv1D" else weight


def _multiplier(norm: nn.Module, W: Float[Tensor, "size d"]) -> Float[Tensor, "d"]:
    """Return what a norm multiplies each feature of W by: a LayerNorm's weights; those of RMSNorm may lack 1."""
    if norm.weight is None:  # Galactica's norms have none
        return torch.ones(W.shape[-1], device=W.device)
    with present(norm):
        weight: Any = norm.weight
        if centres(norm):
            return weight.detach().float()  # type: ignore[no-any-return]
        ones = torch.ones_like(weight)
    with torch.no_grad():
        return norm(ones).float()  # type: ignore[no-any-return]

"""What the law of untrained networks needs: gains of attention branches, denominators, Gram factors of steps.

Gains come from weights alone, denominators from forward passes. A step, what a layer does after its attention, is
differentiated with the attention's output held fixed: what a random gradient becomes on its way back through it, at
every position, gives the Gram matrix of the step's derivatives whatever the MLP, its norms and its gates are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.measure.instrument import Instrument
from posbias.models.families import Family, output_projection
from posbias.models.hooks import After, Before, given, hooked, regiven, rereturned, returned
from posbias.models.mixers import coded
from posbias.models.norms import denominators, is_norm, multiplier
from posbias.models.weights import output_weight, projection_weight

MOST_PROMPTS = 16
"""Prompts that are read: a mean over positions and prompts needs no more."""


@dataclass(frozen=True)
class Branches:
    """Hold what the law needs beside kernels, as :data:`~posbias.measure.results.VARIABLES` says."""

    branch_gain: Float[np.ndarray, "T H"]
    branch_scale: Float[np.ndarray, "T n"]  # times that of a norm on the way to the values
    output_scale: Float[np.ndarray, "T n"]
    step_gain: Float[np.ndarray, "T n n"]
    parallel: Int[np.ndarray, "T"]


def no_branches(instrument: Instrument) -> str | None:
    """Return why a model's layers are no sums of a skip and linear branches, None if they are."""
    if any(
        getattr(layer, "apply_residual_connection_post_layernorm", False)  # BLOOM's; Falcon's layers ignore the setting
        or not getattr(layer, "do_layer_norm_before", True)
        for layer in instrument.layers
    ):
        return "a norm on the residual sum"
    clips = getattr(instrument.model.config, "clip_qkv", None) is not None  # OLMo's, OLMoE's
    if clips:
        return "values that are clipped"
    latent, read = instrument.family.latent, [output_projection(one) for one in instrument.attentions]
    for one in instrument.attentions:
        read += instrument.family.projections_of(one) if latent is None else map(one.get_submodule, latent[1:])
    return coded(*read, of="attention ")


def read_branches(instrument: Instrument, ids: Int[Tensor, "N n"]) -> Branches:
    """Return what a model's branches do to random gradients of a fixed seed, read on its first prompts."""
    ids = ids[:MOST_PROMPTS]
    (N, n), T = ids.shape, instrument.T
    generator = torch.Generator().manual_seed(0)
    reading = _Reading(instrument, n)
    for prompt in ids:
        reading.add(prompt[None], generator)
    parallel = instrument.family.is_parallel(instrument.model.config)
    return Branches(
        branch_gain=np.stack([branch_gains(instrument, t) for t in range(T)]),
        branch_scale=(reading.inputs / N).sqrt().numpy() if reading.has_inputs else np.ones((T, n)),
        output_scale=(reading.outputs / N).sqrt().numpy() if reading.has_outputs else np.ones((T, n)),
        step_gain=(reading.steps / N).numpy(),
        parallel=np.full(T, int(parallel)),
    )


def branch_gains(instrument: Instrument, t: int) -> Float[np.ndarray, "H"]:
    """Return ‖W_O W_V Γ‖_F/√d for each head of layer ``t``, read from its weights.

    Γ is what the norm before the attention multiplies by; a norm after it, or a number, multiplies W_O likewise.
    """
    W_O, W_V = head_maps(instrument, t)
    squares = ((W_O.mT @ W_O) * (W_V @ W_V.mT)).sum((-2, -1))  # tr W_O W_V W_Vᵀ W_Oᵀ
    return np.asarray((squares / W_V.shape[-1]).sqrt().double().cpu().numpy())


def head_maps(instrument: Instrument, t: int) -> tuple[Float[Tensor, "H d size"], Float[Tensor, "H size d"]]:
    """Return W_O and W_V Γ of each head of layer ``t``; their product is its value-output map.

    A norm between two factors of W_V is taken for what it multiplies by; its division is a scale.
    """
    family, layer, attention = instrument.family, instrument.layers[t], instrument.attentions[t]
    W_O, H = output_weight(attention), instrument.H
    d, size = len(W_O), W_O.shape[1] // H
    W_V = _values(family, attention, size)
    if family.norm:
        W_V = W_V * multiplier(family.norm_of(layer), W_V)
    W_V = W_V.view(-1, size, d)
    W_V = W_V.repeat_interleave(H // len(W_V), dim=0)  # heads that share values
    output = family.output_of(layer)
    if is_norm(output):
        W_O = W_O * multiplier(output, W_O.mT)[:, None]
    W_O = W_O * family.multiplier(layer)
    return W_O.reshape(d, H, size).permute(1, 0, 2), W_V


def _values(family: Family, attention: nn.Module, size: int) -> Float[Tensor, "values d"]:
    """Return the map from the attention module's input to its values, ``size`` of them for each head in turn."""
    if family.latent is not None:
        norm, into, out_of = map(attention.get_submodule, family.latent)
        up = projection_weight(out_of)
        rank = up.shape[-1]
        each = up.view(-1, int(attention.qk_nope_head_dim) + size, rank)[:, -size:]  # type: ignore[arg-type]
        return (each.reshape(-1, rank) * multiplier(norm, up)) @ projection_weight(into)[:rank]
    values = []
    for k, projection in enumerate(family.projections_of(attention)):
        weight = projection_weight(projection)
        values.append(weight[torch.from_numpy(family.columns(attention, k, len(weight)) == "v").to(weight.device)])
    return torch.cat(values)


class _Reading:
    """Sums over prompts of squared scales and of Gram factors, filled by one forward pass a prompt.

    Every layer is entered with a detached state and its attention's output is detached, so that what autograd keeps is
    one step at a time.
    """

    def __init__(self, instrument: Instrument, n: int) -> None:
        self.instrument, T = instrument, instrument.T
        self.inputs, self.outputs = torch.zeros(2, T, n, dtype=torch.float64)
        self.steps = torch.zeros(T, n, n, dtype=torch.float64)
        self.has_inputs = bool(instrument.family.norm)
        self.has_outputs = all(is_norm(instrument.family.output_of(layer)) for layer in instrument.layers)

    def add(self, ids: Int[Tensor, "1 n"], generator: torch.Generator) -> None:
        """Add a prompt."""
        family, layers = self.instrument.family, self.instrument.layers
        before: list[tuple[nn.Module, Before]] = []
        after: list[tuple[nn.Module, After]] = []
        for t, layer in enumerate(layers):
            entered: list[Tensor] = []
            before.append((layer, _entering(entered)))
            norms = [family.norm_of(layer)] if self.has_inputs else []
            if family.latent is not None:
                norms.append(self.instrument.attentions[t].get_submodule(family.latent[0]))
            after += _scaling(norms, self.inputs[t])
            after += _scaling([family.output_of(layer)] if self.has_outputs else [], self.outputs[t])
            after += [
                (family.output_of(layer), lambda module, args, out: rereturned(out, returned(out).detach())),
                (layer, self._leaving(entered, t, generator)),
            ]
        with torch.enable_grad(), hooked(before, after):
            self.instrument.logits(self.instrument.embeddings(ids))

    def _leaving(self, entered: list[Tensor], t: int, generator: torch.Generator) -> After:
        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            y = returned(output)
            g = torch.randn(y.shape[-1], generator=generator).to(y)
            (back,) = torch.autograd.grad(y, entered.pop(), g.expand_as(y))
            change = (back - g)[0].to(torch.promote_types(y.dtype, torch.float32)) / g.float().norm()
            self.steps[t] += (change @ change.mT).double().cpu()
            return rereturned(output, y.detach())

        return hook


def _entering(entered: list[Tensor]) -> Before:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
        entered[:] = [given(args, kwargs).detach().requires_grad_(True)]
        return regiven(args, kwargs, entered[0])

    return hook


def _scaling(norms: list[nn.Module], total: Float[Tensor, "n"]) -> list[tuple[nn.Module, After]]:
    """Return hooks that add the product of 1/σ² of norms, one after another."""
    product: list[Tensor] = []

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        with torch.no_grad():
            product.append(denominators(module, args[0])[0, :, 0].double().cpu() ** -2)
        if len(product) == len(norms):
            total.add_(torch.stack(product).prod(0))
            product.clear()

    return [(norm, hook) for norm in norms]

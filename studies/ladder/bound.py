"""How loose the bound on gradients is in a model: aligned sums of operator norms, beside the gradients themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.measure.branches import head_maps
from posbias.measure.instrument import Instrument
from posbias.measure.session import Session
from posbias.models.hooks import given, hooked, regiven, rereturned, returned
from posbias.models.norms import denominators
from posbias.settings import Settings
from studies.interventions import mean, read_layers
from studies.ladder.gradients import read_streams
from studies.summaries import shave


def measure_bound(settings: Settings) -> xr.Dataset:
    """Measure the bound of each prompt and what it bounds, by what enters the first layer.

    ``bound_prompts`` (prompt, position) is the bound, ``fixed_prompts`` the gradient through values alone, which it
    holds for, and ``exact_prompts`` the gradient itself, which it need not hold for. All are relative to the size of
    the gradient above the last layer, so that it does not matter what is differentiated.
    """
    session = Session(settings)
    instrument = session.instrument
    kept: dict[str, list[np.ndarray]] = {"bound_prompts": [], "fixed_prompts": [], "exact_prompts": []}
    for _, ids in session.batches():
        exact, fixed = read_streams(instrument, ids), read_streams(instrument, ids, values_only=True)
        for s, prompt in enumerate(ids):
            top = exact.entering[-1, s]
            found = gradient_bound(instrument, prompt[None], top), fixed.entering[0, s], exact.entering[0, s]
            for name, x in zip(kept, found, strict=True):
                kept[name].append((x / top.sum()).numpy())
    return xr.Dataset(
        {name: (("prompt", "position"), shave(np.stack(rows).astype(np.float32))) for name, rows in kept.items()}
        | {"document": ("prompt", session.prompts.origins)},
        attrs=session.provenance() | {"summary": 1},
    )


def gradient_bound(instrument: Instrument, ids: Int[Tensor, "1 n"], top: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Return what bounds the gradient at each token, by what enters the first layer; attention weights held fixed.

    ``top`` has the gradient's sizes above the last layer. Going back through a layer, v becomes v S (I + Σ_h ‖M_h‖ A_h
    /σ): S holds the norms of the MLP's Jacobians with its skip, M_h a head's map, σ the denominators of the norm before
    attention. Where the MLP reads what attention reads, it is v S + Σ_h ‖M_h‖ v A_h/σ.

    Source: this project, theorem on the aligned sum as a bound.
    """
    steps, scales = _steps(instrument, ids)
    weights = read_layers(instrument, ids, mean).double().cpu()
    v, parallel = top.double(), instrument.family.is_parallel(instrument.model.config)
    for t in reversed(range(instrument.T)):
        W_O, W_V = (x.double() for x in head_maps(instrument, t))
        norms = torch.linalg.matrix_norm(W_O @ W_V, ord=2).cpu()
        through = torch.einsum("h,hij->ij", norms, weights[t]) / scales[t]
        stepped = v * steps[t]
        v = stepped + (v if parallel else stepped) @ through
    return v


def _steps(instrument: Instrument, ids: Int[Tensor, "1 n"]) -> tuple[Float[Tensor, "T n"], Float[Tensor, "T n"]]:
    """Return operator norms of each layer's Jacobian without its attention, and its norm's denominators."""
    family, entered, scales, found = instrument.family, [], [], []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        entered.append(given(args, kwargs).detach().requires_grad_(True))
        return regiven(args, kwargs, entered[-1])

    def scale(module: nn.Module, args: Any, output: Any) -> None:
        scales.append(denominators(module, args[0].detach())[0, :, 0].double().cpu())

    def detach(module: nn.Module, args: Any, output: Any) -> Any:
        return rereturned(output, returned(output).detach())

    def leave(module: nn.Module, args: Any, output: Any) -> Any:
        y = returned(output)
        d = y.shape[-1]
        each = torch.eye(d).to(y)[:, None, None].expand(d, *y.shape)
        (J,) = torch.autograd.grad(y, entered[-1], each, is_grads_batched=True)
        found.append(torch.linalg.matrix_norm(J[:, 0].permute(1, 0, 2).double(), ord=2).cpu())
        return rereturned(output, y.detach())

    layers = instrument.layers
    after = [(family.norm_of(x), scale) for x in layers] + [(family.output_of(x), detach) for x in layers]
    with torch.enable_grad(), hooked([(x, enter) for x in layers], [*after, *((x, leave) for x in layers)]):
        instrument.logits(instrument.embeddings(ids))
    return torch.stack(found), torch.stack(scales)

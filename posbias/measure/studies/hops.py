"""The input gradient split by the number of attention branches on its way: what the rollout adds up as mass.

The gradient of a decoder with respect to an input embedding is a sum over paths; each path takes, in each layer,
the residual stream or the attention branch. The MLP belongs to the stream here, as in the theory. The parts of
all paths with k branches come out of one backward pass: each prompt goes in T + 1 times, the copies pass the same
activations forward, and on its way back into an attention branch a gradient moves on from copy k to copy k + 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias.measure.instrument import Instrument
from posbias.measure.loading import DTYPES
from posbias.measure.rollouts import VARIANTS, measured_rollout
from posbias.measure.run import Settings, measured
from posbias.rollout.influence import influence_by_hops
from posbias.rollout.paths import paths_by_hops

POWERS = (1.0, 1.25, 1.5, 1.75, 2.0)
"""How paths are combined in what :func:`measure_hops` keeps."""


class _Shifted(torch.autograd.Function):
    """The identity on copies that lie one after another; the gradient of copy k comes out at copy k + 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, copies: int) -> Tensor:
        ctx.copies = copies
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        size = gradients[0].shape[0] // ctx.copies
        return torch.cat([torch.zeros_like(gradients[0][:size]), gradients[0][:-size]]), None


@contextmanager
def counted_branches(instrument: Instrument, copies: int) -> Iterator[None]:
    """Let gradients into attention branches move on by one copy; outputs do not change, hooks go at the end.

    Parameters
    ----------
    instrument
        Of the model.
    copies
        How many copies of the same prompts each batch is made of, one after another.
    """

    def shift(module: nn.Module, arguments: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (_Shifted.apply(output[0], copies), *output[1:])  # type: ignore[no-untyped-call]
        return _Shifted.apply(output, copies)  # type: ignore[no-untyped-call]

    outputs = [instrument.family.output_of(layer) for layer in instrument.layers]
    handles = [output.register_forward_hook(shift) for output in outputs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def gradient_by_hops(instrument: Instrument, ids: Int[Tensor, "B n"]) -> Float[Tensor, "hops B n D"]:
    """Return g_0 … g_T: the gradient of p(most likely next token) by input embedding, split by attention branches.

    The parts add up to the gradient; g_0 is 0 but at the last token.

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids, without padding. The memory is that of (T + 1) B prompts.
    """
    copies = instrument.T + 1
    x = instrument.embeddings(ids.repeat(copies, 1)).requires_grad_(True)
    with torch.enable_grad(), counted_branches(instrument, copies):
        logits = instrument.logits(x)[: len(ids)]
        (gradient,) = torch.autograd.grad(logits.softmax(-1).amax(-1).sum(), x)
    return gradient.unflatten(0, (copies, len(ids)))


def measure_hops(settings: Settings) -> xr.Dataset:
    """Measure a model and split both its influence and its rollouts by hops.

    Provenance is as a measurement has it.

    Parameters
    ----------
    settings
        As for :func:`~posbias.measure.run.measure`; the batch size is not used, prompts go one by one.

    Returns
    -------
    gradient_hops : hop, position
        Mean over prompts of ‖g_k‖.
    influence : position
        Mean over prompts of ‖Σ g_k‖.
    rollout_hops : variant, hop, position
        The parts of each rollout.
    kernel_paths : power, hop, position
        Paths through the measured kernels, combined as :func:`~posbias.rollout.paths.paths_by_hops` does.

    Raises
    ------
    ValueError, OSError
        As :func:`~posbias.measure.run.measure` does.
    """
    results = measured(settings)
    kernels = measured_rollout(results, "kernels")
    rollouts = [measured_rollout(results, variant) for variant in VARIANTS]
    parts = np.stack([influence_by_hops(rollout.kernels, rollout.lambda_, rollout.n) for rollout in rollouts])
    prompts = settings.cut(settings.source.load_tokenizer())
    model = settings.source.load_model(DTYPES[settings.precision()], str(settings.place()), settings.device_map)
    instrument = Instrument(model)
    sizes, total = np.zeros(parts.shape[1:]), np.zeros(settings.length)
    for ids in torch.from_numpy(prompts.ids):
        g = gradient_by_hops(instrument, ids[None])[:, 0].double()
        sizes += g.norm(dim=-1).cpu().numpy() / len(prompts.ids)
        total += g.sum(0).norm(dim=-1).cpu().numpy() / len(prompts.ids)
    return xr.Dataset(
        {
            "gradient_hops": (("hop", "position"), sizes, {"long_name": "mean over prompts of ‖g_k‖"}),
            "influence": (("position",), total, {"long_name": "mean over prompts of ‖Σ_k g_k‖"}),
            "kernel_paths": (
                ("power", "hop", "position"),
                np.stack([paths_by_hops(kernels.dense(), kernels.lambda_, power) for power in POWERS]),
                {"long_name": "(sum of w^power)^(1/power) over paths through the measured kernels"},
            ),
            "rollout_hops": (("variant", "hop", "position"), parts, {"long_name": "parts of the influence profile"}),
        },
        coords={"variant": list(VARIANTS), "power": list(POWERS)},
        attrs=results.attrs,
    )

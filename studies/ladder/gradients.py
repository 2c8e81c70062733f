"""The gradient on its way down the residual stream: how large it is at every layer, and which ways it took.

A layer takes x_t, adds the attention's a_t, and goes on; g is the gradient by a_t, that is by the stream right after
the attention. On its way back the gradient by x_t has a part that came through the attention, J_aᵀ g, and a part that
went around it: :func:`read_streams`. Without the Jacobian of the final norm, which sees one position and can only turn
the gradient, it is that of :func:`influence_past_final_norm`.

Over all layers it is a sum over paths; each path takes, in each layer, the residual stream or the attention branch. The
MLP belongs to the stream here, as in the theory. The parts of all paths with k branches come out of one backward pass,
:func:`gradient_by_hops`: each prompt goes in T + 1 times, the copies pass the same activations forward, and on its way
back into an attention branch a gradient moves on from copy k to copy k + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias import errors
from posbias.measure.instrument import SOFTMAX, Instrument
from posbias.measure.rollouts import OF_MEANS, measured_rollout
from posbias.measure.run import measured
from posbias.measure.session import Session
from posbias.measure.settings import Settings
from posbias.networks.hooks import given, hooked, regiven, rereturned, returned
from posbias.rollout.influence import influence_by_hops
from posbias.rollout.paths import paths_by_hops

POWERS = (1.0, 1.25, 1.5, 1.75, 2.0)
"""Powers r of (Σ w^r)^{1/r} over paths, w the sizes of their vectors: how paths are combined in what is kept."""


@dataclass(frozen=True)
class StreamReading:
    """Hold sizes of gradients along the stream of each prompt, and sizes of what the stream adds up."""

    influence: Float[Tensor, "B n"]  # ‖∂p/∂e‖, e the input embedding
    entering: Float[Tensor, "depths B n"]  # ‖∂p/∂x_t‖, x_t what enters layer t; the last one leaves the last layer
    added: Float[Tensor, "T B n"]  # ‖g‖, g = ∂p/∂a_t
    branch: Float[Tensor, "T B n"]  # ‖J_aᵀ g‖, the part of ∂p/∂x_t that came through the attention
    around: Float[Tensor, "T B n"]  # ‖∂p/∂x_t - J_aᵀ g‖, the rest: g itself where the MLP follows the attention
    along_stream: Float[Tensor, "T B n"]  # |g·x_t|
    along_branch: Float[Tensor, "T B n"]  # |g·a_t|
    stream_size: Float[Tensor, "T B n"]  # ‖x_t‖
    branch_size: Float[Tensor, "T B n"]  # ‖a_t‖


@dataclass
class Kept:
    """What the hooks keep of a forward pass, with its graph."""

    streams: list[Tensor] = field(default_factory=list)  # x_0 … x_T
    given: list[Tensor] = field(default_factory=list)  # what each attention module would be given
    taken: list[Tensor] = field(default_factory=list)  # the same under another name, used by the attention alone
    outputs: list[Tensor] = field(default_factory=list)  # a_t
    loose: list[Tensor] = field(default_factory=list)  # copies of a_t that depend on nothing, if they are asked for


@contextmanager
def kept_streams(instrument: Instrument, *, loose: bool = False) -> Iterator[Kept]:
    """Keep the streams and the attention's inputs and outputs of a forward pass; outputs do not change.

    The stream goes on from each attention's output, or from a loose copy of it.
    """
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

    def attention_out(module: nn.Module, args: Any, output: Any) -> Any:
        kept.outputs.append(returned(output))
        if not loose:
            return None
        kept.loose.append(kept.outputs[-1].detach().requires_grad_(True))
        return rereturned(output, kept.loose[-1])

    layers, output_of = instrument.layers, instrument.family.output_of
    before = [*((x, layer_in) for x in layers), *((x, attention_in) for x in instrument.attentions)]
    after = [*((output_of(x), attention_out) for x in layers), (layers[-1], layer_out)]
    with hooked(before, after):
        yield kept


class fixed_weights(TorchFunctionMode):  # noqa: N801 - a context, as no_grad is
    """Take what softmax gives out of differentiation: attention weights count as constants, as in a rollout."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``."""
        out = func(*args, **(kwargs or {}))
        return out.detach() if func in SOFTMAX else out


def read_streams(instrument: Instrument, ids: Int[Tensor, "B n"], *, values_only: bool = False) -> StreamReading:
    """Return the sizes of the gradient of p(most likely next token) at every layer.

    With ``values_only`` attention weights are held fixed, so that only values carry the gradient.
    """
    T = instrument.T
    e = instrument.embeddings(ids).requires_grad_(True)
    with torch.enable_grad(), kept_streams(instrument) as kept:
        with fixed_weights() if values_only else nullcontext():
            logits = instrument.logits(e)
        p = logits.softmax(-1).amax(-1).sum()
        wanted = [e, *kept.streams, *kept.outputs, *kept.taken]
        gradients = torch.autograd.grad(p, wanted, retain_graph=True)
        by_stream, g, by_taken = gradients[1 : T + 2], gradients[T + 2 : 2 * T + 2], gradients[2 * T + 2 :]
        through = [
            torch.autograd.grad(given, x, back, retain_graph=True)[0]
            for given, x, back in zip(kept.given, kept.streams[:-1], by_taken, strict=True)
        ]
    with torch.no_grad():
        x, a = kept.streams[:-1], kept.outputs
        return StreamReading(
            influence=_sizes([gradients[0]])[0],
            entering=_sizes(by_stream),
            added=_sizes(g),
            branch=_sizes(through),
            around=_sizes([by_stream[t] - through[t] for t in range(T)]),
            along_stream=torch.stack([(g[t] * x[t]).sum(-1).abs().double().cpu() for t in range(T)]),
            along_branch=torch.stack([(g[t] * a[t]).sum(-1).abs().double().cpu() for t in range(T)]),
            stream_size=_sizes(x),
            branch_size=_sizes(a),
        )


def influence_past_final_norm(
    instrument: Instrument, ids: Int[Tensor, "B n"]
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B"]]:
    """Return the influence without the final norm's Jacobian, and the share of ∂p/∂x_T that is not at the last token.

    The gradient by what the output embedding reads is put on the stream behind the last layer as it is. The share,
    Σ_{j<n} ‖∂p/∂x_T,j‖ / Σ_j ‖∂p/∂x_T,j‖, is 0: after the last attention nothing moves between positions.
    """
    e, read = instrument.embeddings(ids).requires_grad_(True), []
    head: Any = instrument.model.get_output_embeddings()  # type: ignore[operator]
    keep = hooked(before=[(head, lambda module, args, kwargs: read.append(args[0]))])
    with torch.enable_grad(), kept_streams(instrument) as kept, keep:
        p = instrument.logits(e).softmax(-1).amax(-1).sum()
        by_read, by_last = torch.autograd.grad(p, [read[-1], kept.streams[-1]], retain_graph=True)
        if by_read.shape[-1] != by_last.shape[-1]:
            raise errors.invalid("model", f"an output embedding of width {by_last.shape[-1]}", by_read.shape[-1])
        instead = torch.zeros_like(by_last)
        instead[:, -1] = by_read[:, -1]
        (gradient,) = torch.autograd.grad(kept.streams[-1], e, instead)
    sizes = by_last.norm(dim=-1).double().cpu()
    return gradient.norm(dim=-1).double().cpu(), sizes[:, :-1].sum(1) / sizes.sum(1)


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
    """Let gradients into attention branches move on by one copy of the prompts; outputs do not change."""

    def shift(module: nn.Module, args: Any, output: Any) -> Any:
        return rereturned(output, _Shifted.apply(returned(output), copies))  # type: ignore[no-untyped-call]

    with hooked(after=[(instrument.family.output_of(layer), shift) for layer in instrument.layers]):
        yield


def gradient_by_hops(instrument: Instrument, ids: Int[Tensor, "B n"]) -> Float[Tensor, "hops B n D"]:
    """Return g_0 … g_T: the gradient of p(most likely next token) by input embedding, split by attention branches.

    The parts add up to the gradient; g_0 is 0 but at the last token. The memory is that of (T + 1) B prompts.
    """
    copies = instrument.T + 1
    x = instrument.embeddings(ids.repeat(copies, 1)).requires_grad_(True)
    with torch.enable_grad(), counted_branches(instrument, copies):
        logits = instrument.logits(x)[: len(ids)]
        (gradient,) = torch.autograd.grad(logits.softmax(-1).amax(-1).sum(), x)
    return gradient.unflatten(0, (copies, len(ids)))


def measure_hops(settings: Settings) -> xr.Dataset:
    """Measure a model and split both its influence and its rollouts by hops; prompts go one by one."""
    study = Session(settings)
    results = measured(study)
    kernels = measured_rollout(results, "kernels")
    rollouts = [measured_rollout(results, variant) for variant in OF_MEANS]
    parts = np.stack([influence_by_hops(rollout.kernels, rollout.lambda_, rollout.n) for rollout in rollouts])
    sizes, total = np.zeros(parts.shape[1:]), np.zeros(settings.length)
    for ids in study.ids:
        g = gradient_by_hops(study.instrument, ids[None])[:, 0].double()
        sizes += g.norm(dim=-1).cpu().numpy() / settings.prompts
        total += g.sum(0).norm(dim=-1).cpu().numpy() / settings.prompts
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
        coords={"variant": list(OF_MEANS), "power": list(POWERS)},
        attrs=results.attrs,
    )


def sizes_of(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors along the last axis, in 64 bits."""
    return vectors.detach().double().norm(dim=-1).cpu()


def _sizes(vectors: Iterable[Tensor]) -> Tensor:
    return torch.stack([sizes_of(v) for v in vectors])

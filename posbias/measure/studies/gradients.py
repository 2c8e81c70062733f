"""The gradient on its way down the residual stream: how large it is at every layer, and what goes which way there.

A layer takes x_t, adds the attention's a_t, and goes on; g is the gradient by a_t, that is by the stream right after
the attention. On its way back the gradient by x_t has a part that came through the attention, J_aᵀ g, and a part that
went around it. One backward pass gives the gradients; J_aᵀ g comes from the gradient by what the attention module is
given, taken back through nothing but the norm before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias.measure.instrument import SOFTMAX, Instrument


@dataclass(frozen=True)
class StreamReading:
    """Hold sizes of gradients along the stream of each prompt, and sizes of what the stream adds up.

    Parameters
    ----------
    influence
        ‖∂p/∂e‖, e the input embedding.
    entering
        ‖∂p/∂x_t‖, x_t what enters layer t; the last one is what leaves the last layer.
    added
        ‖g‖, g = ∂p/∂a_t.
    branch
        ‖J_aᵀ g‖, the part of ∂p/∂x_t that came through the attention.
    around
        ‖∂p/∂x_t - J_aᵀ g‖, the part that went around it: g itself where the MLP follows the attention.
    along_stream, along_branch
        |g·x_t| and |g·a_t|.
    stream_size, branch_size
        ‖x_t‖ and ‖a_t‖.
    """

    influence: Float[Tensor, "B n"]
    entering: Float[Tensor, "depths B n"]
    added: Float[Tensor, "T B n"]
    branch: Float[Tensor, "T B n"]
    around: Float[Tensor, "T B n"]
    along_stream: Float[Tensor, "T B n"]
    along_branch: Float[Tensor, "T B n"]
    stream_size: Float[Tensor, "T B n"]
    branch_size: Float[Tensor, "T B n"]


@dataclass
class _Kept:
    """What the hooks keep of a forward pass, with its graph."""

    streams: list[Tensor] = field(default_factory=list)  # x_0 … x_T
    given: list[Tensor] = field(default_factory=list)  # what each attention module would be given
    taken: list[Tensor] = field(default_factory=list)  # the same under another name, used by the attention alone
    outputs: list[Tensor] = field(default_factory=list)  # a_t


@contextmanager
def kept_streams(instrument: Instrument) -> Iterator[_Kept]:
    """Keep the streams and the attention's inputs and outputs of a forward pass; outputs do not change."""
    kept = _Kept()

    def layer_in(module: nn.Module, args: Any, kwargs: Any) -> None:
        kept.streams.append(args[0] if args else kwargs["hidden_states"])

    def layer_out(module: nn.Module, args: Any, output: Any) -> None:
        kept.streams.append(output[0] if isinstance(output, tuple) else output)

    def attention_in(module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = args[0] if args else kwargs["hidden_states"]
        kept.given.append(x)
        kept.taken.append(x.view_as(x))
        if args:
            return (kept.taken[-1], *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": kept.taken[-1]}

    def attention_out(module: nn.Module, args: Any, output: Any) -> None:
        kept.outputs.append(output[0] if isinstance(output, tuple) else output)

    with ExitStack() as stack:
        for layer, attention in zip(instrument.layers, instrument.attentions, strict=True):
            stack.callback(layer.register_forward_pre_hook(layer_in, with_kwargs=True).remove)
            stack.callback(attention.register_forward_pre_hook(attention_in, with_kwargs=True).remove)
            stack.callback(instrument.family.output_of(layer).register_forward_hook(attention_out).remove)
        stack.callback(instrument.layers[-1].register_forward_hook(layer_out).remove)
        yield kept


class fixed_weights(TorchFunctionMode):  # noqa: N801 - a context, as no_grad is
    """Take what softmax gives out of differentiation: attention weights count as constants, as in a rollout."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``."""
        out = func(*args, **(kwargs or {}))
        return out.detach() if func in SOFTMAX else out


def read_streams(instrument: Instrument, ids: Int[Tensor, "B n"], *, values_only: bool = False) -> StreamReading:
    """Return the sizes of the gradient of p(most likely next token) at every layer.

    Parameters
    ----------
    instrument
        Of the model.
    ids
        Token ids, without padding.
    values_only
        Whether attention weights are held fixed, so that only values carry the gradient.
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


def _sizes(vectors: Any) -> Tensor:
    return torch.stack([v.detach().norm(dim=-1).double().cpu() for v in vectors])

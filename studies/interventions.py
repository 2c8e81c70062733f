"""What is exchanged while a model is measured: a context, after which it is what it was; no weight changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.measure.instrument import Instrument, Observer
from posbias.measure.ladder import Rungs
from posbias.models.attention import Reading
from posbias.models.families import Family
from posbias.models.hooks import hooked

NORMED = ("qwen3", "gemma3_text", "gemma3", "olmo2", "olmo3", "exaone4", "olmoe", "qwen3_moe")
"""Families whose queries and keys are normed before they are rotated."""


def rotary_module(instrument: Instrument) -> nn.Module:
    """Return the module that gives cos and sin of the rotary angles of all layers."""
    position = instrument.family.position_of(instrument.model.config)
    if position != "rotary":
        raise errors.invalid("model", "one with rotary positions (llama, mistral, qwen2, ...)", f"{position} positions")
    (found,) = (module for name, module in instrument.model.named_modules() if name.endswith("rotary_emb"))
    return found


def unrotated(family: Family) -> tuple[str, str] | None:
    """Return the paths from an attention module to what gives queries and keys before a rotation; None without."""
    if len(family.projections) < 3 or family.name == "gptj":  # a fused projection, or a latent one
        return None
    return ("q_norm", "k_norm") if family.name in NORMED else ("q_proj", "k_proj")


@contextmanager
def replaced_rope(instrument: Instrument, by: str, seed: int = 0) -> Iterator[None]:
    """Rotate no query and key at all (``identity``), or each plane at another plane's rate (``scrambled``, our choice).

    Both leave q·k a function of content and i - j alone.
    """

    def replace(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        cos, sin = output
        if by == "identity":
            size = (cos[..., :1, :].square() + sin[..., :1, :].square()).sqrt()  # 1, or what the model scales angles by
            return size.expand_as(cos).clone(), torch.zeros_like(sin)
        half = cos.shape[-1] // 2
        order = torch.randperm(half, generator=torch.Generator().manual_seed(seed)).to(cos.device)
        order = torch.cat([order, order + half])
        return cos[..., order], sin[..., order]

    with hooked(after=[(rotary_module(instrument), replace)]):
        yield


def losses_of(instrument: Instrument, ids: Int[Tensor, "B n"], observe: Observer | None = None) -> Float[Tensor, "B m"]:
    """Return the next token's loss in nats at each position but the last, m = n - 1, by a forward pass alone."""
    logits = instrument.tail(ids, ids.shape[1], observe)[:, :-1].float()
    return nn.functional.cross_entropy(logits.mT, ids[:, 1:].to(logits.device), reduction="none").cpu()


def read_layers(
    instrument: Instrument, ids: Int[Tensor, "B n"], read: Callable[[Reading], Tensor]
) -> Float[Tensor, "T ..."]:
    """Return what is read of each layer's attention in one forward pass."""
    found: list[Tensor] = []
    instrument.forward(ids, lambda reading: found.append(read(reading)))
    return torch.stack(found)


def own(reading: Reading) -> Float[Tensor, "B H n n"]:
    """Return attention weights of each prompt."""
    return reading.probabilities.float()


def mean(reading: Reading) -> Float[Tensor, "H n n"]:
    """Return their means over prompts."""
    return own(reading).mean(0)


def content_free(reading: Reading) -> Float[Tensor, "H n n"]:
    """Return the softmax of mask and position bias, as eager attention is given them."""
    allowed, bias = reading.allowed, reading.bias
    free = torch.zeros(reading.shape[1], *allowed.shape) + (0.0 if bias is None else bias)
    return free.masked_fill(~allowed, -torch.inf).softmax(-1)


def shifted(kernels: Float[Tensor, "T H n n"]) -> Float[Tensor, "T H n n"]:
    """Return kernels in which each query has the weights of the query before it; the first keeps its own."""
    return torch.cat([kernels[..., :1, :], kernels[..., :-1, :]], dim=-2)


def exchanged_rungs(
    instrument: Instrument, pairings: Int[np.ndarray, "P B"], kernels: Float[Tensor, "T ... H n n"]
) -> Rungs:
    """Return a rung of given kernels, one for each layer, with the next layer's value maps; the last has the first's.

    An attention module that is given its weights gives values and their output alone.
    """
    parent, _, name = instrument.family.attention.rpartition(".")

    @contextmanager
    def changed(t: int) -> Iterator[None]:
        place = instrument.layers[t].get_submodule(parent)
        setattr(place, name, instrument.attentions[(t + 1) % instrument.T])
        try:
            yield
        finally:
            setattr(place, name, instrument.attentions[t])

    moved = kernels.roll(1, 0)  # a module is given kernels by its own number
    return Rungs(pairings, moved, ("positions",), changed=changed)


def permuted_rungs(
    instrument: Instrument, pairings: Int[np.ndarray, "P B"], kernels: Float[Tensor, "T H n n"], seed: int
) -> Rungs:
    """Return a rung of given kernels on which the hidden units of each MLP exchange their gates, by the seed.

    A gate is the share of its argument that the activation lets through: φ(h) = h·gate(h).
    """

    @contextmanager
    def changed(t: int) -> Iterator[None]:
        def exchange(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> Tensor:
            h = args[0]
            order = np.random.default_rng((seed, t)).permutation(h.shape[-1])
            return h * (out / torch.where(h == 0, 1.0, h))[..., torch.from_numpy(order)]

        with hooked(after=[(activation_of(instrument, t), exchange)]):
            yield

    return Rungs(pairings, kernels, ("positions",), changed=changed)


def activation_of(instrument: Instrument, t: int) -> nn.Module:
    """Return the activation of a layer's MLP: its one module without parts and parameters, dropout aside."""
    attention = set(instrument.attentions[t].modules())
    parts = [x for x in instrument.layers[t].modules() if x not in attention and not isinstance(x, nn.Dropout)]
    (found,) = (x for x in parts if not [*x.children()] and not [*x.parameters()])
    return found

"""Influence alone, of any causal language model that takes input embeddings: no row, no layers, the whole graph.

A gradient needs to know nothing of what lies between embeddings and logits, so that hybrids and state-space models have
an input-token influence too. Nothing else is read, and autograd keeps all layers of a batch together.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.measure import ladder
from posbias.measure.instrument import TOP, BatchReading, Instrument, Observer, Value, _check_finite
from posbias.measure.memory import AT_WORK, HIDDEN, INNER, Need, shape_of
from posbias.networks.families import text_config

SHORT = (8, 16, 32)
"""Tokens of prompts whose memory is counted: state-space models go through a prompt one token at a time."""
ON_THE_WAY = 2
"""How much more there is at the peak than what autograd keeps: gradients, and what is made on the way."""
FAILS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What a model raises that does not run on what it is given."""


class PlainInstrument(Instrument):
    """Be an instrument that knows no layers: its readings have influence and the probability alone.

    Parameters
    ----------
    model
        A causal language model, whatever it is made of. Its parameters are taken out of differentiation.

    Raises
    ------
    ValueError
        If it takes no input embeddings.
    """

    H = 0

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval().requires_grad_(False)
        self.layers, self.attentions = [], []
        self.options = options_of(model)
        try:
            with torch.no_grad():
                self.logits(self.embeddings(torch.zeros(1, 2, dtype=torch.long)))
        except torch.OutOfMemoryError:
            raise
        except FAILS as error:
            name, reason = model.config.model_type, " ".join(str(error).split())[:120]  # type: ignore[union-attr]
            raise errors.invalid("architecture", "a model that runs on inputs_embeds", f"{name}: {reason}") from None

    def measure(
        self,
        ids: Int[Tensor, "B n"],
        observe: Observer | None = None,
        rungs: ladder.Rungs | None = None,
        value: Value = TOP.value,
        keep: int = 1,
    ) -> BatchReading:
        """Return the influence and the probability of a batch of prompts; of layers, of which none are known, no λ."""
        x = self.embeddings(ids).requires_grad_(True)
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.enable_grad():  # of a clone, for some models scale embeddings in place
            z = self._last(x.clone(), keep).to(wide)
            y, p = value(z if keep > 1 else z[:, 0]), TOP.value(z[:, -1].detach())
        _check_finite("the next token's probability", p.cpu()[:, None])
        _check_finite("the target", y.detach().cpu()[:, None])
        (gradient,) = torch.autograd.grad(y.sum(), x)
        gradient, x = gradient.to(wide), x.detach().to(wide)
        none = torch.zeros(len(ids), 0, dtype=torch.float64)
        influence = gradient.norm(dim=-1).double().cpu()
        _check_finite("the gradient", influence)
        signed = (gradient * x).sum(-1).double().cpu()
        return BatchReading(none, none, influence, signed, p.double().cpu(), y.detach().double().cpu())

    def logits(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B v"]:
        """Return the last position's next-token logits for input embeddings."""
        return self._last(x, 1)[:, 0]

    def tail(self, ids: Int[Tensor, "B n"], keep: int) -> Float[Tensor, "B keep v"]:
        """Return the next-token logits of the last ``keep`` positions in 32 bits or more, by a forward pass alone."""
        with torch.no_grad():
            logits = self._last(self.embeddings(ids), keep)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def _last(self, x: Float[Tensor, "B n d"], keep: int) -> Float[Tensor, "B keep v"]:
        """Return the next-token logits of the last ``keep`` positions for input embeddings."""
        options = {name: keep if name == "logits_to_keep" else value for name, value in self.options.items()}
        return self.model(inputs_embeds=x, **options).logits[:, -keep:]  # type: ignore[no-any-return]


def options_of(model: nn.Module) -> dict[str, Any]:
    """Return what a model is asked for beside embeddings, as far as it can be asked."""
    known = signature(model.forward).parameters
    return {name: value for name, value in (("use_cache", False), ("logits_to_keep", 1)) if name in known}


def plain_need(config: Any, dtype: torch.dtype, batch_size: int, length: int, prompts: int = 1) -> Need:
    """Estimate what measuring influence alone takes: autograd's tensors are counted on the meta device.

    A model that does not run there, for it looks at numbers, counts as one whose layers are all held at once.
    """
    config = text_config(config)
    model: Any = shape_of(config)
    model.set_experts_implementation("batched_mm")  # of all ways the one that asks for no number
    count = sum(x.numel() for x in model.parameters())
    held = count * dtype.itemsize + sum(x.nbytes for x in model.buffers())
    try:
        a_prompt = ON_THE_WAY * _held(model, config.hidden_size, length)
    except FAILS:
        d, H = config.hidden_size, getattr(config, "num_attention_heads", 1)
        inner = getattr(config, "intermediate_size", None) or 4 * d
        a_layer = length * (HIDDEN * d + INNER * inner) + AT_WORK * H * length**2
        a_prompt = 4 * config.num_hidden_layers * a_layer
    a_prompt += 16 * config.vocab_size * (1 if "logits_to_keep" in options_of(model) else length)
    rows = 8 * prompts * 4 * length
    return Need(held, batch_size * a_prompt, 2 * rows, rows, prompts * 3 * 2.0 * count * length, batch_size, length)


def _held(model: nn.Module, width: int, length: int) -> int:
    """Return the bytes that autograd keeps of a prompt; of a long one by a parabola through :data:`SHORT` ones.

    Where memory comes in chunks of tokens, and short prompts take as much as each other, it grows in proportion.
    """
    if length <= SHORT[-1]:
        return _graph_bytes(model, width, length)
    counted = [_graph_bytes(model, width, n) for n in SHORT]
    return int(max(float(np.polyval(np.polyfit(SHORT, counted, 2), length)), counted[-1] * length / SHORT[-1]))


def _graph_bytes(model: nn.Module, width: int, length: int) -> int:
    """Return the bytes that autograd keeps of one prompt in 32 bits, weights aside."""
    kept: dict[int, Any] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage._cdata] = storage
        return x

    own = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers())}
    x = torch.zeros(1, length, width, device="meta", requires_grad=True)
    options = {name: True if name == "use_cache" else value for name, value in options_of(model).items()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):  # without a cache some look at the numbers
        model.eval().requires_grad_(False)(inputs_embeds=x, **options)
    return sum(storage.nbytes() for key, storage in kept.items() if key not in own)

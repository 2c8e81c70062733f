"""Influence alone, of any causal language model that takes input embeddings: no row, no layers, the whole graph."""

from inspect import signature

import torch
from jaxtyping import Int
from torch import Tensor, nn

from posbias import errors
from posbias.measure import ladder
from posbias.measure.instrument import BatchReading, Instrument, Observer, Value, check_finite, likeliest, take_value

FAILS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What a model raises that does not run on what it is given."""


class PlainInstrument(Instrument):
    """Be an instrument of any causal model that takes input embeddings: influence and the probability alone."""

    H = 0

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval().requires_grad_(False)
        self.layers, self.attentions, self.others = [], [], []
        known = signature(model.forward).parameters
        self.options = {name: x for name, x in (("use_cache", False), ("logits_to_keep", 1)) if name in known}
        try:
            with torch.no_grad():
                self.logits(self.embeddings(torch.zeros(1, 2, dtype=torch.long)))
        except torch.OutOfMemoryError:
            raise
        except FAILS as error:
            received = f"{model.config.model_type}: {errors.short(error, 120)}"  # type: ignore[union-attr]
            raise errors.invalid("architecture", "a model that runs on inputs_embeds", received) from None

    def measure(
        self,
        ids: Int[Tensor, "B n"],
        observe: Observer | None = None,
        rungs: ladder.Rungs | None = None,
        value: Value = likeliest,
        keep: int = 1,
    ) -> BatchReading:
        """Return the influence and the probability of a batch of prompts; of layers, of which none are known, no λ."""
        x = self.embeddings(ids).requires_grad_(True)
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.enable_grad():  # of a clone, for some models scale embeddings in place
            y, p = take_value(self._watched(x.clone(), None, keep), value, keep)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        gradient, x = gradient.to(wide), x.detach().to(wide)
        none = torch.zeros(len(ids), 0, dtype=torch.float64)
        influence = gradient.norm(dim=-1).double().cpu()
        check_finite("the gradient", influence)
        signed = (gradient * x).sum(-1).double().cpu()
        return BatchReading(none, none, none, influence, signed, p.double().cpu(), y.detach().double().cpu())

    def _watched(self, x: Tensor, observe: Observer | None, keep: int = 1) -> Tensor:
        """Return the next-token logits of the last ``keep`` positions, or more; there is nothing to watch."""
        options = {name: keep if name == "logits_to_keep" else value for name, value in self.options.items()}
        return self.model(inputs_embeds=x, **options).logits  # type: ignore[no-any-return]

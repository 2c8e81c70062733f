"""The instrument: one forward and one backward of a batch, and everything there is to see on the way.

Hooks give x_t and a_t; a function of ours computes each layer's attention, and so sees what it is given and makes of it
(:mod:`posbias.models.attention`). On the way forward only each layer's input is kept; on the way back the layers run
once more, one at a time, so that autograd holds one layer, whatever the depth; there they can also be made simpler
(:mod:`posbias.measure.ladder`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.measure import ladder
from posbias.measure.walk import Walk
from posbias.models.attention import NAMES, Reading
from posbias.models.families import Family, family_of, text_config
from posbias.models.hooks import After, Before, given, hooked, returned
from posbias.models.mixers import Given, Mixer, mixer_of
from posbias.models.watch import watched
from posbias.models.weights import works_on


@dataclass(frozen=True)
class BatchReading:
    """Hold what is seen of the prompts of a batch, all on the CPU."""

    lambda_frobenius: Float[Tensor, "B T"]  # ‖a‖ / (‖x‖ + ‖a‖) with Frobenius norms over the sequence
    lambda_token: Float[Tensor, "B T"]  # The mean over tokens of ‖a_i‖ / (‖x_i‖ + ‖a_i‖)
    norm_ratio: Float[Tensor, "B T"]  # The largest ‖x_i‖ over the median one
    influence: Float[Tensor, "B n"]  # L2 norm of the gradient of the value with respect to each input embedding
    influence_signed: Float[Tensor, "B n"]  # Gradient times input, summed over the embedding
    probability: Float[Tensor, "B"]  # Of the most likely next token after the last position
    target_value: Float[Tensor, "B"]  # What influence is a derivative of; that probability unless another was given
    ladder: Float[Tensor, "B rungs P n"] | None = None  # As ``influence``, by the layers of each rung and pairing

    def checked(self) -> BatchReading:
        """Return the same, or raise NotFinite for a gradient that is not finite."""
        check_finite("the gradient", self.influence)
        if self.ladder is not None:
            check_finite("the ladder", self.ladder.flatten(1))
        return self


Value = Callable[[Float[Tensor, "B v"]], Float[Tensor, "B"]]
"""Takes the next token's logits and returns what influence is a derivative of."""

Observer = Callable[[Any], object]
"""Takes what was seen of one layer's mixing of tokens, valid until the layer ends: a
:class:`~posbias.models.attention.Reading` of attention, a :class:`~posbias.models.mixers.Given` of others."""


def likeliest(logits: Float[Tensor, "B v"]) -> Float[Tensor, "B"]:
    """Return the probability of the likeliest next token."""
    return logits.softmax(-1).amax(-1)


class NotFinite(ValueError):
    """Report a NaN or Inf: the prompt of the batch and where it first shows."""

    def __init__(self, prompt: int, where: str, number: float) -> None:
        self.prompt, self.where, self.number = prompt, where, number
        super().__init__(f"{where} of prompt {prompt} in the batch: expected finite numbers, received {number}")


class Instrument:
    """Measure a decoder of a family with a row, with eager or fused attention, batch by batch."""

    def __init__(self, model: nn.Module) -> None:
        config: Any = model.config
        self.family: Family = family_of(config)
        if config._attn_implementation not in NAMES:
            raise errors.invalid("attention implementation", " or ".join(NAMES), config._attn_implementation)
        self.is_fused = config._attn_implementation == "sdpa"  # then no layer's weights are ever whole
        self.model = model.eval().requires_grad_(False)
        self.layers = self.family.layers(model)
        kinds = [self.family.kind_of(layer) for layer in self.layers]
        pairs = zip(self.layers, kinds, strict=True)
        self.attentions = [self.family.attention_of(x) for x, kind in pairs if kind == "attention"]
        self.others = [kind for kind in dict.fromkeys(kinds) if kind != "attention"]
        self.causal = True  # what masks are checked for; an intervention may take it back

    @property
    def T(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def H(self) -> int:
        """Number of attention (query) heads."""
        return int(text_config(self.model.config).num_attention_heads)

    @property
    def no_attention(self) -> str | None:
        """Why attention matrices say little of a model, whose layers do not all attend; None if they do."""
        if not self.others:
            return None
        names = " and ".join(kind.replace("_", " ") for kind in self.others)
        layers = self.T - len(self.attentions)
        return f"layers without attention ({names} in {layers} of {self.T})"

    def mixer(self, t: int) -> Mixer:
        """Return what mixes the tokens in layer ``t``."""
        return mixer_of(self.family, self.layers[t])

    def devices(self) -> list[torch.device]:
        """Return the device on which each layer works."""
        return [works_on(layer) for layer in self.layers]

    def measure(
        self,
        ids: Int[Tensor, "B n"],
        observe: Observer | None = None,
        rungs: ladder.Rungs | None = None,
        value: Value = likeliest,
        keep: int = 1,
    ) -> BatchReading:
        """Return the reading of a batch of prompts of equal length, handing each layer's attention to ``observe``.

        With ``rungs`` the gradient also climbs the ladder. Influence is a derivative of ``value``, a function of the
        next token's logits: the likeliest token's probability unless given. If more than one is to be kept, it is given
        those of the last ``keep`` positions, (B, keep, v).
        """
        x = self.embeddings(ids).requires_grad_(True)
        walk = Walk(self.layers)
        watch = _Watch(self, None)
        with torch.enable_grad(), watch.hooked(), walk.kept():
            logits = self.model(inputs_embeds=x, use_cache=False, logits_to_keep=keep).logits
        watch.complete()
        norms = _finite_norms(watch)
        mixing = _share(*(norm.square().sum(-1).sqrt() for norm in norms))
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.enable_grad():
            y, p = take_value(logits, value, keep)
        (g,) = torch.autograd.grad(y.sum(), walk.above)
        watch.look(observe, mixing, rungs)
        climb = None if rungs is None else ladder.Climb(rungs, g)
        with torch.enable_grad(), watch.hooked():
            for t in reversed(range(self.T)):
                g = walk.back(t, g) if climb is None else _climb(climb, walk, watch, t, g)
        watch.complete(reversed(range(self.T)))
        (gradient,) = torch.autograd.grad(walk.entered, x, g.to(walk.entered.device), retain_graph=climb is not None)
        if climb is not None:
            climb.end(walk.entered, x)
        gradient, x = gradient.to(wide), x.detach().to(wide)
        return BatchReading(
            lambda_frobenius=mixing.T.cpu(),
            lambda_token=_share(*norms).mean(-1).T.cpu(),
            norm_ratio=(norms[0].amax(-1) / norms[0].median(-1).values).T.cpu(),
            influence=gradient.norm(dim=-1).double().cpu(),
            influence_signed=(gradient * x).sum(-1).double().cpu(),
            probability=p.double().cpu(),
            target_value=y.detach().double().cpu(),
            ladder=None if climb is None else climb.norms(),
        ).checked()

    def forward(self, ids: Int[Tensor, "B n"], observe: Observer) -> None:
        """Run a forward pass alone, handing each layer's attention to ``observe``."""
        with torch.no_grad():
            self._watched(self.embeddings(ids), observe)

    def logits(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B v"]:
        """Return the last position's next-token logits for input embeddings, with the position bias as measured."""
        return self._watched(x, None)[:, -1]

    def tail(self, ids: Int[Tensor, "B n"], keep: int, observe: Observer | None = None) -> Float[Tensor, "B keep v"]:
        """Return the next-token logits of the last ``keep`` positions in 32 bits or more, by a forward pass alone."""
        with torch.no_grad():
            logits = self._watched(self.embeddings(ids), observe, keep=keep)
        return logits[:, -keep:].to(torch.promote_types(logits.dtype, torch.float32))

    def embeddings(self, ids: Int[Tensor, "B n"]) -> Float[Tensor, "B n d"]:
        """Return the input embeddings of token ids: what influence is a derivative by."""
        embed: Any = self.model.get_input_embeddings()  # type: ignore[operator]
        return embed(ids.to(works_on(embed))).detach()

    def _watched(self, x: Tensor, observe: Observer | None, keep: int = 1) -> Tensor:
        """Return the next-token logits of the last ``keep`` positions (0: all)."""
        watch = _Watch(self, observe)
        with watch.hooked():
            logits: Tensor = self.model(inputs_embeds=x, use_cache=False, logits_to_keep=keep).logits
        watch.complete()
        return logits


def lacking_parts(instrument: Instrument) -> str | None:
    """Return why what a model's layers add cannot be read as a sum of parts, None if it can."""
    every = (instrument.mixer(t).lacking() for t in range(instrument.T))
    return next((why for why in every if why is not None), None)


class _Watch:
    """Watch one forward pass: hooks for x_t and a_t, and a function that computes attention and shows it."""

    def __init__(self, instrument: Instrument, observe: Observer | None) -> None:
        self.instrument, self.observe = instrument, observe
        self.mixing: Tensor | None = None  # λ of each layer and prompt, known after the way forward
        self.stream: Tensor | None = None  # x_t of the layer at work, on the way back
        self.inputs: list[Tensor] = []  # ‖x_i‖ for each layer, (B, n)
        self.outputs: list[Tensor] = []  # ‖a_i‖
        self.seen: list[int] = []  # layers whose attention was seen
        self.rungs: ladder.Rungs | None = None  # what layers are to be made simpler for, on the way back
        self.replaced: str | None = None  # the rung for which attention is being replaced
        self.fixed = False  # whether gradients through the attention weights are dropped
        self.gate: Tensor | None = None  # what the attention at work multiplies its averages by

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Attach the hooks and the function for one pass."""
        family, layers = self.instrument.family, self.instrument.layers
        before: list[tuple[nn.Module, Before]] = []
        after: list[tuple[nn.Module, After]] = []
        for t, layer in enumerate(layers):
            stream = family.stream_of(layer)
            if stream is None:
                before.append((layer, lambda module, args, kwargs: self._entered(given(args, kwargs))))
            else:
                after.append((stream, lambda module, args, out: self._entered(returned(out))))
            if family.kind_of(layer) != "attention":
                before.append((family.mixer_of(layer), self._mixes(t)))
            elif family.gate is not None:
                before.append((family.attention_of(layer), self._gated))
            if self.mixing is None:
                after.append((family.output_of(layer), self._attention_out(family.multiplier(layer))))
        with hooked(before, after), watched(self.instrument.model, family, self._attend):
            yield

    def look(self, observe: Observer | None, mixing: Float[Tensor, "T B"], rungs: ladder.Rungs | None) -> None:
        """Hand what is seen from now on to ``observe``, with λ, and be ready for these rungs."""
        self.observe, self.mixing, self.rungs = observe, mixing, rungs

    @contextmanager
    def simpler(self, *, fixed: bool = False, replaced: str | None = None) -> Iterator[None]:
        """Fix attention on the way back, or replace it for a rung, inside the block."""
        self.fixed, self.replaced = fixed, replaced
        yield
        self.fixed, self.replaced = False, None

    def complete(self, order: Iterable[int] | None = None) -> None:
        """Raise unless every layer was seen once, in order: a changed implementation must not go unnoticed."""
        T = self.instrument.T
        expected = list(range(T) if order is None else order)
        if self.seen != expected or len(self.inputs) != T or len(self.outputs) != T:
            raise RuntimeError(f"expected attention once in each of {T} layers, received layers {self.seen}")
        self.seen.clear()

    def _attend(self, reading: Reading) -> Float[Tensor, "B H n V"]:
        """Return averages of a layer's values, by its own weights or by those of the rung."""
        if self.replaced is not None:
            with torch.no_grad():
                weights = self._weights(reading.detached())
            return ladder.WeighedValues.apply(reading.values, weights)  # type: ignore[no-any-return, no-untyped-call]
        self.seen.append(reading.layer)
        if self.mixing is None:  # on the way forward
            reading.check(self.instrument.causal)
        if not self.instrument.is_fused:
            reading = reading.whole()
        if self.rungs is not None:
            for x in (reading.query, reading.key) if reading.weights is None else (reading.weights,):
                x.register_hook(lambda grad: torch.zeros_like(grad) if self.fixed else grad)
        self._shown(replace(reading.detached(), gate=self.gate))
        return reading.averages()

    def _shown(self, seen: Reading | Given) -> None:
        """Show what was seen of a layer, with λ and the stream."""
        if self.observe is not None:
            mixing = None if self.mixing is None else self.mixing[seen.layer]
            with torch.no_grad():
                stream = None if self.stream is None else self.stream.detach()
                self.observe(replace(seen, mixing=mixing, stream=stream))

    def _mixes(self, t: int) -> Before:
        """Return a hook that notes that a layer without attention was seen, and what its mixer is given."""

        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.seen.append(t)
            self._shown(Given(t, given(args, kwargs).detach()))

        return hook

    def _gated(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Keep what the attention module at work multiplies its averages by."""
        gate = self.instrument.family.gate
        if gate is not None and self.observe is not None:
            with torch.no_grad():
                self.gate = gate(module, given(args, kwargs))

    def _weights(self, reading: Reading) -> ladder.Weights:
        """Return the weights that stand for a layer's own on the rung."""
        kernels = None if self.rungs is None else self.rungs.kernels
        if self.replaced == "vectors":
            return ladder.mean_weights(reading if self.instrument.is_fused else reading.whole())
        return ladder.position_weights(reading) if kernels is None else ladder.given_weights(kernels[reading.layer])

    def _entered(self, x: Tensor) -> None:
        """Keep the size of x_t on the way forward, x_t itself on the way back."""
        if self.mixing is None:
            self.inputs.append(_token_norms(x))
        else:
            self.stream = x

    def _attention_out(self, multiplier: float) -> After:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            self.outputs.append(_token_norms(returned(out)) * abs(multiplier))

        return hook


def _climb(climb: ladder.Climb, walk: Walk, watch: _Watch, t: int, g: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
    """Do as ``walk.back``, and take the gradients of all rungs through layer ``t`` as well."""
    climb.turn(t + 1)
    x, y = walk.run(t)
    (exact,) = torch.autograd.grad(y, x, g.to(y.device), retain_graph=True)
    for rung in climb.gradients:
        if rung in ("vectors", "positions"):
            del x, y  # one graph at a time
            with watch.simpler(replaced=rung), climb.changed(t):
                x, y = walk.run(t)
        with watch.simpler(fixed=rung == "fixed-attention"):
            climb.back(rung, y, x)
    walk.arguments.pop()
    return exact


def take_value(logits: Float[Tensor, "B m v"], value: Value, keep: int) -> tuple[Tensor, Tensor]:
    """Return what influence is a derivative of, and the likeliest next token's probability, both checked."""
    z = logits[:, -keep:].to(torch.promote_types(logits.dtype, torch.float32))
    y, p = value(z if keep > 1 else z[:, 0]), likeliest(z[:, -1].detach())
    check_finite("the next token's probability", p.cpu()[:, None])
    check_finite("the target", y.detach().cpu()[:, None])
    return y, p


def _token_norms(x: Tensor) -> Tensor:
    """Return ‖x_i‖ in 32 bits or more, (B, n)."""
    with torch.no_grad():
        return torch.linalg.vector_norm(x.detach(), dim=-1, dtype=torch.promote_types(x.dtype, torch.float32))


def _finite_norms(watch: _Watch) -> tuple[Float[Tensor, "T B n"], Float[Tensor, "T B n"]]:
    """Return the sizes of x_t and a_t at every token, or raise NotFinite."""
    inputs, outputs = _norms(watch.inputs), _norms(watch.outputs)
    for t, (entering, added) in enumerate(zip(inputs.cpu(), outputs.cpu(), strict=True)):
        check_finite(f"the input of layer {t}", entering)
        check_finite(f"the attention output of layer {t}", added)
    return inputs, outputs


def _norms(per_layer: list[Tensor]) -> Float[Tensor, "T B n"]:
    return torch.stack([norm.to(per_layer[-1].device, non_blocking=True) for norm in per_layer]).double()


def _share(x: Tensor, a: Tensor) -> Tensor:
    """Return a / (x + a), 0 where both are 0."""
    return a.to(x.device) / (x + a.to(x.device)).clamp_min(torch.finfo(x.dtype).tiny)


def check_finite(where: str, values: Float[Tensor, "B n"]) -> None:
    """Raise NotFinite for the first prompt of a batch with a number that is not finite."""
    bad = ~torch.isfinite(values)
    if bad.any():
        prompt = int(bad.any(-1).nonzero()[0])
        raise NotFinite(prompt, where, float(values[prompt][bad[prompt]][0]))

"""The instrument: one forward and one backward of a batch, and everything there is to see on the way.

Four hooks a layer give x_t, a_t and the arguments of the attention module; a mode that watches softmax and fused
attention while an attention module is at work gives logits and weights. On the way forward only each layer's input is
kept; on the way back the layers run once more, one at a time, so that autograd holds one layer, whatever the depth;
there they can also be made simpler (:mod:`posbias.measure.ladder`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias import errors
from posbias.measure import ladder
from posbias.measure.attention import AttentionReading, FusedReading, check_allowed, read_mask
from posbias.measure.offload import works_on
from posbias.measure.target import Target
from posbias.networks.families import Family, family_of, text_config, window
from posbias.networks.hooks import After, Before, given, hooked, regiven, rereturned, returned

IMPLEMENTATIONS = ("eager", "sdpa")
SOFTMAX = {torch.nn.functional.softmax, torch.softmax, Tensor.softmax}
FUSED = torch.nn.functional.scaled_dot_product_attention
BADDBMM = {torch.baddbmm, Tensor.baddbmm}
MASKS = 4
"""Masks of which it is kept what was read off them: layers share one or two, unless each is given biases of its own."""


@dataclass(frozen=True)
class BatchReading:
    """Hold what is seen of the prompts of a batch, all on the CPU.

    Parameters
    ----------
    lambda_frobenius
        ‖a‖ / (‖x‖ + ‖a‖) with Frobenius norms over the sequence, for each prompt and layer.
    lambda_token
        The mean over tokens of ‖a_i‖ / (‖x_i‖ + ‖a_i‖).
    influence
        L2 norm of the gradient of the target with respect to each input embedding.
    influence_signed
        Gradient times input, summed over the embedding.
    probability
        The probability of the most likely next token after the last position.
    target_value
        What influence is a derivative of; that probability unless another target was given.
    ladder
        As ``influence``, by the layers of each rung and pairing; None where no rungs were asked for.
    """

    lambda_frobenius: Float[Tensor, "B T"]
    lambda_token: Float[Tensor, "B T"]
    influence: Float[Tensor, "B n"]
    influence_signed: Float[Tensor, "B n"]
    probability: Float[Tensor, "B"]
    target_value: Float[Tensor, "B"]
    ladder: Float[Tensor, "B rungs P n"] | None = None


Value = Callable[[Float[Tensor, "B v"]], Float[Tensor, "B"]]
"""Takes the next token's logits and returns what influence is a derivative of."""
TOP = Target()

Observer = Callable[[Any], object]
"""Takes a ``Reading`` of :mod:`posbias.measure.attention`; one that knows only eager attention may take that alone."""


class NotFinite(ValueError):
    """Report a NaN or Inf: the prompt of the batch and where it first shows."""

    def __init__(self, prompt: int, where: str, number: float) -> None:
        self.prompt, self.where, self.number = prompt, where, number
        super().__init__(f"{where} of prompt {prompt} in the batch: expected finite numbers, received {number}")


class Instrument:
    """Measure a decoder: make one from a model, then call :meth:`measure` batch by batch.

    Parameters
    ----------
    model
        A causal language model of a supported family with eager attention or torch's fused one (sdpa), in evaluation
        mode. Its parameters are taken out of differentiation.

    Raises
    ------
    ValueError
        For an unsupported architecture or attention.
    """

    def __init__(self, model: nn.Module) -> None:
        config: Any = model.config
        self.family: Family = family_of(config)
        if config._attn_implementation not in IMPLEMENTATIONS:
            raise errors.invalid("attention implementation", " or ".join(IMPLEMENTATIONS), config._attn_implementation)
        self.model = model.eval().requires_grad_(False)
        self.layers = self.family.layers(model)
        self.attentions = [self.family.attention_of(layer) for layer in self.layers]
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
    def is_fused(self) -> bool:
        """Whether attention is torch's fused kernel, which shows no weights."""
        return bool(self.model.config._attn_implementation == "sdpa")  # type: ignore[union-attr]

    def devices(self) -> list[torch.device]:
        """Return the device on which each layer works."""
        return [works_on(layer) for layer in self.layers]

    def measure(
        self,
        ids: Int[Tensor, "B n"],
        observe: Observer | None = None,
        rungs: ladder.Rungs | None = None,
        value: Value = TOP.value,
        keep: int = 1,
    ) -> BatchReading:
        """Return the reading of a batch of prompts of equal length, handing each layer's attention to ``observe``.

        With ``rungs`` the gradient also climbs the ladder. Influence is a derivative of ``value``, a function of the
        next token's logits: the likeliest token's probability unless given. If more than one is to be kept, it is given
        those of the last ``keep`` positions, (B, keep, v).
        """
        x = self.embeddings(ids).requires_grad_(True)
        walk = _Walk(self.layers)
        watch = _Watch(self, x.shape[1], None)
        with torch.enable_grad(), watch.hooked(), walk.kept():
            logits = self.model(inputs_embeds=x, use_cache=False, logits_to_keep=keep).logits
        watch.complete()
        norms = _norms(watch.inputs), _norms(watch.outputs)
        _check_norms(*norms)
        mixing = _share(*(norm.square().sum(-1).sqrt() for norm in norms))
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.enable_grad():
            z = logits[:, -keep:].to(wide)
            y, p = value(z if keep > 1 else z[:, 0]), TOP.value(z[:, -1].detach())
        _check_finite("the next token's probability", p.cpu()[:, None])
        _check_finite("the target", y.detach().cpu()[:, None])
        (g,) = torch.autograd.grad(y.sum(), walk.above)
        watch.look(observe, mixing, rungs)
        climb = None if rungs is None else ladder.Climb(rungs, g)
        with torch.enable_grad(), watch.hooked():
            for t in reversed(range(self.T)):
                g = walk.back(t, g) if climb is None else _climb(climb, walk, watch, t, g)
        watch.complete(reversed(range(self.T)))
        (gradient,) = torch.autograd.grad(walk.entered, x, g.to(walk.entered.device), retain_graph=climb is not None)
        if climb is not None:
            climb.turn(0)
            for rung in climb.gradients:
                climb.back(rung, walk.entered, x)
        gradient, x = gradient.to(wide), x.detach().to(wide)
        reading = BatchReading(
            lambda_frobenius=mixing.T.cpu(),
            lambda_token=_share(*norms).mean(-1).T.cpu(),
            influence=gradient.norm(dim=-1).double().cpu(),
            influence_signed=(gradient * x).sum(-1).double().cpu(),
            probability=p.double().cpu(),
            target_value=y.detach().double().cpu(),
            ladder=None if climb is None else climb.norms(),
        )
        _check_finite("the gradient", reading.influence)
        if reading.ladder is not None:
            _check_finite("the ladder", reading.ladder.flatten(1))
        return reading

    def forward(self, ids: Int[Tensor, "B n"], observe: Observer) -> None:
        """Run a forward pass alone, handing each layer's attention to ``observe``."""
        with torch.no_grad():
            self._watched(self.embeddings(ids), observe)

    def logits(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B v"]:
        """Return the last position's next-token logits for input embeddings, with the position bias as measured."""
        return self._watched(x, None)[0][:, -1]

    def tail(self, ids: Int[Tensor, "B n"], keep: int) -> Float[Tensor, "B keep v"]:
        """Return the next-token logits of the last ``keep`` positions in 32 bits or more, by a forward pass alone."""
        with torch.no_grad():
            logits = self._watched(self.embeddings(ids), None, keep=keep)[0]
        return logits[:, -keep:].to(torch.promote_types(logits.dtype, torch.float32))

    def losses(self, ids: Int[Tensor, "B n"], observe: Observer | None = None) -> Float[Tensor, "B m"]:
        """Return the next token's loss in nats at each position but the last, m = n - 1, by a forward pass alone."""
        with torch.no_grad():
            logits = self._watched(self.embeddings(ids), observe, keep=0)[0][:, :-1]
        return nn.functional.cross_entropy(logits.float().mT, ids[:, 1:].to(logits.device), reduction="none").cpu()

    def embeddings(self, ids: Int[Tensor, "B n"]) -> Float[Tensor, "B n d"]:
        """Return the input embeddings of token ids: what influence is a derivative by."""
        embed: Any = self.model.get_input_embeddings()  # type: ignore[operator]
        return embed(ids.to(works_on(embed))).detach()

    def _watched(self, x: Tensor, observe: Observer | None, keep: int = 1) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the next-token logits of the last ``keep`` positions (0: all); ‖x_i‖ and ‖a_i‖, each (T, B, n)."""
        watch = _Watch(self, x.shape[1], observe)
        with watch.hooked():
            logits = self.model(inputs_embeds=x, use_cache=False, logits_to_keep=keep).logits
        watch.complete()
        return logits, (_norms(watch.inputs), _norms(watch.outputs))


class _Watch(TorchFunctionMode):
    """Watch one forward pass: hooks for what modules take and give, a mode for what softmax takes and gives."""

    def __init__(self, instrument: Instrument, n: int, observe: Observer | None) -> None:
        super().__init__()
        self.instrument, self.n, self.observe = instrument, n, observe
        self.mixing: Tensor | None = None  # λ of each layer and prompt, known after the way forward
        self.inputs: list[Tensor] = []  # ‖x_i‖ for each layer, (B, n)
        self.outputs: list[Tensor] = []  # ‖a_i‖
        self.seen: list[int] = []  # layers whose softmax was seen
        self.working: int | None = None  # the layer whose attention module is at work
        self.arguments: Any = None
        self.product: Tensor | None = None
        self.masks: dict[tuple[int, int, int | None], Any] = {}  # what was read off them, until the passes end
        self.checked: dict[int, Tensor] = {}  # masks of fused attention that were looked at
        self.rungs: ladder.Rungs | None = None  # what layers are to be made simpler for, on the way back
        self.replaced: str | None = None  # the rung for which attention is being replaced
        self.fixed = False  # whether gradients through the attention weights are dropped

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Attach the hooks and the mode for one pass."""
        layers, attentions = self.instrument.layers, self.instrument.attentions
        outputs = [self.instrument.family.output_of(layer) for layer in layers]
        streams = [self.instrument.family.stream_of(layer) for layer in layers]
        before: list[tuple[nn.Module, Before]] = [
            (layer, self._layer_in) for layer, stream in zip(layers, streams, strict=True) if stream is None
        ]
        before += [(attention, self._enter(t)) for t, attention in enumerate(attentions)]
        after: list[tuple[nn.Module, After]] = [(attention, self._leave) for attention in attentions]
        multipliers = [self.instrument.family.multiplier(layer) for layer in layers]
        after += [(output, self._attention_out(x)) for output, x in zip(outputs, multipliers, strict=True)]
        after += [(stream, self._stream_out) for stream in streams if stream is not None]
        with hooked(before, after), self:
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
            raise RuntimeError(f"expected one softmax in each of {T} layers, received layers {self.seen}")
        self.seen.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.working is not None and self.replaced is not None and func is FUSED:
            return self._fused_replaced(*args, **kwargs)
        out = func(*args, **kwargs)
        if self.working is not None and self.replaced is not None:
            return self._weights_replaced(out) if func in SOFTMAX else out
        if self.working is not None:
            if func is FUSED:
                self._fused(*args, **kwargs)
                self._held(*(args[:2] or (kwargs["query"], kwargs["key"])))
            elif func in SOFTMAX:
                self._softmax(args[0] if args else kwargs["input"], out)
                self._held(out)
            elif func in BADDBMM and out.dtype.itemsize < 4 and not self.instrument.family.exact_in_16_bit:
                self.product = _exact_product(*args[1:], **kwargs)
        return out

    def _layer_in(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.mixing is None:
            self.inputs.append(_token_norms(given(args, kwargs)))

    def _stream_out(self, module: nn.Module, args: Any, out: Any) -> None:
        if self.mixing is None:
            self.inputs.append(_token_norms(returned(out)))

    def _attention_out(self, multiplier: float) -> After:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            if self.mixing is None:
                self.outputs.append(_token_norms(returned(out)) * abs(multiplier))

        return hook

    def _enter(self, t: int) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            bound = signature(module.forward).bind(*args, **kwargs).arguments
            named = {**bound.get("kwargs", {}), **{name: x for name, x in bound.items() if name != "kwargs"}}
            self.working, self.product = t, None
            family = self.instrument.family
            read_from = named.get("attention_mask"), named.get(family.biased or "")
            width = window(module, self.instrument.model.config) if family.narrows else None
            key = (id(read_from[0]), id(read_from[1]), width)
            if key not in self.masks:  # which keeps the tensors alive, so that no id comes twice in a pass
                with torch.no_grad():
                    bias = family.bias(named, module, self.n) if family.bias else None
                    seen = (None, None) if self.instrument.is_fused else self._mask(named, bias, width)
                    _forget(self.masks, MASKS - 1)
                    self.masks[key] = (read_from, named.get(family.biased or ""), *seen)
            _, replaced, *self.arguments = self.masks[key]
            if family.biased and replaced is not kwargs.get(family.biased):
                return args, {**kwargs, family.biased: replaced}
            return None

        return hook

    def _leave(self, module: nn.Module, args: Any, out: Any) -> None:
        self.working = self.product = None

    def _mask(self, named: dict[str, Any], bias: Tensor | None, width: int | None) -> tuple[Tensor | None, Tensor]:
        return read_mask(named, bias, self.n, self.instrument.causal, width)

    def _sinks(self) -> Float[Tensor, "H 1 1"] | None:
        """Return the logits of the keys that are no tokens, None if the layer at work has none."""
        name = self.instrument.family.sinks
        assert self.working is not None
        return None if name is None else getattr(self.instrument.attentions[self.working], name).detach()[:, None, None]

    def _softmax(self, logits: Tensor, probabilities: Tensor) -> None:
        t = self.working
        assert t is not None
        self.seen.append(t)
        if self.observe is None:
            return
        bias, allowed = self.arguments
        with torch.no_grad():
            if (sinks := self._sinks()) is not None:  # undo what was taken off the row
                logits = logits[..., :-1] - logits[..., -1:] + sinks
                probabilities = probabilities[..., :-1]
            product = None if self.product is None else self.product.view(logits.shape)
            seen = AttentionReading(t, logits.detach(), probabilities.detach(), bias, allowed, product, self._mixing(t))
            self.observe(seen)

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        t = self.working
        assert t is not None
        self.seen.append(t)
        if self.observe is None:
            return
        if attn_mask is None and not is_causal:
            raise RuntimeError("expected a causal mask in fused attention, received none")
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        with torch.no_grad():
            seen = FusedReading(t, query.detach(), key.detach(), attn_mask, scale, self._mixing(t))
            if attn_mask is not None and id(attn_mask) not in self.checked:
                check_allowed(seen.visible(slice(0, self.n)), self.instrument.causal)
                _forget(self.checked, MASKS - 1)
                self.checked[id(attn_mask)] = attn_mask
            self.observe(seen)

    def _held(self, *tensors: Tensor) -> None:
        """Let no gradient through where attention is fixed on the way back."""
        if self.rungs is not None:
            for x in tensors:
                x.register_hook(lambda grad: torch.zeros_like(grad) if self.fixed else grad)

    def _weights_replaced(self, probabilities: Tensor) -> Tensor:
        """Return what stands for a softmax on the rung."""
        bias, allowed = self.arguments
        with torch.no_grad():
            if self.replaced == "vectors":
                return ladder.mean_weights(probabilities)
            sinks = self._sinks()
            if (given := self._kernels()) is not None:
                given = given if sinks is None else torch.cat([given, 1 - given.sum(-1, keepdim=True)], dim=-1)
                return given.to(probabilities).expand_as(probabilities).contiguous()
            return ladder.position_weights(probabilities, bias, allowed, sinks)

    def _fused_replaced(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        """Return what fused attention gives with weights that are replaced for the rung."""
        scale = query.shape[-1] ** -0.5 if kwargs.get("scale") is None else float(kwargs["scale"])
        assert self.working is not None
        seen = FusedReading(self.working, query.detach(), key.detach(), attn_mask, scale)
        weights = ladder.fused_mean(seen) if self.replaced == "vectors" else ladder.fused_positions(seen)
        if self.replaced != "vectors" and (given := self._kernels()) is not None:
            weights = ladder.given_weights(given)
        wide = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        return ladder.WeighedValues.apply(wide, weights)  # type: ignore[no-any-return, no-untyped-call]

    def _kernels(self) -> Tensor | None:
        """Return the kernels that are given for the layer at work."""
        kernels = None if self.rungs is None else self.rungs.kernels
        return None if kernels is None or self.working is None else kernels[self.working]

    def _mixing(self, t: int) -> Tensor | None:
        return None if self.mixing is None else self.mixing[t]


class _Walk:
    """What a pass back through the layers, one at a time, has to know: what each layer was given.

    Every layer is given a tensor that knows nothing of where it comes from, so that on the way forward no layer is
    recorded. ``entered`` is what the first layer is given, ``above`` what the last one gives.
    """

    def __init__(self, layers: list[nn.Module]) -> None:
        self.layers = layers
        self.arguments: list[tuple[Any, Any]] = []
        self.entered: Tensor
        self.above: Tensor

    def kept(self) -> AbstractContextManager[None]:
        """Attach the hooks of the way forward."""
        return hooked([(layer, self._enter) for layer in self.layers], [(self.layers[-1], self._end)])

    def back(self, t: int, g: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """Return the gradient by what layer ``t`` was given, from that by what it gave; the layer runs once more."""
        x, y = self.run(t)
        self.arguments.pop()
        (g,) = torch.autograd.grad(y, x, g.to(y.device))
        return g

    def run(self, t: int) -> tuple[Float[Tensor, "B n d"], Float[Tensor, "B n d"]]:
        """Return what layer ``t`` was given, to be differentiated by, and what it gives; the layer runs once more."""
        args, kwargs = self.arguments[t]
        x = given(args, kwargs).requires_grad_(True)
        return x, returned(self.layers[t](*args, **kwargs))

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        x = given(args, kwargs)
        if not self.arguments:
            self.entered = x
        self.arguments.append(regiven(args, kwargs, x.detach()))
        return self.arguments[-1]

    def _end(self, module: nn.Module, args: Any, output: Any) -> Any:
        self.above = returned(output).detach().requires_grad_(True)
        return rereturned(output, self.above)


def _climb(
    climb: ladder.Climb, walk: _Walk, watch: _Watch, t: int, g: Float[Tensor, "B n d"]
) -> Float[Tensor, "B n d"]:
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


def _forget(kept: dict[Any, Any], most: int) -> None:
    """Let the first entries go until there are ``most``."""
    while len(kept) > most:
        del kept[next(iter(kept))]


def _exact_product(batch1: Tensor, batch2: Tensor, *, alpha: float = 1.0, **_: Any) -> Tensor:
    """Return alpha·batch1·batch2 in 32 bits, outside differentiation."""
    with torch.no_grad():
        return torch.bmm(batch1.detach().float(), batch2.detach().float()).mul_(alpha)


def _token_norms(x: Tensor) -> Tensor:
    """Return ‖x_i‖ in 32 bits or more, (B, n)."""
    with torch.no_grad():
        return torch.linalg.vector_norm(x.detach(), dim=-1, dtype=torch.promote_types(x.dtype, torch.float32))


def _norms(per_layer: list[Tensor]) -> Float[Tensor, "T B n"]:
    return torch.stack([norm.to(per_layer[-1].device, non_blocking=True) for norm in per_layer]).double()


def _share(x: Tensor, a: Tensor) -> Tensor:
    """Return a / (x + a), 0 where both are 0."""
    return a.to(x.device) / (x + a.to(x.device)).clamp_min(torch.finfo(x.dtype).tiny)


def _check_norms(x: Float[Tensor, "T B n"], a: Float[Tensor, "T B n"]) -> None:
    """Raise for the first layer with a norm that is not finite: the layer's input comes before its attention."""
    for t, pair in enumerate(zip(x.cpu(), a.cpu(), strict=True)):
        for name, norms in zip(("the input", "the attention output"), pair, strict=True):
            _check_finite(f"{name} of layer {t}", norms)


def _check_finite(where: str, values: Float[Tensor, "B n"]) -> None:
    bad = ~torch.isfinite(values)
    if bad.any():
        prompt = int(bad.any(-1).nonzero()[0])
        raise NotFinite(prompt, where, float(values[prompt][bad[prompt]][0]))

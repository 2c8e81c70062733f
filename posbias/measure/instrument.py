"""The instrument: one forward and one backward of a batch, and everything there is to see on the way.

Four hooks a layer give x_t, a_t and the arguments of the attention module; a mode that watches softmax calls
while an attention module is at work gives its logits and weights. Nothing of a layer outlives the layer,
except what autograd itself keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias import checks
from posbias.measure.families import Family, family_of
from posbias.measure.hooks import After, Before, given, hooked, returned

SOFTMAX = {torch.nn.functional.softmax, torch.softmax, Tensor.softmax}
BADDBMM = {torch.baddbmm, Tensor.baddbmm}


@dataclass(frozen=True)
class AttentionReading:
    """Hold what one layer's softmax was given and gave, valid until the layer ends.

    Parameters
    ----------
    layer
        0-based.
    logits
        What went into the softmax; content plus bias where allowed, hugely negative elsewhere.
    probabilities
        What came out.
    bias
        Position bias, (1 or H, 1 or n, n), the same for all prompts; None if there is none.
    allowed
        Keys that the mask allows, read from the mask (a distant key's weight may well round to 0).
    product
        Scaled q·k in 32 bits where the logits are rounded together with the bias; None elsewhere.
    """

    layer: int
    logits: Float[Tensor, "B H n n"]
    probabilities: Float[Tensor, "B H n n"]
    bias: Float[Tensor, "#H #n n"] | None
    allowed: Bool[Tensor, "n n"]
    product: Float[Tensor, "B H n n"] | None = None

    def content(
        self,
        prompts: slice = slice(None),
        queries: slice = slice(None),
        out: Float[Tensor, "b H q k"] | None = None,
    ) -> Float[Tensor, "b H q k"]:
        """Return content logits in 32 bits: logits less bias, hugely negative where masked.

        Parameters
        ----------
        prompts, queries
            Which prompts of the batch and which queries, with the keys up to the last of them; all unless given.
        out
            Where to write them; a new tensor unless given.
        """
        n = self.logits.shape[-1]
        block = (..., queries, slice(0, queries.indices(n)[1]))
        logits = (self.logits if self.product is None else self.product)[prompts][block]
        out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device) if out is None else out
        if self.product is not None:
            return torch.where(self.allowed[block], logits, logits.new_tensor(-torch.inf), out=out)
        if self.bias is None:
            return out.copy_(logits)
        return torch.sub(logits, self.bias.expand(-1, n, n)[block], out=out)


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
        L2 norm of the gradient of p with respect to each input embedding.
    influence_signed
        Gradient times input, summed over the embedding.
    probability
        p: the probability of the most likely next token after the last position.
    """

    lambda_frobenius: Float[Tensor, "B T"]
    lambda_token: Float[Tensor, "B T"]
    influence: Float[Tensor, "B n"]
    influence_signed: Float[Tensor, "B n"]
    probability: Float[Tensor, "B"]


Observer = Callable[[AttentionReading], None]


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
        A causal language model of a supported family with eager attention, in evaluation mode. Its parameters
        are taken out of differentiation.

    Raises
    ------
    ValueError
        For an unsupported architecture, or attention that is not eager (a fused kernel shows no weights).
    """

    def __init__(self, model: nn.Module) -> None:
        config: Any = model.config
        self.family: Family = family_of(config)
        if config._attn_implementation != "eager":
            raise checks.refuse("attention implementation", "eager", config._attn_implementation)
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
        return int(self.model.config.num_attention_heads)  # type: ignore[union-attr, arg-type]

    def devices(self) -> list[torch.device]:
        """Return the device of each layer."""
        return [next(layer.parameters()).device for layer in self.layers]

    def measure(self, ids: Int[Tensor, "B n"], observe: Observer | None = None) -> BatchReading:
        """Return the reading of a batch of prompts of equal length, handing each layer's attention to ``observe``.

        Parameters
        ----------
        ids
            Token ids, without padding.
        observe
            Called once a layer, in order, with that layer's :class:`AttentionReading`.

        Raises
        ------
        NotFinite
            At the first layer with a NaN or Inf, or for the gradient.
        """
        x = self.embeddings(ids).requires_grad_(True)
        with torch.enable_grad():
            logits, norms = self._watched(x, observe)
        _check_norms(*norms)
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.enable_grad():
            p = logits[:, -1].to(wide).softmax(-1).amax(-1)
        _check_finite("the next token's probability", p.detach().cpu()[:, None])
        (gradient,) = torch.autograd.grad(p.sum(), x)
        gradient, x = gradient.to(wide), x.detach().to(wide)
        reading = BatchReading(
            lambda_frobenius=_share(*(norm.square().sum(-1).sqrt() for norm in norms)).T.cpu(),
            lambda_token=_share(*norms).mean(-1).T.cpu(),
            influence=gradient.norm(dim=-1).double().cpu(),
            influence_signed=(gradient * x).sum(-1).double().cpu(),
            probability=p.detach().double().cpu(),
        )
        _check_finite("the gradient", reading.influence)
        return reading

    def forward(self, ids: Int[Tensor, "B n"], observe: Observer) -> None:
        """Run a forward pass alone, handing each layer's attention to ``observe``."""
        with torch.no_grad():
            self._watched(self.embeddings(ids), observe)

    def logits(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B v"]:
        """Return the last position's next-token logits for input embeddings, with the position bias as measured."""
        return self._watched(x, None)[0][:, -1]

    def losses(self, ids: Int[Tensor, "B n"], observe: Observer | None = None) -> Float[Tensor, "B m"]:
        """Return the next token's loss in nats at each position but the last, m = n - 1, by a forward pass alone."""
        with torch.no_grad():
            logits = self._watched(self.embeddings(ids), observe, keep=0)[0][:, :-1]
        return nn.functional.cross_entropy(logits.float().mT, ids[:, 1:].to(logits.device), reduction="none").cpu()

    def embeddings(self, ids: Int[Tensor, "B n"]) -> Float[Tensor, "B n d"]:
        """Return the input embeddings of token ids: what influence is a derivative by."""
        embed: Any = self.model.get_input_embeddings()  # type: ignore[operator]
        return embed(ids.to(embed.weight.device)).detach()

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
        self.inputs: list[Tensor] = []  # ‖x_i‖ for each layer, (B, n)
        self.outputs: list[Tensor] = []  # ‖a_i‖
        self.seen: list[int] = []  # layers whose softmax was seen
        self.working: int | None = None  # the layer whose attention module is at work
        self.arguments: Any = None
        self.product: Tensor | None = None
        self.masks: dict[tuple[int, int], Any] = {}  # what was read off a mask and a bias, until the pass ends

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
        after += [(output, self._attention_out) for output in outputs]
        after += [(stream, self._stream_out) for stream in streams if stream is not None]
        with hooked(before, after), self:
            yield

    def complete(self) -> None:
        """Raise unless every layer was seen once, in order: a changed implementation must not go unnoticed."""
        T = self.instrument.T
        if self.seen != list(range(T)) or len(self.inputs) != T or len(self.outputs) != T:
            raise RuntimeError(f"expected one softmax in each of {T} layers, received layers {self.seen}")
        self.masks.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self.working is not None:
            if func in SOFTMAX:
                self._softmax(args[0] if args else kwargs["input"], out)
            elif func in BADDBMM and out.dtype.itemsize < 4 and not self.instrument.family.exact_in_16_bit:
                self.product = _exact_product(*args[1:], **kwargs)
        return out

    def _layer_in(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.inputs.append(_token_norms(given(args, kwargs)))

    def _stream_out(self, module: nn.Module, args: Any, out: Any) -> None:
        self.inputs.append(_token_norms(returned(out)))

    def _attention_out(self, module: nn.Module, args: Any, out: Any) -> None:
        self.outputs.append(_token_norms(returned(out)))

    def _enter(self, t: int) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            bound = signature(module.forward).bind(*args, **kwargs).arguments
            named = {**bound.get("kwargs", {}), **{name: x for name, x in bound.items() if name != "kwargs"}}
            self.working, self.product = t, None
            family = self.instrument.family
            read_from = named.get("attention_mask"), named.get(family.biased or "")
            key = (id(read_from[0]), id(read_from[1]))
            if key not in self.masks:  # which keeps the tensors alive, so that no id comes twice in a pass
                with torch.no_grad():
                    bias = family.bias(named, module, self.n) if family.bias else None
                    self.masks[key] = (
                        read_from,
                        named.get(family.biased or ""),
                        *_read_mask(named, bias, self.n, self.instrument.causal),
                    )
            _, replaced, *self.arguments = self.masks[key]
            if family.biased and replaced is not kwargs.get(family.biased):
                return args, {**kwargs, family.biased: replaced}
            return None

        return hook

    def _leave(self, module: nn.Module, args: Any, out: Any) -> None:
        self.working = self.product = None

    def _softmax(self, logits: Tensor, probabilities: Tensor) -> None:
        t = self.working
        assert t is not None
        self.seen.append(t)
        if self.observe is None:
            return
        bias, allowed = self.arguments
        shape = logits.shape
        product = None if self.product is None else self.product.view(shape)
        with torch.no_grad():
            self.observe(AttentionReading(t, logits.detach(), probabilities.detach(), bias, allowed, product))


def _read_mask(arguments: dict[str, Any], bias: Tensor | None, n: int, causal: bool) -> tuple[Tensor | None, Tensor]:
    """Return the whole position bias, and the keys that are allowed, for prompts without padding.

    A boolean mask is True where a key is hidden (MPT); any other holds what is added to the logits.
    """
    mask = arguments.get("attention_mask")
    if mask is None or mask.dim() != 4:
        raise RuntimeError("expected a mask of four dimensions in the attention module, received another")
    mask = mask[0, ..., -n:]
    if mask.dtype == torch.bool:
        allowed = ~mask[0]
    else:
        allowed = mask[0] > torch.finfo(mask.dtype).min / 2
        carried = mask.float().masked_fill(~allowed, 0.0)
        if carried.any():
            bias = carried if bias is None else bias.float() + carried
    if not allowed.diagonal().all() or (causal and allowed.triu(1).any()):
        raise RuntimeError("expected a causal mask in which every query sees itself, received another")
    return None if bias is None else bias.float(), allowed


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

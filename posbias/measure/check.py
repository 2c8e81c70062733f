"""What is checked of a model before it is measured: that the instrument sees what the model does.

Each comparison is by means that do not use what it compares. Measuring raises on the first that fails; whoever adds a
family has all of them printed, and more (:mod:`posbias.models.check`).
"""

import json
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias import errors
from posbias.measure.instrument import Instrument, NotFinite
from posbias.models.attention import computed
from posbias.models.families import row_of
from posbias.models.hooks import After, Before, given, hooked, regiven, rereturned, returned
from posbias.models.mixers import Seen
from posbias.models.weights import coded_layers, works_on

TOKENS = 256
"""Tokens of the prompt, at most."""
LAST = 16
"""Positions in its last quarter, at most, of which one is taken: where the next token is neither certain nor a draw."""
DIRECTIONS = 2
"""Random directions along which derivatives are compared."""
STEP = 5e-4
"""Step of finite differences, in sizes of each token's embedding."""
LOGITS, SUMS, GRADIENT = 1e-3, 1e-3, 0.05
"""How far off logits may be, of their range; sums, of the stream; derivatives, of their own size."""
ROUNDED = 50
"""How many times further off logits and sums may be in 16 bits, and where layers round what they are given."""
QUERIES = 16
"""Last tokens of the prompt, at most, whose parts are added up."""
HIDDEN = 0.25
"""Share of a finite difference that is rounding or curvature, from which on it says nothing."""
TOPK = {torch.topk, Tensor.topk}
RELU = {torch.nn.functional.relu, torch.relu, Tensor.relu}


class Comparison(NamedTuple):
    """Say how far two ways to one number are apart."""

    what: str
    off: float | None
    """Infinite where one of them fails; None where nothing can be compared."""
    within: float
    fields: str
    """Fields of the family's row that it depends on."""
    error: ValueError | None = None
    """What is raised in measuring where they do not agree."""
    why: str = "hidden by rounding"
    """Why nothing can be compared, where that is so."""

    @property
    def holds(self) -> bool:
        """Whether they agree."""
        return self.off is None or self.off <= self.within

    def __str__(self) -> str:
        off = f"not comparable: {self.why}" if self.off is None else f"{self.off:.1e} off"
        return f"{self.what}: {off}, {'ok' if self.holds else f'OFF, look at {self.fields}'}"


def check_instrument(instrument: Instrument, ids: Int[Tensor, "n"]) -> str:
    """Return how far an instrument is from its model on a prompt, as JSON, or raise ValueError if it is too far."""
    computes = [getattr(module, "compute_dtype", None) for module in instrument.model.modules()]  # of bitsandbytes
    narrow = {torch.bfloat16, torch.float16} & {*computes, *(x.dtype for x in instrument.model.parameters())}
    bits = 16 if narrow else 32
    try:
        tokens, every = compare_model(instrument, ids[None, :TOKENS], bits)
    except NotFinite:  # which the measurement reports, and where
        return "{}"
    for one in every:
        if not one.holds and one.error is not None:
            raise one.error
    T = instrument.T
    numbers = {
        "logits": every[0].off,
        "sums": max((float(one.off or 0) for one in every[1 : T + 1]), default=None),
        "parts": max((one.off for one in every[T + 1 : -1] if one.off is not None), default=None),
        "gradient": every[-1].off,
    }
    rounded = {name: None if x is None else float(f"{x:.2g}") for name, x in numbers.items()}
    return json.dumps({"bits": bits, "tokens": tokens, **rounded})


def compare_model(instrument: Instrument, ids: Int[Tensor, "1 n"], bits: int) -> tuple[int, list[Comparison]]:
    """Compare an instrument with its model on a prompt: its tokens, fewer by a few, and logits, sums and gradient."""
    made = _FixedChoice(1)
    ids, own = _undecided(instrument, ids, made)
    sums, x = sums_apart(instrument, ids), instrument.embeddings(ids)
    gradient, parts = _gradient(instrument, ids)
    u = _directions(x)
    steps = torch.cat([x, x + STEP * u, x - STEP * u]) if bits == 32 else x
    with torch.no_grad(), _FixedChoice(len(steps), made.experts):
        z = instrument.logits(steps).cpu()
    off = derivatives_apart(z.double(), u, gradient) if bits == 32 else None
    if off is None and _is_missing(instrument, x, gradient):
        off = 1.0
    spread = (own.max() - own.min()).clamp_min(torch.finfo(own.dtype).tiny)  # 0 of a head without weights
    coded, config = coded_layers(instrument.model), cast("Any", instrument.model.config)
    factor = ROUNDED if bits < 32 or coded else 1
    how = "is watched" if instrument.layers else "is given embeddings in place of tokens"
    if instrument.layers and config._attn_implementation != _own_attention(instrument):
        how = "computes fused attention; try --attention eager"
    apart, within = float((z[0].float() - own).abs().max() / spread), factor * LOGITS
    expected = f"the model's own within {within:.1%} of their range"
    error = errors.invalid("self-check of the logits", expected, f"{apart:.2g} off as {config.model_type} {how}")
    what = "logits of a watched pass, against the model's own"
    found = [Comparison(what, apart, within, "calls, scale, bias", error)]
    found += _compare_sums(instrument, sums, factor)
    found += _compare_parts(instrument, parts, factor)
    received = f"{off or 0:.2g} off{f'; weights are codes, in {coded[0]}' if coded else ''}"
    error = errors.invalid("self-check of the gradient", f"finite differences within {GRADIENT:.0%}", received)
    found.append(Comparison("gradient, against finite differences", off, GRADIENT, "blocks", error))
    return ids.shape[1], found


def _compare_sums(instrument: Instrument, sums: list[float], factor: int) -> Iterator[Comparison]:
    """Yield for each layer whether it adds a_t to x_t."""
    name = _name(instrument)
    for t, one in enumerate(sums):
        expected = f"x + a inside the layer, a as the row of {name} finds it"
        error = errors.invalid(f"self-check of layer {t}", expected, f"{one:.2g} of x off")
        what = f"x + a of layer {t}, against what the layer reads next"
        yield Comparison(what, one, factor * SUMS, "output, multiplier, parallel, stream", error)


def _compare_parts(instrument: Instrument, parts: dict[int, float], factor: int) -> Iterator[Comparison]:
    """Yield for each layer whether a_t is the sum of its parts and biases."""
    for t in range(instrument.T):
        kind = instrument.family.kind_of(instrument.layers[t])
        what = f"parts and biases of layer {t}, against a"
        fields = "gate, output, multiplier" if kind == "attention" else f"mixers ({kind})"
        if t not in parts:
            yield Comparison(what, None, factor * SUMS, fields, why=str(instrument.mixer(t).lacking()))
            continue
        expected = f"parts and biases that add up to a, as {kind} of {_name(instrument)} makes them"
        error = errors.invalid(f"self-check of the parts of layer {t}", expected, f"{parts[t]:.2g} of a off")
        yield Comparison(what, parts[t], factor * SUMS, fields, error)


def _name(instrument: Instrument) -> str:
    """Return the architecture's name."""
    config: Any = instrument.model.config
    return str(config.model_type)


def _gradient(instrument: Instrument, ids: Int[Tensor, "1 n"]) -> tuple[Float[Tensor, "1 n d"], dict[int, float]]:
    """Return the gradient of p by a prompt's input embeddings, and how far each layer's parts are from what it adds."""
    found: list[Tensor] = []
    watch = PartsWatch(instrument)

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        kwargs["inputs_embeds"].register_hook(found.append)

    with hooked([(instrument.model, enter)], watch.hooks()):
        instrument.measure(ids, watch.observe)
    return found[0], watch.off


class PartsWatch:
    """Compare what each layer adds to the last tokens of a prompt with its parts and biases, while the layers run."""

    def __init__(self, instrument: Instrument) -> None:
        self.instrument = instrument
        self.off: dict[int, float] = {}
        self.sums: dict[int, Float[Tensor, "q d"]] = {}

    def hooks(self) -> list[tuple[nn.Module, After]]:
        """Return the hooks that see what layers add."""
        layers = enumerate(self.instrument.layers)  # none of a family without a row
        return [(self.instrument.family.output_of(x), self._adds(t)) for t, x in layers]

    def observe(self, seen: Seen) -> None:
        """Add up a layer's parts and biases, if they can be read."""
        mixer, n = self.instrument.mixer(seen.layer), seen.shape[-1]
        if mixer.lacking() is None:
            made, queries = next(iter(mixer.prompts(seen))), slice(max(0, n - QUERIES), n)
            self.sums[seen.layer] = made.parts(queries).sum(0) + made.biases(queries)

    def _adds(self, t: int) -> After:
        times = self.instrument.family.multiplier(self.instrument.layers[t])

        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if t in self.sums:
                total = self.sums.pop(t)
                own = returned(output).detach().flatten(0, -2)[-len(total) :].float() * times
                size = own.norm().clamp_min(torch.finfo(own.dtype).tiny)
                self.off[t] = float((total - own).norm() / size)

        return hook


def derivatives_apart(
    z: Float[Tensor, "m v"], u: Float[Tensor, "k n d"], gradient: Float[Tensor, "1 n d"]
) -> float | None:
    """Return how far the gradient of p is from central differences along directions ``u``, None if they are hidden.

    The logits ``z`` are those of the prompt, of a step each way, and of a step back; choices with which p jumps
    or bends are held fixed there, as they are in a gradient. Compared are derivatives of log p/(1 - p), p of the most
    likely token, or of all that are equally likely; how far they are apart is a root mean square over directions,
    divided by that of the derivatives.
    """
    p = z[0].float().softmax(-1)
    top = p == p.max()
    P = float(p[top].double().sum())
    if top.all() or not 0 < P < 1:
        return None
    margin = z[:, top].logsumexp(-1) - z[:, ~top].logsumexp(-1)
    middle, up, down = margin.split([1, DIRECTIONS, DIRECTIONS])
    slopes = (gradient.to(u) * u).sum((-2, -1)).double().cpu() * int(top.sum()) / (P * (1 - P))
    differences = (up - down) / (2 * STEP)
    largest = max(_size(slopes), _size(differences))
    if _size(up + down - 2 * middle) > HIDDEN * _size(up - down):
        return None
    return _size(slopes - differences) / largest if largest > 0 else 0.0


def _is_missing(instrument: Instrument, x: Float[Tensor, "1 n d"], gradient: Float[Tensor, "1 n d"]) -> bool:
    """Tell whether tokens without any gradient have an effect when they are replaced, far more than rounding."""
    dead = gradient.norm(dim=-1, keepdim=True).to(x.device) == 0
    if not dead.any():
        return False
    with torch.no_grad():
        z, other = instrument.logits(torch.cat([x, torch.where(dead, _directions(x)[:1], x)])).float()
    return bool((other - z).abs().max() > ROUNDED * LOGITS * (z.max() - z.min()))


def _directions(x: Float[Tensor, "1 n d"]) -> Float[Tensor, "k n d"]:
    """Return random vectors of the sizes of embeddings, the same whenever they are drawn."""
    u = torch.randn(DIRECTIONS, *x.shape[1:], generator=torch.Generator().manual_seed(0)).to(x)
    return u / u.norm(dim=-1, keepdim=True) * x.norm(dim=-1, keepdim=True)


def sums_apart(instrument: Instrument, ids: Int[Tensor, "1 n"]) -> list[float]:
    """Return for each layer how far it is from adding a_t, where its family's row finds it, to x_t; of the size of x_t.

    The prompt goes through twice. The second time a layer enters the stream with zeros and its attention gives
    x_t + a_t: what the layer gives must be the same. Where the MLP reads what attention reads, the stream stays, the
    attention gives x_t + a_t, and the layer must give x_t more.
    """
    if not instrument.layers:
        return []
    family, model = instrument.family, instrument.model
    parallel = family.is_parallel(model.config)
    streams: list[Tensor] = []
    found: list[float] = []
    before: list[tuple[nn.Module, Before]] = []
    after: list[tuple[nn.Module, After]] = []

    def entered(x: Tensor) -> Tensor:
        streams.append(x[:1])
        return x if parallel else torch.cat([x[:1], torch.zeros_like(x[:1])])

    def summed(multiplier: float) -> After:
        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            a = returned(output)[:1]
            return rereturned(output, torch.cat([a, a + streams[-1] / multiplier]))

        return hook

    def left(module: nn.Module, args: Any, output: Any) -> Any:
        y, x = returned(output), streams.pop()
        off = (y[1:] - y[:1] - (x if parallel else 0)).float().norm() / x.float().norm()
        found.append(float(off))
        return rereturned(output, y[:1].expand(2, -1, -1))

    for layer in instrument.layers:
        stream = family.stream_of(layer)
        if stream is None:
            before.append((layer, lambda module, args, kwargs: regiven(args, kwargs, entered(given(args, kwargs)))))
        else:
            after.append((stream, lambda module, args, output: rereturned(output, entered(returned(output)))))
        after += [(family.output_of(layer), summed(family.multiplier(layer))), (layer, left)]
    with torch.no_grad(), hooked(before, after):
        instrument.logits(instrument.embeddings(ids).expand(2, -1, -1))
    return found


class _FixedChoice(TorchFunctionMode):
    """Choose for every prompt of a batch what is chosen for the first: experts, and the units that a ReLU lets pass.

    Experts are those of another pass where there was one, on the same tokens and perhaps more: eager and fused
    attention are rounded differently, which may decide between two that are nearly as good.
    """

    def __init__(self, prompts: int, experts: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.prompts, self.given = prompts, iter(experts)
        self.experts: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in TOPK:
            self.experts.append(out.indices)
            size = out.indices.numel() // self.prompts
            chosen = self._as_first(out.indices, next(self.given, out.indices).reshape(-1)[:size])
            return type(out)((args[0].gather(-1, chosen), chosen))
        passed = out > 0 if func in RELU else out
        return args[0] * self._as_first(passed, passed.reshape(self.prompts, -1)[0]) if func in RELU else out

    def _as_first(self, x: Tensor, first: Tensor) -> Tensor:
        """Return what the first prompt has for all of them, in the shape of ``x``."""
        return first.expand(self.prompts, -1).reshape(x.shape)


def _undecided(
    instrument: Instrument, ids: Int[Tensor, "1 n"], mode: _FixedChoice
) -> tuple[Int[Tensor, "1 m"], Float[Tensor, "v"]]:
    """Return the prompt up to a last position where p has a gradient, the logits there by the model alone."""
    model: Any = instrument.model
    keep = min(LAST, -(-ids.shape[1] // 4))
    options = {"use_cache": False, "logits_to_keep": keep}
    options = {name: x for name, x in options.items() if name in signature(model.forward).parameters}
    there = ids.to(works_on(model.get_input_embeddings()))
    with torch.no_grad(), computed(model.config, _own_attention(instrument)), mode:
        logits = model(input_ids=there, **options).logits
    z = logits[0, -keep:].float().cpu()
    first, second = z.softmax(-1).topk(2).values.unbind(-1)
    k = int(torch.minimum(1 - first, 1 - second / first).argmax())
    return ids[:, : ids.shape[1] - keep + k + 1], z[k]


def _own_attention(instrument: Instrument) -> str:
    """Return which attention is the model's own: eager, unless transformers adds ALiBi twice there.

    It is the instrument's where no row says, and where layers round what they are given, which hides a difference.
    """
    config: Any = instrument.model.config
    family = row_of(config)
    if family is None or coded_layers(instrument.model):
        return str(config._attn_implementation)
    return "sdpa" if family.calls == "sdpa" else "eager"


def _size(x: Tensor) -> float:
    """Return the root mean square."""
    return float(x.square().mean().sqrt())

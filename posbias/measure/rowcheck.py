"""Try a row of the table of families: what the instrument sees by it, against the model's own numbers.

Each comparison is of one thing that a row says, by means that do not use what it says, so that a line which disagrees
names the field to look at.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias import errors
from posbias.measure.attention import AttentionReading
from posbias.measure.instrument import Instrument
from posbias.measure.plain import FAILS, PlainInstrument
from posbias.measure.selfcheck import sums_apart
from posbias.networks.families import Family, output_projection, row_of, soft_cap, text_config
from posbias.networks.hooks import After, Before, given, hooked, returned

WITHIN = 1e-4
"""How far off a number may be, of its size, in 32 bits."""
PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
BADDBMM = {torch.baddbmm, Tensor.baddbmm}


class Compared(NamedTuple):
    """Say how far two ways to one number are apart; infinitely far where one of them fails."""

    what: str
    fields: str
    """Fields of the row that it depends on."""
    off: float
    said: str = ""

    @property
    def holds(self) -> bool:
        """Whether they agree."""
        return self.off <= WITHIN

    def __str__(self) -> str:
        verdict = "ok" if self.holds else f"OFF, look at {self.fields}"
        return f"{self.what}: {self.off:.1e} off, {verdict}{f' ({self.said})' if self.said else ''}"


def check_paths(model: nn.Module, row: Family) -> None:
    """Raise ValueError for the first path of a row that is not in the model, with what is there."""
    T = text_config(model.config).num_hidden_layers
    try:
        layers = row.layers(model)
    except (AttributeError, TypeError):
        lists = ", ".join(path for path, one in model.named_modules() if isinstance(one, nn.ModuleList))
        raise errors.invalid(f"row {row.name}: blocks", f"a list of layers such as {lists}", row.blocks) from None
    if len(layers) != T:
        raise errors.invalid(f"row {row.name}: blocks", f"a list of {T} layers", f"{row.blocks}, of {len(layers)}")
    for field, find in (("attention", row.attention_of), ("output", row.output_of)):
        _find(row, field, layers[0], find)
    attention = row.attention_of(layers[0])
    if row.norm and _norms_before(layers[0]):
        _find(row, "norm", layers[0], row.norm_of)
    if row.latent is None:
        _find(row, "projections", attention, row.projections_of)
    for path in row.unrotated or ():
        _find(row, "unrotated", attention, lambda one, path=path: one.get_submodule(path))  # type: ignore[misc]
    _find(row, "scale", attention, lambda one: float(row.scale(one)))


def compared(model: Any, ids: Int[Tensor, "B n"]) -> Iterator[Compared]:
    """Yield what the row of a model's family says against the model's own numbers, on a few tokens, in eager attention.

    Raises
    ------
    ValueError
        For a path that is not in the model.
    """
    row = row_of(model.config)
    assert row is not None
    check_paths(model, row)
    instrument, plain = Instrument(model), PlainInstrument(model)
    x = instrument.embeddings(ids)
    double = bool(row.biased) and row.is_fused(model.config)  # eager attention adds the bias twice: see _falcon_bias
    if not double:
        own: Any = _tried(lambda: model(input_ids=ids, use_cache=False, output_attentions=True))
        yield Compared("logits of a watched pass", "bias", _off(lambda: instrument.logits(x), own.logits[:, -1]))
        influence = plain.measure(ids).influence
        seen = _off(lambda: instrument.measure(ids).influence, influence)
        yield Compared("influence, against autograd through the whole model", "blocks, attention, bias", seen)
    layers: list[SeenLayer] = []
    with Products() as products:
        _tried(lambda: instrument.forward(ids, lambda seen: layers.append(SeenLayer(instrument, seen, products))))
    if not double and own.attentions:
        pairs = zip(layers, own.attentions, strict=False)
        off = max((_apart(one.probabilities, A) for one, A in pairs), default=torch.inf)
        off = off if len(layers) == len(own.attentions) else torch.inf
        yield Compared("attention, against the model's output_attentions", "attention", off)
    yield Compared("softmax of content and bias, against attention", "bias", max(one.softmax for one in layers))
    yield Compared("content logits, against a multiple of q·k", "bias, attention", max(one.product for one in layers))
    said = f"they are {layers[0].factor:.6g} times q·k, the row says {float(row.scale(instrument.attentions[0])):.6g}"
    scale = max(one.scale for one in layers)
    yield Compared("scale, against that multiple", "scale", scale, "" if scale <= WITHIN else said)
    try:
        sums = sums_apart(instrument, ids[:1])
    except FAILS as error:
        yield Compared(
            "x_t + a_t, against what the layer reads next", "output, stream, parallel", torch.inf, _why(error)
        )
    else:
        yield Compared(
            "x_t + a_t, against what the layer reads next", "output, multiplier, parallel, stream", max(sums)
        )
    yield _reads(instrument, ids)
    if row.latent is None:
        yield values_compared(instrument, ids)
    if row.is_fused(model.config):
        yield _fused(model, instrument, ids)


class Products(TorchFunctionMode):
    """Remember the last product of two matrices."""

    last: tuple[Tensor, Tensor] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS | BADDBMM:
            named = tuple(kwargs[name] for name in ("batch1", "batch2") if name in (kwargs or {}))
            pair = (args[1:] + named)[:2] if func in BADDBMM else args[:2]
            if len(pair) == 2 and all(one.dim() >= 3 for one in pair):
                self.last = pair
        return func(*args, **(kwargs or {}))


class SeenLayer:
    """Hold what one layer's attention shows, and how far it is from the product of its queries and keys."""

    def __init__(self, instrument: Instrument, seen: Any, products: Products) -> None:
        assert isinstance(seen, AttentionReading)
        attention, B, n = instrument.attentions[seen.layer], seen.shape[0], seen.shape[-1]
        self.probabilities = seen.probabilities.clone()
        content, allowed = seen.content(), seen.allowed.expand(B, seen.shape[1], n, n)
        logits = content if seen.bias is None else content + seen.bias
        weights = logits.masked_fill(~allowed, -torch.inf).softmax(-1) * self.probabilities.sum(-1, keepdim=True)
        self.softmax = _apart(weights, self.probabilities)
        self.product = self.scale = torch.inf
        self.factor = torch.nan
        cap = soft_cap(attention)
        z = (content if cap is None else cap * (content / cap).atanh())[allowed]
        if products.last is not None:
            q, k = products.last
            product = (q.float() @ k.float()).reshape(-1, seen.shape[1], n, n).expand_as(content)[allowed]
            self.factor = float((z @ product) / (product @ product))
            self.product = _apart(self.factor * product, z)
            stated = float(instrument.family.scale(attention))
            self.scale = abs(self.factor / stated - 1)
            if abs(self.factor - 1) < WITHIN:  # queries are multiplied before the product
                self.scale = 0.0


def _reads(instrument: Instrument, ids: Int[Tensor, "B n"]) -> Compared:
    """Compare what each layer's attention reads with the output of the row's norm; with x_t where the row has none."""
    row = instrument.family
    before: list[tuple[nn.Module, Before]] = []
    after: list[tuple[nn.Module, After]] = []
    said: dict[int, Tensor] = {}
    read: dict[int, Tensor] = {}

    def keep(there: dict[int, Tensor], t: int, x: Tensor) -> None:
        there.setdefault(t, x.detach())

    for t, (layer, attention) in enumerate(zip(instrument.layers, instrument.attentions, strict=True)):
        source = row.norm_of(layer) if row.norm and _norms_before(layer) else row.stream_of(layer)
        reader = row.projections_of(attention)[0] if row.latent is None else attention.get_submodule(row.latent[1])
        before.append((reader, lambda module, args, kwargs, t=t: keep(read, t, args[0])))  # type: ignore[misc]
        if source is None:
            before.append((layer, lambda module, args, kwargs, t=t: keep(said, t, given(args, kwargs))))  # type: ignore[misc]
        else:
            after.append((source, lambda module, args, output, t=t: keep(said, t, returned(output))))  # type: ignore[misc]
    what = "what attention reads, against the norm's output" if row.norm else "what attention reads, against x_t"
    with torch.no_grad(), hooked(before, after):
        instrument.logits(instrument.embeddings(ids))
    off = [_apart(said[t], read[t]) if t in said and t in read else torch.inf for t in range(instrument.T)]
    return Compared(what, "norm, projections", max(off))


def _norms_before(layer: Any) -> bool:
    return bool(getattr(layer, "do_layer_norm_before", True))


def values_compared(instrument: Instrument, ids: Int[Tensor, "B n"]) -> Compared:
    """Compare what the first layer's output projection is given with weights times values, by the row's projections."""
    row, attention = instrument.family, instrument.attentions[0]
    fields, found = "projections, groups", dict[Any, Tensor]()
    what = "attention times values, against what the output projection reads"

    def keep(name: int) -> Callable[..., None]:
        return lambda module, args, output: found.__setitem__(name, returned(output).detach())

    def read(module: nn.Module, args: Any, kwargs: Any) -> None:
        found["read"] = args[0].detach()

    weights: list[Tensor] = []
    made = row.projections_of(attention)
    try:
        with hooked([(output_projection(attention), read)], [(one, keep(k)) for k, one in enumerate(made)]):
            instrument.forward(ids, lambda seen: weights.append(seen.probabilities.clone()) if not weights else None)
        H = weights[0].shape[1]
        parts = [
            found[k][..., torch.from_numpy(row.columns(attention, k, found[k].shape[-1]) == "v")]
            for k in range(len(made))
        ]
        V = torch.cat([part.reshape(*ids.shape, -1) for part in parts], dim=-1)
        size = found["read"].shape[-1] // H
        V = V.view(*ids.shape, -1, size).repeat_interleave(H * size // V.shape[-1], dim=2)
        given = torch.einsum("bhij,bjhd->bihd", weights[0], V).reshape(found["read"].shape)
    except (*FAILS, StopIteration) as error:
        return Compared(what, fields, torch.inf, _why(error))
    return Compared(what, fields, _apart(given, found["read"]))


def _fused(model: Any, instrument: Instrument, ids: Int[Tensor, "B n"]) -> Compared:
    """Compare the same weights in a model with fused attention, watched and as it is, with the eager one."""
    what, off = "fused attention, against eager", []
    try:
        eager = instrument.measure(ids).influence
        other = type(model)._from_config(copy.deepcopy(model.config), attn_implementation="sdpa")
        other.load_state_dict(model.state_dict())
        for kind in (PlainInstrument, Instrument):
            off.append(_apart(kind(other).measure(ids).influence, eager))
    except FAILS as error:
        return Compared(what, "fused", torch.inf, _why(error))
    return Compared(what, "fused", max(off))


def _find(row: Family, field: str, module: nn.Module, find: Callable[[nn.Module], Any]) -> None:
    """Raise ValueError unless a field of a row finds what it names in a module."""
    try:
        find(module)
    except (AttributeError, StopIteration, TypeError) as error:
        there = ", ".join(name for name, _ in module.named_children())
        value: Any = getattr(row, field)
        named = str(error)[:80] if callable(value) else repr(value)
        raise errors.invalid(f"row {row.name}: {field}", f"what {type(module).__name__} has ({there})", named) from None


def _tried(run: Callable[[], Any]) -> Any:
    """Return what a pass gives, or raise ValueError with the reason why there is none."""
    with torch.no_grad():
        try:
            return run()
        except FAILS as error:
            raise errors.invalid("row", "one by which the model is watched", _why(error)) from None


def _off(find: Callable[[], Tensor], own: Tensor) -> float:
    """Return how far a number is from the model's own, of its size."""
    try:
        return _apart(find().detach(), own)
    except FAILS:
        return torch.inf


def _apart(one: Float[Tensor, "..."], own: Float[Tensor, "..."]) -> float:
    """Return the largest difference of two tensors, of the size of the largest number."""
    if one.shape != own.shape:
        return torch.inf
    return float((one.double() - own.detach().double()).abs().max() / own.detach().double().abs().max())


def _why(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__

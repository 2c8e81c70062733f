"""The norm before attention: what it divides by along the prompt, how large the parts of that are, what follows of it.

A norm that divides by less at later positions makes later keys larger, and attention more recent: which of two earlier
keys content logits prefer and where attention lies is read in a model as it is, and with other denominators.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from posbias.measure.instrument import Instrument
from posbias.measure.session import Session
from posbias.models.attention import Reading
from posbias.models.families import output_projection
from posbias.models.hooks import After, Before, hooked, returned
from posbias.models.norms import centres, denominators, size_over_features
from posbias.settings import Settings
from studies.interventions import losses_of
from studies.norms.courses import removals
from studies.reference.measure import untrained_twin

PARTS = ("input", "branches", "rest", "branch", "values")
"""Sizes that :func:`read_sizes` reads of each layer t, in this order.

``input``: x_t, what enters the norm. It is x_0 + ``branches`` + ``rest``: the attention branches of all earlier
layers, Σ_{s<t} a_s, and what else the layers added, the feed-forward blocks. ``branch``: a_t. ``values``: the averages
Σ_j A_ij v_j of all heads side by side, before the output projection.
"""

CONDITIONS = {
    "intact": None,
    "keys": ("k", "constant"),
    "all": ("qkv", "constant"),
    "keys course": ("k", "smooth"),
    "keys shuffled": ("k", "shuffled"),
}
"""Which projections get other denominators, and what is removed: a rule of :func:`~studies.norms.courses.removals`."""

CONTROLS = ("intact", "keys", "keys course", "keys shuffled")
"""Conditions in which untrained networks are read."""

INFLUENCE = ("intact", "keys", "keys course", "all")
"""Conditions in which the influence of text is measured, on half of the prompts."""

QUERIES = 16
"""How many positions count as queries, equally spaced, the last one included."""


class _Sizes:
    """Sizes of x_t and of its parts, which hooks fill in for the rows of prompts that pass through."""

    def __init__(self, instrument: Instrument, N: int, n: int) -> None:
        self.instrument = instrument
        self.norms = [instrument.family.norm_of(layer) for layer in instrument.layers]
        self.found = np.zeros((N, instrument.T, len(PARTS), n), dtype=np.float32)
        self.rows = slice(0)
        self.start, self.added = torch.empty(0), torch.empty(0)  # x_0, and the sum of the branches so far

    def keep(self, t: int, part: str, x: Tensor, centred: bool) -> None:
        """Write down a part's size."""
        self.found[self.rows, t, PARTS.index(part)] = size_over_features(x, centred).cpu().numpy()

    def enter(self, t: int) -> Before:
        """Return the hook of what a layer's norm is given."""

        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            x, centred = args[0].detach(), centres(module)
            if t == 0:
                self.start, self.added = x, torch.zeros_like(x)
            self.keep(t, "input", x, centred)
            self.keep(t, "branches", self.added, centred)
            self.keep(t, "rest", x - self.start - self.added, centred)

        return hook

    def average(self, t: int) -> Before:
        """Return the hook of the averages that an output projection is given."""
        return lambda module, args, kwargs: self.keep(t, "values", args[0].detach(), False)

    def leave(self, t: int) -> After:
        """Return the hook of what an attention branch adds."""

        def hook(module: nn.Module, args: Any, output: Any) -> None:
            a = returned(output).detach()
            self.keep(t, "branch", a, centres(self.norms[t]))
            self.added = self.added + a

        return hook

    def hooks(self) -> tuple[list[tuple[nn.Module, Before]], list[tuple[nn.Module, After]]]:
        """Return all hooks, those before a module and those after one."""
        attentions, layers = self.instrument.attentions, self.instrument.layers
        before = [(norm, self.enter(t)) for t, norm in enumerate(self.norms)]
        before += [(output_projection(attention), self.average(t)) for t, attention in enumerate(attentions)]
        return before, [(self.instrument.family.output_of(layer), self.leave(t)) for t, layer in enumerate(layers)]


def read_sizes(
    instrument: Instrument, ids: Int[np.ndarray, "N n"], batch_size: int = 8
) -> Float[np.ndarray, "N T parts n"]:
    """Return the size of x_t and of its parts at every layer and position, in the measure of the layer's norm.

    The measure is the standard deviation over the features before LayerNorm and the root mean square before RMSNorm;
    for ``values``, which no norm sees, always the root mean square. Parts are those of :data:`PARTS`.
    """
    sizes = _Sizes(instrument, *ids.shape)
    with hooked(*sizes.hooks()):
        for first in range(0, len(ids), batch_size):
            sizes.rows = slice(first, first + batch_size)
            instrument.forward(torch.from_numpy(ids[sizes.rows]), lambda reading: None)
    return sizes.found


def octave_slopes(sizes: Float[np.ndarray, "... n"], first: int = 1) -> Float[np.ndarray, "..."]:
    """Return the exponent c of size ∝ (j + 1)^c: the slope of log size by log position, each octave counting alike.

    >>> float(octave_slopes(np.array([9.0, 1.0, 1.5**-0.5, 2**-0.5])).round(6))
    -0.5
    """
    u = np.log(np.arange(first, sizes.shape[-1]) + 1.0)
    weight = np.exp(-u)  # positions in an octave are as many as its beginning
    u = u - (weight @ u) / weight.sum()
    return np.asarray(np.log(sizes[..., first:]) @ (weight * u) / (weight @ u**2))


@contextmanager
def replaced_denominators(
    instrument: Instrument, typical: Float[np.ndarray, "T n"], parts: str = "k", *, own: bool = False
) -> Iterator[None]:
    """Let the norms before attention divide by numbers that do not depend on position, for queries, keys or values.

    ``typical`` is what the norms divide by at each layer and position, typically. Every token of layer t is divided by
    the geometric mean of ``typical[t]``; with ``own`` its own denominator stays but for the factor by which
    ``typical[t]`` at its position exceeds this mean, so that tokens still differ and the typical course along the
    prompt is gone. ``parts`` are some of the letters q, k and v: all else takes the norm's output as it is.
    """
    logs = torch.from_numpy(np.log(typical))
    family = instrument.family
    normed: dict[int, Tensor] = {}  # the norm's output with the other denominators

    def divide(t: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            if own:
                factor = (logs[t] - logs[t].mean()).exp()[:, None].to(output)
            else:
                factor = (denominators(module, args[0]) * (-logs[t].mean()).exp().item()).to(output.dtype)
            bias: Any = getattr(module, "bias", None)
            normed[t] = output * factor if bias is None else (output - bias) * factor + bias

        return hook

    def project(t: int, k: int) -> Any:
        def hook(module: Any, args: Any, output: Tensor) -> Tensor:
            letters = family.columns(instrument.attentions[t], k, output.shape[-1])
            chosen = torch.from_numpy(np.isin(letters, list(parts))).to(output.device)
            return torch.where(chosen, module.forward(normed[t]), output)

        return hook

    after: list[tuple[nn.Module, After]] = []
    for t, (layer, attention) in enumerate(zip(instrument.layers, instrument.attentions, strict=True)):
        after.append((family.norm_of(layer), divide(t)))
        after += [(projection, project(t, k)) for k, projection in enumerate(family.projections_of(attention))]
    with hooked(after=after):
        yield


@dataclass(frozen=True)
class RecencyReading:
    """Hold how recent the attention of N prompts is, in the model as it is or inside an intervention.

    ``preference`` is the recency probability of content logits: the share of triples k < j < i with logit_ij above
    logit_ik, over the queries i that are read, keys they may see, and heads; ``positive`` the share of these logits
    above 0. ``position`` is the mean of Σ_j A_ij j / i over all queries i ≥ 1 and heads: where attention lies between
    the first token (0) and the query (1). ``loss`` is that of the next token, in nats.
    """

    preference: Float[np.ndarray, "N T"]
    positive: Float[np.ndarray, "N T"]
    position: Float[np.ndarray, "N T"]
    loss: Float[np.ndarray, "N"]


def read_recency(
    instrument: Instrument, ids: Int[np.ndarray, "N n"], queries: Int[np.ndarray, "q"], batch_size: int = 8
) -> RecencyReading:
    """Return the recency of a model's attention on prompts, by forward passes; queries are at 2 or later."""
    N, n = ids.shape
    preference, positive, position = (np.empty((N, instrument.T)) for _ in range(3))
    loss = np.empty(N)
    for start in range(0, N, batch_size):
        rows = slice(start, start + batch_size)

        def observe(reading: Reading, rows: slice = rows) -> None:
            t, content = reading.layer, reading.content()
            share, above = later_preferred(content, reading.allowed, queries)
            preference[rows, t], positive[rows, t] = share.mean(-1).cpu().numpy(), above.mean(-1).cpu().numpy()
            j = torch.arange(n, device=content.device, dtype=torch.float32)
            mean = (reading.probabilities.float() @ j)[..., 1:] / j[1:]
            position[rows, t] = mean.mean((-1, -2)).cpu().numpy()

        loss[rows] = losses_of(instrument, torch.from_numpy(ids[rows]), observe).double().mean(-1).numpy()
    return RecencyReading(preference, positive, position, loss)


def later_preferred(
    content: Float[Tensor, "B H n n"], allowed: Bool[Tensor, "n n"], queries: Int[np.ndarray, "q"]
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """Return the share of triples k < j < i with content_ij > content_ik, and the share of content_ij above 0."""
    i = torch.from_numpy(queries).to(content.device)
    seen = (allowed & torch.ones_like(allowed).tril(-1))[i]
    later = content[:, :, i].masked_fill(~seen, -torch.inf)  # what is hidden is greater than nothing
    earlier = content[:, :, i].masked_fill(~seen, torch.inf)
    greater = torch.zeros(content.shape[:2], dtype=torch.float64, device=content.device)
    for j in range(1, content.shape[-1]):
        rows = seen[:, j].nonzero()[:, 0]
        greater += (later[:, :, rows, j, None] > earlier[:, :, rows, :j]).flatten(2).float().sum(-1)
    keys = seen.sum(1)
    return greater / (keys * (keys - 1) / 2).sum(), (later > 0).sum((-1, -2)) / keys.sum()


def read_conditions(study: Session, conditions: tuple[str, ...], gradients: int) -> xr.Dataset:
    """Return sizes along the prompts, and recency and influence in some conditions."""
    instrument, ids = study.instrument, study.prompts.ids
    N, n = ids.shape
    sizes = read_sizes(instrument, ids)
    logs = np.log(sizes[:, :, PARTS.index("input")].astype(float))
    step = max(1, n // QUERIES)
    queries = np.arange(step, n + 1, step) - 1
    found = []
    for name in conditions:
        with_influence = gradients if name in INFLUENCE else 0
        found.append(_read_condition(study, name, logs, queries[queries >= 2], with_influence))
    variables = _variables(sizes, found)
    return xr.Dataset(
        {name: (dims, x.astype(np.float32), {"long_name": text}) for name, (dims, x, text) in variables.items()},
        coords={"condition": list(conditions), "part": list(PARTS)},
    )


def _variables(
    sizes: Float[np.ndarray, "N T parts n"], found: list[_Found]
) -> dict[str, tuple[tuple[str, ...], np.ndarray, str]]:
    """Return what is kept of sizes and of the conditions: dimensions, numbers and meaning by name."""
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing has been added before the first layer
        slopes = octave_slopes(sizes.astype(float))
        course = np.log(sizes.astype(float)).mean(0)
    course, slopes = (np.where(np.isfinite(x), x, np.nan) for x in (course, slopes))
    layers, prompts = ("condition", "prompt", "layer"), ("condition", "prompt")
    return {
        "slope": (
            ("prompt", "part", "layer"),
            slopes.swapaxes(1, 2),
            "exponent of the size along positions 1 to n-1, each octave counting alike",
        ),
        "course": (
            ("part", "position", "layer"),
            np.moveaxis(course, 0, -1),
            "mean over prompts of the logarithm of the size",
        ),
        "preference": (
            layers,
            np.stack([x.recency.preference for x in found]),
            "recency probability of content logits",
        ),
        "positive": (layers, np.stack([x.recency.positive for x in found]), "share of content logits above 0"),
        "attended": (
            layers,
            np.stack([x.recency.position for x in found]),
            "mean attended position, 0 first token, 1 the query",
        ),
        "influence_last": (prompts, np.stack([x.influence[:, -1] for x in found]), "influence of the last"),
        "loss": (prompts, np.stack([x.recency.loss for x in found]), "loss of the next token, in nats"),
    }


@dataclass(frozen=True)
class _Found:
    """Hold what one condition gave; influence normalised, not a number for prompts where it was not measured."""

    recency: RecencyReading
    influence: Float[np.ndarray, "N n"]


def _read_condition(
    study: Session, name: str, logs: Float[np.ndarray, "N T n"], queries: Int[np.ndarray, "q"], gradients: int
) -> _Found:
    """Return what one condition gives, with the influence of so many of the first prompts."""
    instrument, ids = study.instrument, study.prompts.ids
    (N, n), T = ids.shape, instrument.T
    recency = RecencyReading(np.empty((N, T)), np.empty((N, T)), np.empty((N, T)), np.empty(N))
    influence = np.full((N, n), np.nan)

    def read(rows: Int[np.ndarray, "rows"]) -> None:
        part = read_recency(instrument, ids[rows], queries)
        for field in fields(part):
            getattr(recency, field.name)[rows] = getattr(part, field.name)
        measured = rows[rows < gradients]
        for k in range(0, measured.size, 8):
            few = measured[k : k + 8]
            g = instrument.measure(torch.from_numpy(ids[few])).influence.numpy()
            influence[few] = g / g.sum(1, keepdims=True)

    how = CONDITIONS[name]
    if how is None:
        read(np.arange(N))
        return _Found(recency, influence)
    parts, rule = how
    for rows, typical in removals(rule, logs, study.settings.seed):
        with replaced_denominators(instrument, typical, parts, own=rule != "constant"):
            read(rows)
    return _Found(recency, influence)


def measure_norms(settings: Settings) -> xr.Dataset:
    """Measure a reference model and the untrained one on text: sizes along the prompt, recency and loss."""
    text = Session(settings)
    few = settings.prompts // 2
    sets = {"text": read_conditions(text, tuple(CONDITIONS), few)}
    with untrained_twin(settings.source, "unit") as twin:
        other = Session(replace(settings, source=twin))
        sets["untrained"] = read_conditions(other, CONTROLS, 0)
    data = xr.concat([x.expand_dims(data=[label]) for label, x in sets.items()], "data", join="outer", coords="minimal")
    return data.sel(condition=list(CONDITIONS)).assign_attrs(
        **text.provenance(),
        gradients=few,
        queries=QUERIES,
        courses="geometric means of the prompts of the other of two folds, smoothed",
        untrained="first weights of seed 0, standard deviation 1/√D, the same text",
    )

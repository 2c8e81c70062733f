"""Absolute position: logits and log Z at sampled pairs, position 0's path, heads that read it, and what leaks where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from posbias import errors
from posbias.measure.corpus import Prompts
from posbias.measure.instrument import Instrument
from posbias.measure.session import Session, cut_prompts
from posbias.models.attention import Reading
from posbias.models.families import output_projection, window
from posbias.models.hooks import given, hooked, returned
from posbias.provenance import versions
from posbias.settings import Settings
from posbias.shipped import PREFIX
from studies.absolute.interventions import bidirectional, replaced_embeddings
from studies.absolute.leakage import (
    Components,
    Leakage,
    PositionBasis,
    gram,
    leakage,
    position_basis,
    sample_pairs,
)
from studies.interventions import replaced_rope, rotary_module
from studies.summaries import shave

SOURCES = ("total", "denominators", "logits", "residual")
"""Parts of the attention's log weights whose leakage is kept: all, log Z, logits, and logits without the mask."""

EARLY = 32
"""Queries below this position count as early."""

WINDOW = 64
"""Offsets below this are near: what the narrowest sliding window lets through."""

PER_STRATUM = 48
"""Pairs that are sampled in each stratum of offsets."""

RESAMPLES, PERMUTATIONS = 400, 999
HEAD_PROMPTS = 64
"""How many prompts, at most, the attention to position 0 is read on."""

BARE = "bare"
"""Text without its start token."""

PATHS = 48
"""How many prompts position 0 is followed in, one by one."""

DRAWS = 8
"""Sets of random tokens in the control."""


@dataclass(frozen=True)
class PairReading:
    """Hold what N prompts' attention is at m pairs: the logit, and the exact log Z_i over the keys that i may see."""

    logits: Float[np.ndarray, "N T H m"]
    log_z: Float[np.ndarray, "N T H m"]

    @property
    def log_probabilities(self) -> Float[np.ndarray, "N T H m"]:
        """Logarithms of attention weights, logits less log Z."""
        return self.logits - self.log_z


def read_pairs(
    instrument: Instrument, ids: Int[np.ndarray, "N n"], pairs: Int[np.ndarray, "2 m"], batch_size: int = 8
) -> PairReading:
    """Return every head's logits and log Z_i at pairs (i, j), for the model as it is or inside an intervention."""
    i, j = (torch.from_numpy(x) for x in pairs)
    shape = (len(ids), instrument.T, instrument.H, pairs.shape[1])
    logits, log_z = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
    for rows, batch in _batches(ids, batch_size):

        def observe(reading: Reading, rows: slice = rows) -> None:
            if not reading.allowed[i, j].all():
                reach = int(reading.allowed.sum(1).max())
                raise errors.invalid(
                    "pairs", f"offsets below the window of {reach} in layer {reading.layer}", "larger ones"
                )
            logits[rows, reading.layer] = reading.logits[..., i, j].float().cpu().numpy()
            log_z[rows, reading.layer] = reading.logits.float().logsumexp(-1)[..., i].cpu().numpy()

        instrument.forward(batch, observe)
    return PairReading(logits, log_z)


def read_components(
    instrument: Instrument,
    ids: Int[np.ndarray, "N n"],
    basis: PositionBasis,
    batch_size: int = 8,
    units: Int[np.ndarray, "N"] | None = None,
) -> Components:
    """Return the leakage of a model's attention by source: one causal pass and one bidirectional pass."""
    rotary_module(instrument)
    causal = read_pairs(instrument, ids, basis.pairs, batch_size)
    with bidirectional(instrument):
        seen = read_pairs(instrument, ids, basis.pairs, batch_size)
    return Components(
        total=leakage(basis.both, causal.log_probabilities, units),
        denominators=leakage(basis.both, causal.log_z, units),
        logits=leakage(basis.both, causal.logits, units),
        cross=gram(basis.both, causal.logits, causal.log_z),
        residual=leakage(basis.both, seen.logits, units),
    )


def first_trajectory(
    instrument: Instrument, ids: Int[np.ndarray, "N n"], *, position: int = 0
) -> Float[np.ndarray, "N L D"]:
    """Return the residual stream at position 0: what goes into each layer, and what comes out of the last (L = T + 1).

    Prompts go one by one, so that each is computed by the same operations and equal numbers come out equal to the bit.
    """
    found: list[Tensor] = []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        found.append(given(args, kwargs)[0, position].detach().cpu().clone())

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        found.append(returned(output)[0, position].detach().cpu().clone())

    with hooked([(layer, enter) for layer in instrument.layers], [(instrument.layers[-1], leave)]):
        for _, batch in _batches(ids, 1):
            instrument.forward(batch, lambda reading: None)
    return torch.stack(found).float().numpy().reshape(len(ids), instrument.T + 1, -1)


def path_spread(path: Float[np.ndarray, "N L D"]) -> Float[np.ndarray, "L"]:
    """Return how much trajectories differ: root mean square deviation from their mean, over their root mean square.

    >>> path_spread(np.array([[[3.0, 4.0]], [[3.0, 4.0]]])), path_spread(np.array([[[1.0]], [[-1.0]]]))
    (array([0.]), array([1.]))
    """
    x = path.astype(np.float64)  # so that the mean of equal numbers is that number
    deviation = np.square(x - x.mean(0)).mean((0, 2))
    return np.sqrt(deviation / np.square(x).mean((0, 2)))


@dataclass(frozen=True)
class HeadReading:
    """Hold what every head takes from the first token and how alike its outputs are between prompts.

    All is over the queries from 1 on that may see position 0: ``first`` is the mean attention to it, ``uniform`` what
    uniform attention gives it, and ``outputs`` are G_pq = Σ_i ⟨o_p(i), o_q(i)⟩, o its output before the projection.
    """

    first: Float[np.ndarray, "N T H"]
    outputs: Float[np.ndarray, "T H N N"]
    uniform: Float[np.ndarray, "T"]

    def constancy(self) -> Leakage:
        """Return how much of the outputs' mean square all prompts share: its ``share`` is 1 if all are equal."""
        return Leakage(self.outputs, np.diagonal(self.outputs, axis1=-2, axis2=-1))


def read_heads(instrument: Instrument, ids: Int[np.ndarray, "N n"], batch_size: int = 8) -> HeadReading:
    """Return the reading of every head, by forward passes."""
    T, H, N = instrument.T, instrument.H, len(ids)
    first, uniform = np.zeros((N, T, H)), np.zeros(T)
    outputs: list[list[Tensor]] = [[] for _ in range(T)]
    sees: list[Tensor] = [torch.empty(0)] * T

    def keep(t: int) -> Any:
        return lambda module, args, kwargs: outputs[t].append(args[0].detach().float().cpu())

    with hooked(before=[(output_projection(a), keep(t)) for t, a in enumerate(instrument.attentions)]):
        for rows, batch in _batches(ids, batch_size):

            def observe(reading: Reading, rows: slice = rows) -> None:
                seen = reading.allowed[:, 0].clone()
                seen[0] = False
                sees[reading.layer] = seen.cpu()
                uniform[reading.layer] = float((1 / reading.allowed.sum(1).double())[seen].mean())
                first[rows, reading.layer] = reading.probabilities[:, :, seen, 0].float().mean(-1).cpu().numpy()

            instrument.forward(batch, observe)
    G = np.empty((T, H, N, N))
    for t, kept in enumerate(outputs):
        o = torch.cat(kept)[:, sees[t]].unflatten(-1, (H, -1)).permute(2, 0, 1, 3).flatten(2).double()
        G[t] = (o @ o.mT).numpy()
    return HeadReading(first, G, uniform)


def source_leakage(
    causal: PairReading,
    free: PairReading,
    keep: Bool[np.ndarray, "m"],
    pairs: Int[np.ndarray, "2 m"],
    units: Int[np.ndarray, "N"] | None = None,
) -> xr.Dataset:
    """Return the leakage of each of :data:`SOURCES` at the pairs that are kept."""
    basis = position_basis(pairs[:, keep])
    values = (causal.log_probabilities, causal.log_z, causal.logits, free.logits)
    found = [leakage(basis.both, y[..., keep], units) for y in values]
    layers = [x.pooled(1) for x in found]
    rows = ("part", "layer", "head")
    shares = np.stack([x.pooled((0, 1)).resampled_share(RESAMPLES) for x in found])
    return xr.Dataset(
        {
            "variance": (rows, np.stack([x.variance for x in found]), {"units": "nats²"}),
            "spread": (rows, np.stack([x.spread.mean(-1) for x in found]), {"units": "nats²"}),
            "p_value": (rows, np.stack([x.p_values(PERMUTATIONS) for x in found])),
            "resampled": (
                ("part", "resample", "layer"),
                shave(np.stack([x.resampled_variance(RESAMPLES) for x in layers]).astype(np.float32)),
                {"long_name": "variance of resampled documents, heads added", "units": "nats²"},
            ),
            "resampled_share": (("part", "resample"), shares.astype(np.float32)),
        },
        coords={"part": list(SOURCES)},
    )


Condition = tuple[Prompts, Callable[[], AbstractContextManager[None]]]
"""What is read, and the intervention under which it is."""


def measure_components(*settings: Settings, interventions: bool = True) -> xr.Dataset:
    """Measure where absolute position leaks in rotary models, on text that is cut.

    With interventions also without the start token, and in the first of the models under interventions; without them,
    for networks of another seed of training, on the text as it is. ``variance``, ``spread``, ``p_value``, ``resampled``
    and ``resampled_share`` are of each condition, ``MODEL INTERVENTION PAIRS``, and part; ``first`` is the mean
    attention to position 0.
    """
    studies = {_short(one): Session(one) for one in settings}
    pairs = sample_pairs(settings[0].length, PER_STRATUM, first_key=0)
    found: dict[str, xr.Dataset] = {}
    heads: list[np.ndarray] = []
    weights = []
    for k, (name, study) in enumerate(studies.items()):
        heads.append(read_heads(study.instrument, study.prompts.ids[:HEAD_PROMPTS]).first.mean(0))
        weights.append(f"{name} {study.provenance()['revision']}")
        for condition, reading in _conditions(study, interventions=interventions, all_of_them=k == 0).items():
            everywhere = interventions and k == 0
            found |= _leaks(study.instrument, reading, pairs, f"{name} {condition}", everywhere=everywhere)
    data = xr.concat(list(found.values()), "condition").assign_coords(condition=list(found), model=list(studies))
    data["first"] = (("model", "layer", "head"), np.stack(heads), {"long_name": "attention to position 0"})
    first = next(iter(studies.values()))
    about = {"model": ", ".join(studies), "weights": ", ".join(weights), "early": EARLY, "window": WINDOW}
    about |= {"per_stratum": PER_STRATUM, "permutations": PERMUTATIONS, **versions("scipy")}
    about["documents"] = int(np.unique(first.prompts.origins).size)
    return data.assign_attrs(first.provenance() | about)


def _conditions(study: Session, *, interventions: bool, all_of_them: bool) -> dict[str, Condition]:
    """Return what is read: the text as it is; with interventions also without its start token, and more for one."""
    text, instrument = study.prompts, study.instrument
    conditions: dict[str, Condition] = {"text": (text, nullcontext)}
    if interventions:
        conditions[BARE] = cut_prompts(replace(study.settings, special_tokens=False)), nullcontext
    if interventions and all_of_them:
        conditions["random"] = cut_prompts(replace(study.settings, rule="random")), nullcontext
        for by in ("identity", "scrambled"):
            conditions[by] = text, lambda by=by: replaced_rope(instrument, by)  # type: ignore[misc]
        for which in ("first", "all"):
            conditions[which] = text, lambda which=which: replaced_embeddings(instrument, which)  # type: ignore[misc]
    return conditions


def _leaks(
    instrument: Instrument, reading: Condition, pairs: np.ndarray, name: str, *, everywhere: bool
) -> dict[str, xr.Dataset]:
    """Return the leakage over several sets of pairs that the narrowest window lets through."""
    prompts, context = reading
    narrow = _narrowest(instrument)
    i, j = pairs = pairs[:, np.subtract(*pairs) < narrow] if narrow else pairs
    with context():
        causal = read_pairs(instrument, prompts.ids, pairs)
    with bidirectional(instrument), context():
        free = read_pairs(instrument, prompts.ids, pairs)
    near, rest, early = i - j < WINDOW, j > 0, i < EARLY  # rest: the first token is left out as a key
    keeps = {"near": near, "near-rest": near & rest} if name.endswith((" text", f" {BARE}")) else {}
    if everywhere:
        keeps |= {"all": near | True, "rest": rest, "early": early, "early-rest": early & rest}
    found = {which: source_leakage(causal, free, keep, pairs, prompts.origins) for which, keep in keeps.items()}
    return {f"{name} {which}": data for which, data in found.items()}


def measure_start(*settings: Settings) -> xr.Dataset:
    """Measure what stands at position 0 of cut text with a start token and without one, and which heads read it.

    ``path`` is the spread of position 0's trajectory over prompts (:func:`path_spread`), of each reading and place;
    ``peers`` the largest difference between prompts with the same first token, and ``path_next`` the spread of position
    1's. ``first`` is the mean attention to position 0 of each prompt and head, ``uniform`` what uniform attention would
    give, and ``varies`` the share of each head's output in which prompts differ. Models whose tokenizer has no start
    token are read without one alone.
    """
    found: dict[str, xr.Dataset] = {}
    for one in settings:
        study = Session(one)
        for label, special in (("start", True), (BARE, False)):
            prompts = cut_prompts(replace(one, special_tokens=special))
            if special and np.array_equal(prompts.ids, cut_prompts(replace(one, special_tokens=False)).ids):
                continue
            found[f"{_short(one)} {label}"] = _start(study.instrument, prompts.ids)
    data = xr.concat(list(found.values()), "reading", join="outer").assign_coords(reading=list(found))
    first = Session(settings[0])
    names = ", ".join(_short(one) for one in settings)
    about = {"model": names, "documents": int(np.unique(first.prompts.origins).size)}
    return data.assign_attrs(first.provenance() | about)


def _start(instrument: Instrument, ids: Int[np.ndarray, "N n"]) -> xr.Dataset:
    """Return what :func:`measure_start` keeps of one model and its prompts."""
    few = ids[:PATHS]
    path, after = (first_trajectory(instrument, few, position=k) for k in (0, 1))
    same = few[:, 0][:, None] == few[:, 0]
    peers = max(float(np.abs(path[k] - path[same[k]]).max()) for k in range(len(few)))
    heads = read_heads(instrument, ids)
    return xr.Dataset(
        {
            "path": (("place",), path_spread(path)),
            "path_next": (("place",), path_spread(after)),
            "peers": ((), peers, {"long_name": "largest difference between prompts of one first token"}),
            "tokens": ((), np.unique(few[:, 0]).size, {"long_name": "different first tokens"}),
            "first": (("prompt", "layer", "head"), heads.first.astype(np.float32)),
            "uniform": (("layer",), heads.uniform),
            "varies": (("layer", "head"), 1 - heads.constancy().share),
        },
        coords={"head": np.arange(heads.first.shape[-1])},  # models with fewer are filled up
    )


def _narrowest(instrument: Instrument) -> int | None:
    """Return the narrowest window of a model's layers, None where all see all of their past."""
    widths = [window(attention, instrument.model.config) for attention in instrument.attentions]
    return min((width for width in widths if width), default=None)


def _short(settings: Settings) -> str:
    return settings.source.model.removeprefix(PREFIX).rstrip("/").split("/")[-1]


def measure_control(settings: Settings) -> xr.Dataset:
    """Measure p-values where there is nothing to leak: first-layer logits of random tokens, the first key left out.

    There are :data:`DRAWS` sets of prompts, drawn from the seeds 0, 1, …
    """
    study = Session(settings)
    instrument = study.instrument
    basis = position_basis(sample_pairs(settings.length, PER_STRATUM))
    found = []
    for seed in range(DRAWS):
        ids = cut_prompts(replace(settings, seed=seed)).ids
        found.append(leakage(basis.both, read_pairs(instrument, ids, basis.pairs).logits[:, 0]))
    return xr.Dataset(
        {
            "p_value": (("draw", "head"), np.stack([x.p_values() for x in found])),
            "share": (("draw", "head"), np.stack([x.share for x in found])),
        },
        attrs={**study.provenance(), "seed": f"0 to {DRAWS - 1}", **versions("scipy")},
    )


def _batches(ids: Int[np.ndarray, "N n"], size: int) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(ids), size):
        yield slice(start, start + size), torch.from_numpy(ids[start : start + size])

"""The rungs of the ladder, measured of one model: its gradient by layers that are made simpler, one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs, ring
from posbias.measure.session import Session
from posbias.models.families import window
from posbias.rollout import masks
from posbias.settings import RUNGS, Settings
from studies.interventions import content_free, exchanged_rungs, mean, permuted_rungs, read_layers, shifted
from studies.ladder.rotary import read_rotary_means
from studies.ladder.rotary_kernels import distance_kernels
from studies.ladder.rung_tables import OWN, ROTARY, SHIFTED
from studies.reference.measure import untrained_twin
from studies.summaries import shave


def measure_rungs(settings: Settings, init: str = "", more: bool = False, pairings: int = 2) -> xr.Dataset:
    """Measure influence by every rung; of the model before training where ``init`` names an initial scale.

    With ``more`` there are rungs of other kernels in place of positions alone: :data:`SHIFTED`, and :data:`ROTARY`
    where it applies.

    ``pairings`` is the number of random pairings of each batch.

    ``influence_prompts`` (prompt, position) is exact; ``rung_mean`` (rung, position) the mean over prompts and
    random pairings, and ``rung_pairings`` (rung, pairing, position) the mean over prompts of each, the first with each
    prompt's own layers (0 for other kernels).
    """
    if init:
        with untrained_twin(settings.source, init) as twin:
            return measure_rungs(replace(settings, source=twin), more=more, pairings=pairings)
    session = Session(settings)
    instrument, (N, n) = session.instrument, session.ids.shape
    given = {}
    if more:
        given[SHIFTED] = shifted(read_layers(instrument, session.ids[:2], content_free))
    if more and instrument.family.position_of(session.config) == "rotary":
        given[ROTARY] = rotary_kernels(instrument, session.prompts.ids, settings.batch_size)
    names = [*RUNGS, *given]
    exact, climbed = np.zeros((N, n)), np.zeros((len(names), pairings + 1, N, n))
    for rows, ids in session.batches():
        B = len(ids)
        rings = np.stack([np.arange(B), *(ring(B, (settings.seed, rows.start, k)) for k in range(pairings))])
        reading = instrument.measure(ids, rungs=Rungs(rings))
        exact[rows] = reading.influence.numpy()
        assert reading.ladder is not None
        climbed[: len(RUNGS), :, rows] = reading.ladder.permute(1, 2, 0, 3).numpy()
        for k, kernels in enumerate(given.values(), len(RUNGS)):
            other = instrument.measure(ids, rungs=Rungs(rings[1:], kernels, ("positions",))).ladder
            assert other is not None
            climbed[k, 1:, rows] = other[:, 0].permute(1, 0, 2).numpy()
    fields = {
        "influence_prompts": (("prompt", "position"), exact, "‖∂p/∂embedding‖ for each prompt"),
        "rung_mean": (
            ("rung", "position"),
            climbed[:, 1:].mean((1, 2)),
            "by rung, mean over prompts and random pairings",
        ),
        "rung_pairings": (("rung", "pairing", "position"), climbed.mean(2), "the same, of each pairing"),
    }
    return xr.Dataset(
        {name: (dims, shave(x.astype(np.float32)), {"long_name": what}) for name, (dims, x, what) in fields.items()}
        | {"document": ("prompt", session.prompts.origins)},
        coords={"rung": names, "pairing": [OWN, *map(str, range(1, pairings + 1))]},
        attrs=session.provenance() | {"summary": 1},
    )


def rotary_kernels(instrument: Instrument, ids: Int[np.ndarray, "N n"], batch_size: int) -> Float[Tensor, "T H n n"]:
    """Return the kernels of mean queries and mean keys of these prompts, under each layer's mask."""
    means, n = read_rotary_means(instrument, ids, batch_size), ids.shape[1]
    widths = [window(attention, instrument.model.config) for attention in instrument.attentions]
    own = [masks.sliding_window(w) if w else masks.causal() for w in widths]
    kernels = [distance_kernels(z, mask) for z, mask in zip(means.logits(n), own, strict=True)]
    return torch.from_numpy(np.stack(kernels)).float()


def measure_exchanged(settings: Settings, pairings: int = 1) -> xr.Dataset:
    """Measure influence by mean attention, with each layer's own value maps and with those of the next layer.

    On the way back layer t keeps its input, norms, MLP and mean attention; its attention module, which then gives
    values and their output alone, is that of layer t + 1, and the last layer has the first's. ``exchanged_prompts``
    (prompt, position) is what comes of it, and the rest as :func:`_beside_own` says.
    """
    return _beside_own(settings, pairings, "exchanged", exchanged_rungs)


def measure_permuted(settings: Settings, pairings: int = 1) -> xr.Dataset:
    """Measure influence by mean attention, with each MLP's own gates and with gates that its hidden units exchange."""
    return _beside_own(settings, pairings, "permuted", lambda *x: permuted_rungs(x[0], x[1], x[2], settings.seed))


def _beside_own(
    settings: Settings, pairings: int, name: str, change: Callable[[Instrument, np.ndarray, Tensor], Rungs]
) -> xr.Dataset:
    """Measure influence by mean attention, and the same with layers that are changed."""
    session = Session(settings)
    instrument, (N, n) = session.instrument, session.ids.shape
    found = np.zeros((3, N, n))
    for rows, ids in session.batches():
        rings = np.stack([ring(len(ids), (settings.seed, rows.start, k)) for k in range(pairings)])
        kernels = read_layers(instrument, ids, mean)
        for k, rungs in enumerate((Rungs(rings, kernels, ("positions",)), change(instrument, rings, kernels)), 1):
            reading = instrument.measure(ids, rungs=rungs)
            assert reading.ladder is not None
            found[0, rows], found[k, rows] = reading.influence.numpy(), reading.ladder[:, 0].mean(1).numpy()
    names = ("influence_prompts", "own_prompts", f"{name}_prompts")
    return xr.Dataset(
        {name: (("prompt", "position"), shave(x.astype(np.float32))) for name, x in zip(names, found, strict=True)}
        | {"document": ("prompt", session.prompts.origins)},
        attrs=session.provenance() | {"summary": 1},
    )

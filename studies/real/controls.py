"""What a rung needs: each rung of the ladder in a model, and the same with one thing exchanged on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from posbias.comparison.distances import unit
from posbias.comparison.multiplicity import decide
from posbias.comparison.resampling import resampled_profiles
from posbias.measure.branches import read_branches
from posbias.measure.instrument import Instrument
from posbias.measure.ladder import Rungs, ring
from posbias.measure.session import Session
from posbias.measured_kernels import LAW
from posbias.models.attention import Reading, computed
from posbias.models.watch import watched
from posbias.predict import PREDICTORS
from posbias.report.scoring import gain_rows
from posbias.rollout.untrained import aligned_profile, untrained_profile
from posbias.settings import Settings
from studies.interventions import content_free, exchanged_rungs, own, permuted_rungs, read_layers, shifted
from studies.making import go_on
from studies.real.entries import place
from studies.real.tables import NUMBERS, three_numbers
from studies.summaries import shave

CONTROLS = {
    "right": "nothing is exchanged",
    "late": "attention of the query before",
    "layer": "attention of the next layer",
    "maps": "value maps (or gains) of the next layer",
    "gates": "gates of other hidden units",
    "prompt": "attention of another prompt",
    "norms": "lengths of states of the next layer",
    "steps": "MLPs of the next layer",
}
"""What is exchanged on the way back, everything else as it is; the last two of what head gains are given."""
OF_GAINS = {"head-gains-squared": untrained_profile, "head-gains-added": aligned_profile}
OF_MAPS = ("independent-layers", "fixed-attention", "value-maps", "value-maps-positional")
RUNGS = {name: PREDICTORS[name].label for name in (*OF_MAPS, *OF_GAINS)}
"""Rungs by name: attention is each prompt's own on two, the mean over prompts on one, and positional on three."""


def measure_controls(settings: Settings) -> xr.Dataset:
    """Measure influence by each rung with every control: ``rung_profiles`` (rung, control, position), a mean.

    Prompts of a batch are paired in one ring, as on the ladder, so that a gradient goes through each layer of another
    prompt; ``influence_prompts`` (prompt, position) is exact. What is no control of a rung is nan. Batches that an
    earlier run has measured are not measured again.
    """
    session = Session(settings)
    instrument, batches, n = session.instrument, [ids for _, ids in session.batches()], settings.length
    controls, positional = list(CONTROLS), read_layers(instrument, batches[0][:1], content_free)

    def read(k: int) -> dict[str, np.ndarray]:
        ids, found = batches[k], np.full((len(RUNGS), len(CONTROLS), n), np.nan)
        exact = np.full((settings.batch_size, n), np.nan)  # the last batch may be smaller
        rings = ring(len(ids), (settings.seed, k * settings.batch_size, 0))[None]
        each = read_layers(instrument, ids, own)
        for r, attention in enumerate((each, each, each.mean(1), positional)):
            for control, rungs in _controls(instrument, rings, attention, settings.seed):
                one = instrument.measure(ids, rungs=rungs if r else _reacting(instrument, rungs))
                assert one.ladder is not None
                found[r, controls.index(control)] = one.ladder[:, 0, 0].sum(0).numpy()
                exact[: len(ids)] = one.influence.numpy()
        return {"exact": exact, "found": found}

    rows = go_on(len(batches), read, place(session, "controls", str(settings.batch_size)), "batches")
    exact, found = np.concatenate(rows["exact"])[: len(session.ids)], rows["found"].sum(0) / len(session.ids)
    for control, profiles in _gains(instrument, session.ids, positional):
        found[-len(profiles) :, controls.index(control)] = profiles
    arrays: dict[str, Any] = {
        "influence_prompts": (("prompt", "position"), shave(exact.astype(np.float32))),
        "rung_profiles": (("rung", "control", "position"), found.astype(np.float32)),
    }
    return xr.Dataset(arrays, {"rung": list(RUNGS), "control": controls}, session.provenance())


def _reacting(instrument: Instrument, rungs: Rungs) -> Rungs:
    """Return a rung whose given attention reacts to queries and keys, as a softmax that gives such weights does."""

    def attend(reading: Reading) -> Float[Tensor, "B H n V"]:
        assert rungs.kernels is not None
        z, given = reading.logits, rungs.kernels[reading.layer]
        return torch.where(given > 0, z + (given.log() - z).detach(), -torch.inf).softmax(-1) @ reading.values

    @contextmanager
    def changed(t: int) -> Iterator[None]:
        model: Any = instrument.model
        with computed(model.config, "eager"), watched(model, instrument.family, attend), rungs.changed(t):
            yield

    return replace(rungs, changed=changed)


def _controls(
    instrument: Instrument, rings: Int[np.ndarray, "1 B"], attention: Float[Tensor, "T ... H n n"], seed: int
) -> Iterator[tuple[str, Rungs]]:
    """Yield a rung of given attention with every control that it has: none that leaves its attention as it is."""
    others = attention.roll(-1, 0)
    yield "right", Rungs(rings, attention, ("positions",))
    yield "late", Rungs(rings, shifted(attention), ("positions",))
    if not torch.equal(attention, others):
        yield "layer", Rungs(rings, others, ("positions",))
    yield "maps", exchanged_rungs(instrument, rings, attention)
    yield "gates", permuted_rungs(instrument, rings, attention, seed)
    if attention.ndim == 5:
        yield "prompt", Rungs(rings, attention.roll(1, 1), ("positions",))


def _gains(
    instrument: Instrument, ids: Int[Tensor, "N n"], attention: Float[Tensor, "T H n n"]
) -> Iterator[tuple[str, list[Float[np.ndarray, "n"]]]]:
    """Yield what both rules make of head gains, with every control that they have; attention is positional."""
    branches = read_branches(instrument, ids)
    right = {name: getattr(branches, kept) for name, kept in (LAW | {"steps": "step_gain"}).items()}
    right["kernels"], late = (unit(x.double().numpy()) for x in (attention, shifted(attention)))
    changes: dict[str, Any] = {"right": {}, "late": {"kernels": late}}
    for control, name in (("maps", "gains"), ("norms", "scales"), ("steps", "steps")):
        changes[control] = {name: np.roll(right[name], -1, 0)}
    for control, change in changes.items():
        yield control, [rule(**right | change) for rule in OF_GAINS.values()]


def control_table(entry: xr.Dataset, rung: str, resamples: int = 1000) -> pd.DataFrame:
    """Return how far a rung is from influence with each of its controls: index ``control``, three numbers each.

    ``decided`` is 1 where a control is nearer than what is right, -1 where it is further away, 0 where it is open: 95 %
    intervals over paired resamples of the prompts, by Holm's rule.
    """
    means = entry["rung_profiles"].sel(rung=rung).values.astype(np.float64)
    profiles = {c: unit(x) for c, x in zip(CONTROLS, means, strict=True) if np.isfinite(x).all()}
    influence = entry["influence_prompts"].values
    exact = unit(influence.sum(0, dtype=np.float64))
    rows = {control: three_numbers(p, exact) for control, p in profiles.items()}
    found = pd.DataFrame.from_dict(rows, "index", columns=list(NUMBERS)).rename_axis("control")
    pairs = [("right", control) for control in profiles if control != "right"]
    gains = gain_rows(influence, profiles, pairs, resampled_profiles(influence, resamples)).set_index("after")
    signs = decide(gains["gain"].to_numpy(), gains["p_value"].to_numpy())
    return found.assign(decided=pd.Series(signs, gains.index))

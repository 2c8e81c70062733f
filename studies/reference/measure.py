"""Measurements of reference models that several chapters read: on corpora, untrained, in training, of other seeds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from tokenizers import Tokenizer

from posbias import errors
from posbias.measure.corpus import document_units
from posbias.measure.positions import read_positions
from posbias.measure.run import measure
from posbias.measure.session import Session
from posbias.measure.traces import LayerSums
from posbias.models.loading import Source
from posbias.rollout.order import stochastic_monotonicity
from posbias.settings import REPORTED, Settings
from posbias.shipped import PREFIX, model_folder
from studies.reference.models import reference
from studies.reference.pretraining import initial_model, save_model
from studies.reference.similarity import measure_similarity
from studies.summaries import summarise

GROUPS = 8
"""Groups of prompts, of which one at a time is left out."""


def measure_corpus(settings: Settings) -> xr.Dataset:
    """Measure a model, and keep the summary with each prompt's influence, and how alike content logits are."""
    return summarise(measure(settings)).assign(measure_similarity(settings))


def measure_report(settings: Settings) -> xr.Dataset:
    """Measure what a report asks for, and keep the summary."""
    return summarise(measure(replace(settings, **REPORTED)))


def measure_snapshot(settings: Settings) -> xr.Dataset:
    """Measure a model in training, and keep the summary without what belongs to single prompts."""
    return summarise(measure(settings), prompts=False)


def measure_untrained(settings: Settings, init: str) -> xr.Dataset:
    """Measure a reference model before its first step, and keep the summary."""
    with untrained_twin(settings.source, init) as twin:
        return summarise(measure(replace(settings, source=twin)))


@contextmanager
def untrained_twin(source: Source, init: str) -> Iterator[Source]:
    """Give the reference model of a source as it was before its first step, in a folder that is there in the block."""
    name = source.model.removeprefix(PREFIX)
    if name == source.model:
        raise errors.invalid("model", f"a reference model, {PREFIX}NAME, to draw its untrained network", source.model)
    row = reference(name)
    tokenizer = Tokenizer.from_file(str(Path(model_folder(source.model)) / "tokenizer.json"))
    with tempfile.TemporaryDirectory() as folder:
        twin = Path(folder) / f"{name}-untrained-{init}"
        save_model(initial_model(row, 0, init), row, tokenizer, twin)
        yield Source(str(twin))


def measure_seed(settings: Settings) -> xr.Dataset:
    """Measure a model, and keep the summary with what tells the spread over prompts.

    Beside the summary there are ``offset_groups`` (group, layer, head), the diagonal offset of content logits in each
    of :data:`GROUPS` groups of prompts; ``shortfall_without`` (group, layer), the mean excess prefix mass of the mean
    kernel of all prompts but the group's; and ``group_of`` (prompt). Prompts of a module are in one group.
    """
    study = Session(settings)
    units = document_units(study.prompts.origins, settings.corpus.dataset)
    if units.max() < 1:
        raise errors.invalid("prompts", "some of two modules or more", f"{units.size} of one")
    group = unit_groups(units, min(GROUPS, int(units.max()) + 1))
    offsets, kernels = map(np.stack, zip(*(group_means(study, group == k) for k in np.unique(group)), strict=True))
    fields = {
        "offset_groups": (("group", "layer", "head"), offsets, "diagonal offset of content logits, by group"),
        "shortfall_without": (("group", "layer"), shortfalls_without(kernels, np.bincount(group)), "excess without it"),
        "group_of": (("prompt",), group, "group of each prompt"),
    }
    found = {name: (dims, x, {"long_name": text}) for name, (dims, x, text) in fields.items()}
    return summarise(measure(settings, study.prompts)).assign(found)


def group_means(study: Session, chosen: np.ndarray) -> tuple[Float[np.ndarray, "T H"], Float[np.ndarray, "T n n"]]:
    """Return the diagonal offset of content logits, and the attention kernels, both as means over chosen prompts."""
    instrument, n, ids = study.instrument, study.settings.length, study.ids[torch.from_numpy(chosen)]
    positions = read_positions(instrument, n)
    layers = [LayerSums(instrument.H, n, where, ("kernels", "content")) for where in instrument.devices()]
    for batch in ids.split(study.settings.batch_size):
        instrument.forward(batch, lambda seen: layers[seen.layer].add(seen))
    means = [layer.means(len(ids), int(positions.reach[t])) for t, layer in enumerate(layers)]
    offsets = [found["content_diagonal"] - found["content_offdiagonal"] for found in means]
    return np.stack(offsets), np.stack([found["attention"] for found in means])


def shortfalls_without(kernels: Float[np.ndarray, "G T n n"], sizes: Int[np.ndarray, "G"]) -> Float[np.ndarray, "G T"]:
    """Return the mean excess prefix mass of the kernels of all prompts but those of one group, for each group."""
    sums = kernels * sizes[:, None, None, None]
    rest = sums.sum(0) - sums
    rest /= rest.sum(-1, keepdims=True)
    return np.array([[stochastic_monotonicity(A).shortfall for A in layers] for layers in rest])


def unit_groups(units: Int[np.ndarray, "N"], groups: int) -> Int[np.ndarray, "N"]:
    """Return a group for each prompt, such that no unit is in two groups and groups are about equally large.

    >>> unit_groups(np.array([0, 0, 1, 2, 0, 1]), 2).tolist()
    [0, 0, 1, 1, 0, 1]
    """
    names, sizes = np.unique(units, return_counts=True)
    if errors.positive_integer("groups", groups) > names.size:
        raise errors.invalid("groups", f"at most {names.size}, the units", groups)
    filled, group = np.zeros(groups, dtype=int), np.zeros(names.size, dtype=int)
    for k in np.argsort(-sizes, kind="stable"):
        group[k] = filled.argmin()
        filled[group[k]] += sizes[k]
    return group[np.searchsorted(names, units)]

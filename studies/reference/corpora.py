"""Measurements of reference models that several chapters read: on every corpus, untrained, and during training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xarray as xr
from tokenizers import Tokenizer

from posbias import errors
from posbias.measure.loading import Source
from posbias.measure.run import measured
from posbias.measure.study import Settings
from posbias.measure.summary import summarise
from posbias.shipped import PREFIX, model_folder
from studies.reference.models import reference
from studies.reference.pretraining import initial_model, save_model


def measure_corpus(settings: Settings) -> xr.Dataset:
    """Measure a model, and keep the summary with each prompt's influence."""
    return summarise(measured(settings))


def measure_snapshot(settings: Settings) -> xr.Dataset:
    """Measure a model in training, and keep the summary without what belongs to single prompts."""
    return summarise(measured(settings), prompts=False)


def measure_untrained(settings: Settings, init: str) -> xr.Dataset:
    """Measure the untrained twin of a reference model, and keep the summary.

    Parameters
    ----------
    settings
        Of the reference model.
    init
        As :func:`untrained_twin` has it.
    """
    with untrained_twin(settings.source, init) as twin:
        return summarise(measured(settings.with_source(twin)))


@contextmanager
def untrained_twin(source: Source, init: str) -> Iterator[Source]:
    """Give a reference model as it was before its first step, in a folder that is there until the block ends.

    Parameters
    ----------
    source
        ``reference/NAME``.
    init
        Standard deviation of the weights: ``default``, 0.02, or ``unit``, 1/√D, which keeps sizes.

    Raises
    ------
    ValueError
        For a model that is no reference model.
    """
    name = source.model.removeprefix(PREFIX)
    if name == source.model:
        raise errors.invalid("model", f"a reference model, {PREFIX}NAME, to make its untrained twin", source.model)
    row = reference(name)
    tokenizer = Tokenizer.from_file(str(Path(model_folder(source.model)) / "tokenizer.json"))
    with tempfile.TemporaryDirectory() as folder:
        twin = Path(folder) / f"{name}-untrained-{init}"
        save_model(initial_model(row, 0, init), row, tokenizer, twin)
        yield Source(str(twin))

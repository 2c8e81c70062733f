"""A measurement from start to end: prompts through the instrument, batch by batch, into a file.

The order of work makes refusals cheap: what can be seen without the model is checked before it is loaded. The
result and the checkpoints are written whole; a run killed at any moment goes on from its last checkpoint and
ends with the same bits, for the batches and their order are the same. Ctrl-C and SIGTERM, which torchrun sends to all
processes when one has ended, wait for the batch at work and leave a checkpoint of it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import xarray as xr

from posbias import errors
from posbias.measure import checkpoint
from posbias.measure.accumulators import bin_centres
from posbias.measure.branches import no_branches, read_branches
from posbias.measure.checkpoint import differing, fingerprint_of, go_through
from posbias.measure.memory import out_of_memory
from posbias.measure.positions import read_positions
from posbias.measure.processes import processes
from posbias.measure.progress import progress as told
from posbias.measure.results import make_results, read_results, write_results
from posbias.measure.session import Session
from posbias.measure.settings import Settings
from posbias.measure.traces import Traces
from posbias.measure.unfinished import check_run, checkpoint_path
from posbias.networks.added_biases import added_biases, fitting_biases
from posbias.networks.description import description_text
from posbias.networks.families import family_of


def measure(
    subject: Settings | Session,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_every: float | None = None,
    progress: bool = False,
    bias: Any = None,
) -> xr.Dataset | None:
    """Measure a model on a corpus, write the result, and return it (None in processes other than the first).

    Of a session, what is open already is not opened again. Checkpoints lie beside ``output`` until it is there, one a
    minute unless ``checkpoint_every`` gives other seconds; a finished result of the same settings is returned as it is
    where the run may ``resume``. ``bias`` describes a position bias that is added to the model's logits while it is
    measured; slopes and other positional numbers of the file are the model's own.
    """
    check_run(output, resume=resume, overwrite=overwrite)
    session = subject if isinstance(subject, Session) else Session(subject)
    settings, every = session.settings, checkpoint.EVERY if checkpoint_every is None else checkpoint_every
    session.check()
    if bias is not None:
        family_of(session.config)  # raises where there is no row
    added = None if bias is None else fitting_biases(session.config, bias)
    session.check_hidden(added)
    with processes() as group:
        shown = progress and group.rank == 0
        with told(settings.prompts, "prompts", "cutting", shown=shown) as bar:
            bar.update(len(session.ids))
        provenance = {**session.provenance(), "processes": group.world}
        if added is not None:
            provenance["added_bias"] = description_text(added)
        path = checkpoint_path(output, group.rank)
        if output.exists() and not overwrite:
            try:
                there = _finished(output, provenance, settings.tokens)
            except ValueError:
                if group.rank == 0:
                    raise
                return None  # the first process says why
            path.unlink(missing_ok=True)  # of a process that was killed when the result was there
            return there if group.rank == 0 else None
        try:
            if group.rank == 0 and (cost := session.format_error()) is not None:
                provenance["format_error"] = cost
            with told(1, "model", "loading", shown=shown) as bar:
                instrument = session.instrument
                provenance["self_check"] = session.self_check
                bar.update()
            positions = None
            if session.family is not None:
                positions = read_positions(instrument, session.longest)
                provenance |= {"position": positions.kind, "position_details": positions.details}
            traces = Traces(session, instrument, group, path)
            marks = fingerprint_of(provenance, group.rank)
            with nullcontext() if added is None else added_biases(instrument.model, added):
                go_through(traces.batches, traces.state, path, marks, checkpoint_every=every, shown=shown)
                arrays = traces.arrays(positions, shown)
                if group.rank == 0 and "branches" in settings.quantities:
                    if (why := no_branches(instrument)) is None:
                        arrays |= read_branches(instrument, session.ids, session.cells).arrays()
                    else:
                        provenance["no_branches"] = why
            results = None
            if group.rank == 0:
                results = make_results(arrays, provenance, bin_centres())
                write_results(output, results)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            raise out_of_memory(error, settings) or error from None
        group.add_up(torch.zeros(1))  # nobody's checkpoint goes before the result is there
        path.unlink(missing_ok=True)
        return results


def measured(subject: Settings | Session, *, progress: bool = False, bias: Any = None) -> xr.Dataset:
    """Return a measurement without leaving a file, for chapters, and for whoever wants the numbers at once."""
    with tempfile.TemporaryDirectory() as folder:
        results = measure(
            subject, Path(folder) / "measurement.nc", checkpoint_every=math.inf, progress=progress, bias=bias
        )
    if results is None:
        raise RuntimeError("expected to be the first process, received another: use measure under torchrun")
    return results


def _finished(output: Path, provenance: Mapping[str, Any], tokens: bool) -> xr.Dataset:
    """Return the result that is there if it is what was asked for, or raise ValueError."""
    there = read_results(output)
    found = differing(there.attrs, provenance)
    if "added_bias" in there.attrs and "added_bias" not in provenance:
        found.append("with a bias that was added, not without")
    if ("tokens" in there or "whole_tokens" in there) != tokens:
        found.append("no tokens in it" if tokens else "tokens in it, which were not to be kept")
    if found:
        raise errors.invalid(str(output), "a result of the same settings, or --overwrite", "; ".join(found[:3]))
    return there

"""A measurement as a function: prompts through the instrument, batch by batch, into one labelled data set.

The order of work makes refusals cheap: what can be seen without the model is checked before it is loaded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from tqdm import tqdm

from posbias import errors
from posbias.files import whole_file
from posbias.measure.branches import no_branches, read_branches
from posbias.measure.corpus import Prompts
from posbias.measure.positions import Positions, read_positions
from posbias.measure.progress import progress as told
from posbias.measure.results import Variables, make_results
from posbias.measure.session import Session, check_settings
from posbias.measure.traces import Traces
from posbias.models.weights import is_out_of_memory, memory_available, out_of_memory
from posbias.processes import Team, rank, share_out
from posbias.settings import MATRICES, Settings

Sums = Callable[[], Mapping[str, Tensor]]
"""What gives all that is added up so far, by name."""
SHARE = 20
"""How many times as long as the last writing took, at least, the run works until the next."""


def measure(
    settings: Settings,
    prompts: Prompts | None = None,
    *,
    partial: Path | None = None,
    progress: bool = False,
) -> xr.Dataset:
    """Measure a model on prompts and return everything that was measured, with where it comes from.

    Prompts are cut as the settings say unless they are given. ``partial`` is a file of partial sums: a run goes on from
    there if it is there, and whoever keeps the result removes it. Under a condition, slopes and other positional
    numbers of the result are the model's own.
    """
    check_settings(settings)
    progress = progress and rank() == 0
    with told(settings.prompts, "prompts", "cutting", shown=progress) as bar:
        session = Session(settings, prompts)
        bar.update(len(session.ids))
    provenance = session.provenance()
    team = share_out(math.ceil(len(session.ids) / settings.batch_size))
    sharing = {} if team.size == 1 else {"process": f"{team.rank} of {team.size}"}
    kept = Partial(partial, {name: str(x) for name, x in provenance.items()} | sharing)
    kept.read()  # raises before the model is loaded
    try:
        with told(1, "model", "loading", shown=progress) as bar:
            provenance["self_check"] = session.check_instrument()
            instrument = session.instrument
            bar.update()
        positions = None
        if (why := instrument.no_attention) is not None:
            provenance["no_attention"] = why
        elif session.family is not None:
            positions = read_positions(instrument, settings.length)
        with session.condition.changed(instrument.model, None):
            arrays, lacking, variables = read_prompts(session, positions, kept, team, progress)
    except (MemoryError, RuntimeError) as error:
        raise out_of_memory() if is_out_of_memory(error) else error from None
    return make_results(arrays, provenance | {f"no_{name}": why for name, why in lacking.items()}, variables)


def read_prompts(
    session: Session, positions: Positions | None, kept: Partial, team: Team, shown: bool
) -> tuple[dict[str, np.ndarray], dict[str, str], Variables]:
    """Return the arrays of all prompts, what the model has none of and why, and what more the arrays are called."""
    traces = Traces(session)
    mine = team.share(range(len(traces.batches)))
    sizes = [len(traces.batches[k][1]) for k in mine]
    try:
        kept.go_on("measuring", sizes, lambda k: traces.read_batch(mine[k]), traces.state, shown)
        team.add_up(traces.state())
        arrays = traces.arrays(positions, shown)
    except ValueError:  # of numbers from which nothing goes on
        kept.remove()
        raise
    lacking = dict(traces.lacking)
    if "branches" in session.settings.quantities and "branches" not in lacking:
        if (why := no_branches(session.instrument)) is not None:
            lacking["branches"] = why
        elif session.matrices:
            arrays |= vars(read_branches(session.instrument, session.ids))
    return arrays, lacking, traces.variables


class Partial(NamedTuple):
    """Where the partial sums of a run are kept, if anywhere, and the settings that another one must have to go on."""

    path: Path | None
    settings: dict[str, str]

    def go_on(self, what: str, sizes: Sequence[int], read: Callable[[int], None], sums: Sums, shown: bool) -> None:
        """Read the parts that are left, of so many prompts each, in order, and keep the sums on the way."""
        there = self.read() or {"done": 0, "sums": {}}
        for name, x in there["sums"].items():
            sums()[name].copy_(x)
        done, saved, cost = there["done"], time.monotonic(), 0.0
        with told(sum(sizes), "prompts", what, done=sum(sizes[:done]), shown=shown) as bar:
            for k in range(done, len(sizes)):
                read(k)
                bar.update(sizes[k])
                if self.path is not None and (time.monotonic() - saved >= SHARE * cost or k + 1 == len(sizes)):
                    start = time.monotonic()
                    with whole_file(self.path) as file:
                        torch.save({"settings": self.settings, "done": k + 1, "sums": dict(sums())}, file)
                    saved = time.monotonic()
                    cost = saved - start

    def read(self) -> dict[str, Any] | None:
        """Return what is there, None where nothing is; raise ValueError for a damaged file, and for another run's."""
        if self.path is None or not self.path.exists():
            return None
        try:
            there = torch.load(self.path, map_location="cpu", weights_only=True)
            theirs, found = dict(there["settings"]), {"done": int(there["done"]), "sums": dict(there["sums"])}
        except Exception as error:  # of a damaged file anything
            raise errors.invalid(str(self.path), "intact partial sums", errors.short(error)) from None
        if theirs != (ours := self.settings):
            received = [f"{x}={theirs.get(x, 'none')}" for x in theirs | ours if theirs.get(x) != ours.get(x)][:3]
            raise errors.invalid(str(self.path), "partial sums of a run with the same settings", ", ".join(received))
        return found

    def remove(self) -> None:
        """Remove the file: nothing goes on from what is there."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def estimate(settings: Settings) -> str:
    """Return what a measurement takes in memory, disk and time, in words: one prompt is measured to see."""
    session = Session(settings)
    prompts, place = len(session.ids), session.place
    weights = sum(x.nbytes for x in session.instrument.model.parameters())
    together = 2 if "ladder" in session.quantities else 1  # which pairs prompts
    traces = Traces(Session(replace(settings, batch_size=together), session.prompts))
    start = time.perf_counter()
    traces.read_batch(0)
    seconds = (time.perf_counter() - start) / together
    size, whole = sum(x.nbytes for x in traces.state().values()) / 2, tqdm.format_interval(seconds * prompts)
    return "\n".join((
        f"memory: weights of {weights / 2**30:.1f} GiB on {place}; {memory_available(place) / 2**30:.1f} GiB are left",
        f"disk: about {size / 2**20:.1f} MiB for the result",
        f"time: about {whole}, from one prompt of {settings.length} tokens",
        *note_matrices(session.quantities, settings.length, settings.kernel_size),
    ))  # fmt: skip


def note_matrices(quantities: Iterable[str], n: int, most: int) -> list[str]:
    """Return a line that says so where matrices are asked for, of prompts that are too long to keep them."""
    asked = sorted(MATRICES & {*quantities}) if n > most else []
    return [f"no matrices ({', '.join(asked)}): {n} tokens, --kernel-size {most}"] if asked else []

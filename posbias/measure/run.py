"""A measurement from start to end: prompts through the instrument, batch by batch, into a file.

The order of work makes refusals cheap: what can be seen without the model is checked before it is loaded. The
result and the checkpoints are written whole; a run killed at any moment goes on from its last checkpoint and
ends with the same bits, for the batches and their order are the same.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from posbias import checks
from posbias.measure.branches import has_branches, read_branches
from posbias.measure.instrument import Instrument, NotFinite
from posbias.measure.layer_sums import LayerStatistics, bin_centres, entropy_similarity
from posbias.measure.loading import check_fits
from posbias.measure.positions import Positions, read_positions
from posbias.measure.processes import Processes, processes
from posbias.measure.request import check_numbers, check_output
from posbias.measure.results import make_results, write_results
from posbias.measure.study import Settings, Study
from posbias.training.loop import checkpoint
from posbias.training.loop.unfinished import check_unfinished, checkpoint_path

MOST_GIB = 16  # BLOOM-176B at n = 256 takes 4
PER_PROMPT = ("lambda_frobenius", "lambda_token", "influence", "influence_signed", "probability")


def measure(
    subject: Settings | Study,
    output: Path,
    *,
    resume: bool = False,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> xr.Dataset | None:
    """Measure a model on a corpus, write the result, and return it (None in processes other than the first).

    Parameters
    ----------
    subject
        What to measure; of a study, what is open already is not opened again.
    output
        The .nc file to write; checkpoints lie beside it until it is there.
    resume
        Whether to go on from a checkpoint if there is one.
    checkpoint_every
        Least seconds between two checkpoints.
    progress
        Whether to show prompts, tokens/s and the time left on stderr.

    Raises
    ------
    ValueError
        For whatever is not as it should be, with what was expected and what came; no result is then written.
    OSError
        If a file or the hub cannot be read or written.
    """
    check_output(output)
    checks.seconds("checkpoint_every", checkpoint_every)
    study = subject if isinstance(subject, Study) else Study(subject)
    settings = study.settings
    check_numbers(settings.prompts, settings.length, settings.batch_size)
    device = settings.place()
    settings.precision()
    check_fits(study.config, study.tokenizer, settings.length)
    _check_matrices(settings, study.config)
    with processes(device) as group:
        path = checkpoint_path(output, group.rank)
        check_unfinished(path, resume=resume)
        provenance = {**study.provenance(), "processes": group.world}
        instrument = study.instrument
        try:
            positions = read_positions(instrument, settings.length)
            provenance |= {"position": positions.kind, "position_details": positions.details}
            run = _Run(study, instrument, group, path, provenance)
            run.go(checkpoint_every, progress and group.rank == 0)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            raise _out_of_memory(error, settings.batch_size) or error from None
        arrays = run.arrays(positions)
        results = None
        if group.rank == 0:
            if has_branches(instrument):
                arrays |= read_branches(instrument, study.ids).arrays()
            results = make_results(arrays, provenance, bin_centres())
            write_results(output, results)
        group.add_up(torch.zeros(1))  # nobody's checkpoint goes before the result is there
        path.unlink(missing_ok=True)
        return results


def measured(subject: Settings | Study, *, progress: bool = False) -> xr.Dataset:
    """Return a measurement without leaving a file; arguments and errors are those of :func:`measure`.

    For chapters and studies, and for whoever wants the numbers at once.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = measure(subject, Path(folder) / "measurement.nc", checkpoint_every=math.inf, progress=progress)
    if results is None:
        raise RuntimeError("expected to be the first process, received another: use measure under torchrun")
    return results


class _Run:
    """One process's share of the batches, and its sums."""

    def __init__(
        self, study: Study, instrument: Instrument, group: Processes, path: Path, provenance: dict[str, Any]
    ) -> None:
        settings = self.settings = study.settings
        self.instrument, self.group, self.path, self.ids = instrument, group, path, study.ids
        N, n = self.ids.shape
        self.batches = group.share([rows for rows, _ in study.batches()])
        keep = {"content": settings.content, "heads": settings.heads}
        self.layers = [LayerStatistics(instrument.H, n, where, **keep) for where in instrument.devices()]
        T = instrument.T
        columns = {"lambda_frobenius": (T,), "lambda_token": (T,), "influence": (n,), "influence_signed": (n,)}
        self.rows = {name: torch.zeros(N, *columns.get(name, ()), dtype=torch.float64) for name in PER_PROMPT}
        named = {**provenance, "rank": group.rank, "content": settings.content, "heads": settings.heads}
        self.fingerprint = "\n".join(f"{name}={value}" for name, value in named.items())

    def state(self) -> dict[str, Tensor]:
        """Return all that is added up, by name."""
        sums = {f"layer{t}.{name}": x for t, layer in enumerate(self.layers) for name, x in layer.sums.items()}
        return {**self.rows, **sums}

    def go(self, checkpoint_every: float, progress: bool) -> None:
        """Measure the batches that are left."""
        done = checkpoint.restore(self.path, self.state(), self.fingerprint) if self.path.exists() else 0
        saved = time.monotonic()
        sizes = [batch.stop - batch.start for batch in self.batches]
        with tqdm(
            total=sum(sizes), initial=sum(sizes[:done]), unit=" prompts", disable=not progress, dynamic_ncols=True
        ) as bar:
            for k, batch in enumerate(self.batches[done:], done):
                self._measure(batch)
                if time.monotonic() - saved >= checkpoint_every:
                    checkpoint.save(self.path, self.state(), k + 1, self.fingerprint)
                    saved = time.monotonic()
                bar.update(sizes[k])
                tokens = sum(sizes[done : k + 1]) * self.settings.length
                bar.set_postfix_str(f"{tokens / max(bar.format_dict['elapsed'], 1e-9):.0f} tokens/s")

    def arrays(self, positions: Positions) -> dict[str, np.ndarray]:
        """Add up over all processes and return the arrays of the result."""
        N, settings = len(self.ids), self.settings
        rows = {name: self.group.add_up(x).numpy() for name, x in self.rows.items()}
        layers = []
        for t, layer in enumerate(self.layers):
            layer.sums = {name: self.group.add_up(x) for name, x in layer.sums.items()}
            layers.append(layer.means(N, positions.allowed(t)))
        out = {name: np.stack([means[name] for means in layers]) for name in layers[0]}
        for where in ("diagonal", "offdiagonal"):
            out[f"similarity_{where}"] = entropy_similarity(out[f"histogram_{where}"])
        for norm in ("lambda_frobenius", "lambda_token"):
            out[norm] = rows[norm].mean(0)
            out[f"{norm}_std"] = rows[norm].std(0, ddof=min(1, N - 1))
            out[f"{norm}_prompts"] = rows[norm]
        total = rows["influence"].sum()
        if total <= 0:
            low = settings.precision()
            advice = "" if low == "float32" else "; try --dtype float32"
            raise checks.refuse("influence", "gradients above 0", f"none in {low}{advice}")
        out |= {"influence": rows["influence"].sum(0) / total, "influence_prompts": rows["influence"]}
        out |= {"influence_signed": rows["influence_signed"].mean(0)}
        out |= {"influence_signed_prompts": rows["influence_signed"], "probability": rows["probability"]}
        return out | {
            "slopes": positions.slopes,
            "position_bias": positions.bias,
            "scale": positions.scale,
            "window": positions.window,
            "reach": positions.reach,
        }

    def _measure(self, batch: slice) -> None:
        try:
            reading = self.instrument.measure(self.ids[batch], lambda seen: self.layers[seen.layer].add(seen))
        except NotFinite as error:
            self.path.unlink(missing_ok=True)
            where = f"prompt {batch.start + error.prompt}, {error.where}"
            raise checks.refuse(where, "finite numbers", f"{error.number} in {self.settings.precision()}") from None
        for name in PER_PROMPT:
            self.rows[name][batch] = getattr(reading, name).to(torch.float64)


def _check_matrices(settings: Settings, config: Any) -> None:
    """Raise if the matrices for each head that are to be kept would take more than :data:`MOST_GIB`."""
    each = config.num_hidden_layers * config.num_attention_heads * settings.length**2 * 8 / 2**30
    for name, kept, advice in (("content", settings.content, "--no-content"), ("heads", settings.heads, "no --heads")):
        if kept and each > MOST_GIB:
            received = f"{each:.0f} GiB for {settings.length} tokens; try {advice}"
            raise checks.refuse(name, f"at most {MOST_GIB} GiB of matrices", received)


def _out_of_memory(error: BaseException, batch_size: int) -> ValueError | None:
    """Return what to try if memory ran out, None for any other error."""
    text = str(error).lower()
    known = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")
    if not isinstance(error, torch.OutOfMemoryError | MemoryError) and not any(words in text for words in known):
        return None
    advice = str(batch_size // 2) if batch_size > 1 else "--dtype bfloat16, --device-map auto or a smaller length"
    return checks.refuse("batch_size", "a batch that fits into memory", f"{batch_size}; try {advice}")

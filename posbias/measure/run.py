"""A measurement from start to end: prompts through the instrument, batch by batch, into a file.

The order of work makes refusals cheap: what can be seen without the model is checked before it is loaded. The
result and the checkpoints are written whole; a run killed at any moment goes on from its last checkpoint and
ends with the same bits, for the batches and their order are the same. Ctrl-C and SIGTERM, which torchrun sends to all
processes when one has ended, wait for the batch at work and leave a checkpoint of it.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from posbias import checks
from posbias.measure.attention import Reading
from posbias.measure.branches import has_branches, read_branches
from posbias.measure.instrument import Instrument, NotFinite
from posbias.measure.layer_sums import LayerSums, bin_centres, entropy_similarity
from posbias.measure.memory import has_fast_bfloat16
from posbias.measure.positions import Positions, read_positions
from posbias.measure.processes import Processes, processes
from posbias.measure.request import check_run
from posbias.measure.results import WIDE, make_results, read_results, write_results
from posbias.measure.study import Settings, Study
from posbias.networks.added_biases import added_biases, fitting_biases
from posbias.networks.description import description_text
from posbias.training.loop import checkpoint
from posbias.training.loop.progress import progress as told
from posbias.training.loop.unfinished import checkpoint_path, held_back

PER_PROMPT: dict[str, tuple[str, ...]] = {
    "lambda_frobenius": ("layer",),
    "lambda_token": ("layer",),
    "influence": ("position",),
    "influence_signed": ("position",),
    "probability": (),
}
"""What is kept of each prompt, with its dimensions."""


def measure(
    subject: Settings | Study,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_every: float = 60.0,
    progress: bool = False,
    bias: Any = None,
) -> xr.Dataset | None:
    """Measure a model on a corpus, write the result, and return it (None in processes other than the first).

    Parameters
    ----------
    subject
        What to measure; of a study, what is open already is not opened again.
    output
        The .nc file to write; checkpoints lie beside it until it is there.
    resume
        Whether to go on from a checkpoint if there is one; a finished result of the same settings is returned as it is.
    overwrite
        Whether to replace a result that is there.
    checkpoint_every
        Least seconds between two checkpoints; one stands in any case before the result is put together.
    progress
        Whether to show what is done, and the time left, on stderr.
    bias
        Description of a position bias that is added to the model's logits while it is measured, as
        :func:`~posbias.networks.added_biases.added_biases` takes it; the file keeps it as ``added_bias``. Slopes and
        other positional numbers of the file are the model's own.

    Raises
    ------
    ValueError
        For whatever is not as it should be, with what was expected and what came; no result is then written.
    OSError
        If a file or the hub cannot be read or written.
    """
    check_run(output, resume=resume, overwrite=overwrite)
    checks.seconds("checkpoint_every", checkpoint_every)
    study = subject if isinstance(subject, Study) else Study(subject)
    settings = study.settings
    study.check()
    added = None if bias is None else fitting_biases(study.config, bias)
    study.check_hidden(added)
    with processes() as group:
        shown = progress and group.rank == 0
        with told(settings.prompts, "prompts", "cutting", shown=shown) as bar:
            bar.update(len(study.ids))
        provenance = {**study.provenance(), "processes": group.world}
        if added is not None:
            provenance["added_bias"] = description_text(added)
        path = checkpoint_path(output, group.rank)
        if output.exists() and not overwrite:
            try:
                there = _finished(output, provenance, settings.keep_tokens)
            except ValueError:
                if group.rank == 0:
                    raise
                return None  # the first process says why
            path.unlink(missing_ok=True)  # of a process that was killed when the result was there
            return there if group.rank == 0 else None
        try:
            if group.rank == 0 and (cost := study.format_error()) is not None:
                provenance["format_error"] = cost
            with told(1, "model", "loading", shown=shown) as bar:
                instrument = study.instrument
                bar.update()
            positions = read_positions(instrument, settings.length)
            provenance |= {"position": positions.kind, "position_details": positions.details}
            run = _Run(study, instrument, group, path, provenance)
            with nullcontext() if added is None else added_biases(instrument.model, added):
                run.go(checkpoint_every, shown)
                arrays = run.arrays(positions, shown)
                if group.rank == 0 and "branches" in settings.quantities and has_branches(instrument):
                    arrays |= read_branches(instrument, study.ids, study.cells).arrays()
            results = None
            if group.rank == 0:
                results = make_results(arrays, provenance, bin_centres())
                with told(1, "file", "writing", shown=shown) as bar:
                    write_results(output, results)
                    bar.update()
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            raise _out_of_memory(error, settings) or error from None
        group.add_up(torch.zeros(1))  # nobody's checkpoint goes before the result is there
        path.unlink(missing_ok=True)
        return results


def measured(subject: Settings | Study, *, progress: bool = False, bias: Any = None) -> xr.Dataset:
    """Return a measurement without leaving a file; arguments and errors are those of :func:`measure`.

    For chapters and studies, and for whoever wants the numbers at once.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = measure(
            subject, Path(folder) / "measurement.nc", checkpoint_every=math.inf, progress=progress, bias=bias
        )
    if results is None:
        raise RuntimeError("expected to be the first process, received another: use measure under torchrun")
    return results


class _Run:
    """One process's share of the batches, and its sums."""

    def __init__(
        self, study: Study, instrument: Instrument, group: Processes, path: Path, provenance: dict[str, Any]
    ) -> None:
        settings = self.settings = study.settings
        self.study = study
        self.instrument, self.group, self.path, self.ids = instrument, group, path, study.ids
        N, n = self.ids.shape
        self.batches = group.share([rows for rows, _ in study.batches()])
        self.cells = study.cells
        T, places = instrument.T, instrument.devices()
        self.layers = [LayerSums(instrument.H, self.cells, where, settings.quantities) for where in places]
        shapes = dict(PER_PROMPT)
        self.carries = "kernels" in settings.quantities
        if self.carries:
            shapes["rollout_own"] = ("position",)
        sizes = {"layer": T, "position": n}
        self.rows = {
            name: torch.zeros(N, *(sizes[dim] for dim in dims), dtype=torch.float64) for name, dims in shapes.items()
        }
        named = {name: x for name, x in provenance.items() if name != "format_error"} | {"rank": group.rank}
        self.fingerprint = "\n".join(f"{name}={value}" for name, value in named.items())

    def state(self) -> dict[str, Tensor]:
        """Return all that is added up, by name."""
        sums = {f"layer{t}.{name}": x for t, layer in enumerate(self.layers) for name, x in layer.sums.items()}
        return {**self.rows, **sums}

    def go(self, checkpoint_every: float, shown: bool) -> None:
        """Measure the batches that are left; at the end there is a checkpoint of all of them."""
        done = checkpoint.restore(self.path, self.state(), self.fingerprint) if self.path.exists() else 0
        saved = time.monotonic()
        sizes = [batch.stop - batch.start for batch in self.batches]
        bar = told(sum(sizes), "prompts", "measuring", done=sum(sizes[:done]), shown=shown)
        with held_back() if math.isfinite(checkpoint_every) else nullcontext() as asked, bar:
            for k, batch in enumerate(self.batches[done:], done):
                self._measure(batch)
                is_last = k + 1 == len(self.batches) and math.isfinite(checkpoint_every)
                if asked or is_last or time.monotonic() - saved >= checkpoint_every:
                    checkpoint.save(self.path, self.state(), k + 1, self.fingerprint)
                    saved = time.monotonic()
                tokens = sum(sizes[done : k + 1]) * self.settings.length
                bar.update(sizes[k], f"{tokens / max(bar.seconds, 1e-9):.0f} tokens/s")
                if asked:
                    asked.end()

    def arrays(self, positions: Positions, shown: bool) -> dict[str, np.ndarray]:
        """Add up over all processes and return the arrays of the result; the sums are let go layer by layer."""
        N = len(self.ids)
        rows = {name: self.group.add_up(x).numpy() for name, x in self.rows.items()}
        layers = []
        with told(len(self.layers), "layers", "assembling", shown=shown) as bar:
            for t, layer in enumerate(self.layers):
                layer.sums = {name: self.group.add_up(x) for name, x in layer.sums.items()}
                found = layer.means(N, int(positions.reach[t]))
                layers.append({name: x.astype(np.float32) if name in WIDE else x for name, x in found.items()})
                layer.sums = {}
                bar.update()
        out = {}
        for name in list(layers[0]):
            out[name] = np.stack([means.pop(name) for means in layers])
        for where in ("diagonal", "offdiagonal"):
            if f"histogram_{where}" in out:
                out[f"similarity_{where}"] = entropy_similarity(out[f"histogram_{where}"])
        for norm in ("lambda_frobenius", "lambda_token"):
            out[norm] = rows[norm].mean(0)
            out[f"{norm}_std"] = rows[norm].std(0, ddof=min(1, N - 1))
            out[f"{norm}_prompts"] = rows[norm]
        total = rows["influence"].sum()
        if total <= 0:
            self.path.unlink(missing_ok=True)  # nothing goes on from there
            low = self.settings.precision()
            advice = "" if low == "float32" else "; try --dtype float32"
            raise checks.refuse("influence", "gradients above 0", f"none in {low}{advice}")
        out |= {"influence": rows["influence"].sum(0) / total, "influence_prompts": rows["influence"]}
        out |= {"influence_signed": rows["influence_signed"].mean(0)}
        out |= {"influence_signed_prompts": rows["influence_signed"], "probability": rows["probability"]}
        if self.carries:
            out["rollout_own"] = rows["rollout_own"]
        if len(self.cells.starts) < self.cells.n and {"kernels", "branches", "logits"} & set(self.settings.quantities):
            out["cell_start"] = self.cells.starts
        return out | self.study.prompt_arrays() | {
            "slopes": positions.slopes,
            "position_bias": positions.bias,
            "scale": positions.scale,
            "window": positions.window,
            "reach": positions.reach,
        }  # fmt: skip

    def _measure(self, batch: slice) -> None:
        ids = self.ids[batch]
        carried = torch.zeros(ids.shape) if self.carries else None
        if carried is not None:
            carried[:, -1] = 1.0

        def observe(seen: Reading) -> None:
            nonlocal carried
            layer = self.layers[seen.layer]
            carried = layer.add(seen, None if carried is None else carried.to(layer.device))

        try:
            reading = self.instrument.measure(ids, observe)
        except NotFinite as error:
            self.path.unlink(missing_ok=True)
            where = f"prompt {batch.start + error.prompt}, {error.where}"
            raise checks.refuse(where, "finite numbers", f"{error.number} in {self.settings.precision()}") from None
        for name in PER_PROMPT:
            self.rows[name][batch] = getattr(reading, name).to(torch.float64)
        if carried is not None:
            self.rows["rollout_own"][batch] = carried.double().cpu()


def _finished(output: Path, provenance: Mapping[str, Any], keep_tokens: bool) -> xr.Dataset:
    """Return the result that is there if it is what was asked for, or raise ValueError."""
    there = read_results(output)
    differing = [
        f"{name} {there.attrs.get(name, 'unknown')}, not {value}"
        for name, value in provenance.items()
        if str(there.attrs.get(name)) != str(value)
    ]
    if "added_bias" in there.attrs and "added_bias" not in provenance:
        differing.append("with a bias that was added, not without")
    if ("tokens" in there) != keep_tokens:
        differing.append("no tokens in it" if keep_tokens else "tokens in it, which were not to be kept")
    if differing:
        raise checks.refuse(str(output), "a result of the same settings, or --overwrite", "; ".join(differing[:3]))
    return there


def _out_of_memory(error: BaseException, settings: Settings) -> ValueError | None:
    """Return what to try if memory ran out, None for any other error."""
    text = str(error).lower()
    known = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")
    if not isinstance(error, torch.OutOfMemoryError | MemoryError) and not any(words in text for words in known):
        return None
    size = settings.batch_size
    ways = ["--quantities mixing,influence", "--device-map auto", "a smaller length"]
    if has_fast_bfloat16(settings.place()) and settings.precision() == "float32":
        ways.append("--dtype bfloat16")
    advice = str(size // 2) if size > 1 else " or ".join(ways)
    return checks.refuse("batch_size", "a batch that fits into memory", f"{size}; try {advice}")

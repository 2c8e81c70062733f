"""A measurement from start to end: prompts through the instrument, batch by batch, into a file.

The order of work makes refusals cheap: what can be seen without the model is checked before it is loaded. The
result and the checkpoints are written whole; a run killed at any moment goes on from its last checkpoint and
ends with the same bits, for the batches and their order are the same.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from posbias import checks
from posbias.measure.corpus import Corpus, Prompts, make_prompts
from posbias.measure.families import family_of
from posbias.measure.instrument import Instrument, NotFinite
from posbias.measure.loading import DTYPES, Source, check_fits
from posbias.measure.positions import Positions, read_positions
from posbias.measure.processes import Processes, processes
from posbias.measure.results import make_results, write_results
from posbias.measure.statistics import LayerStatistics, bin_centres, entropy_similarity
from posbias.provenance import versions
from posbias.shipped import model_folder
from posbias.training.loop import checkpoint

MOST_GIB = 16  # BLOOM-176B at n = 256 takes 4
PER_PROMPT = ("lambda_frobenius", "lambda_token", "influence", "influence_signed", "probability")


@dataclass(frozen=True)
class Settings:
    """Hold everything that decides what a measurement finds.

    Parameters
    ----------
    source, corpus
        Model and documents.
    prompts, length, batch_size
        How many prompts, of how many tokens, and how many at a time.
    dtype
        ``float32``, ``bfloat16`` or ``float16``; None takes 32 bits on a CPU and bfloat16 on a GPU.
    device
        As torch names it; None takes a GPU if there is one.
    device_map
        How accelerate spreads the model (``auto``, ``balanced``, …); None keeps it on one device.
    rule, seed, per_document, special_tokens
        As in :func:`~posbias.measure.corpus.make_prompts`.
    content, heads
        Whether to keep content logits as matrices, and attention for each head.
    """

    source: Source
    corpus: Corpus
    prompts: int
    length: int
    batch_size: int = 8
    dtype: str | None = None
    device: str | None = None
    device_map: str | None = None
    rule: str = "first"
    seed: int = 0
    per_document: int = 1
    special_tokens: bool = True
    content: bool = True
    heads: bool = False

    def place(self) -> torch.device:
        """Return the device, or raise ValueError if there is no such one."""
        if self.device is not None:
            try:
                device = torch.device(self.device)
            except RuntimeError:
                raise checks.refuse("device", "cpu, cuda or cuda:0, cuda:1, …", self.device) from None
        else:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda":
            there = torch.cuda.device_count()
            if (device.index or 0) >= there:
                raise checks.refuse("device", f"one of {there} GPUs", str(device))
            if device.index is None:
                device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % there)
        return device

    def cut(self, tokenizer: Any) -> Prompts:
        """Return the prompts that these settings describe."""
        return make_prompts(
            self.corpus,
            tokenizer,
            self.prompts,
            self.length,
            rule=self.rule,
            seed=self.seed,
            per_document=self.per_document,
            special_tokens=self.special_tokens,
        )

    def precision(self) -> str:
        """Return the name of the number format, or raise ValueError for an unknown one."""
        name = self.dtype or ("float32" if self.place().type == "cpu" else "bfloat16")
        if name not in DTYPES:
            raise checks.refuse("dtype", f"one of {', '.join(DTYPES)}", name)
        return name


def measure(
    settings: Settings,
    output: Path,
    *,
    resume: bool = False,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> xr.Dataset | None:
    """Measure a model on a corpus, write the result, and return it (None in processes other than the first).

    Parameters
    ----------
    settings
        What to measure.
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
    _check_output(output)
    checks.positive_integer("prompts", settings.prompts)
    checks.positive_integer("length", settings.length, minimum=2)
    checks.positive_integer("batch_size", settings.batch_size)
    device, dtype = settings.place(), DTYPES[settings.precision()]
    config = settings.source.config()
    tokenizer = settings.source.load_tokenizer()
    check_fits(config, tokenizer, settings.length)
    _check_matrices(settings, config)
    with processes(device) as group:
        path = checkpoint.checkpoint_path(output, group.rank)
        if path.exists() and not resume:
            raise checks.refuse(str(path), "--resume, or no checkpoint of an unfinished run", "one")
        prompts = settings.cut(tokenizer)
        provenance = _provenance(settings, config, tokenizer, prompts, group)
        model = settings.source.load_model(dtype, str(device), settings.device_map)
        instrument = Instrument(model)
        try:
            positions = read_positions(instrument, settings.length)
            run = _Run(settings, instrument, prompts, group, path, provenance)
            run.go(checkpoint_every, progress and group.rank == 0)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            raise _out_of_memory(error, settings.batch_size) or error from None
        arrays = run.arrays(positions)
        results = None
        if group.rank == 0:
            provenance |= {"position": positions.kind, "position_details": positions.details}
            results = make_results(arrays, provenance, bin_centres())
            write_results(output, results)
        group.add_up(torch.zeros(1))  # nobody's checkpoint goes before the result is there
        path.unlink(missing_ok=True)
        return results


def measured(settings: Settings, *, progress: bool = False) -> xr.Dataset:
    """Return a measurement without leaving a file; arguments and errors are those of :func:`measure`.

    For chapters, and for whoever wants the numbers at once.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = measure(settings, Path(folder) / "measurement.nc", checkpoint_every=math.inf, progress=progress)
    if results is None:
        raise RuntimeError("expected to be the first process, received another: use measure under torchrun")
    return results


class _Run:
    """One process's share of the batches, and its sums."""

    def __init__(
        self,
        settings: Settings,
        instrument: Instrument,
        prompts: Prompts,
        group: Processes,
        path: Path,
        provenance: dict[str, Any],
    ) -> None:
        self.settings, self.instrument, self.group, self.path = settings, instrument, group, path
        self.ids = torch.from_numpy(prompts.ids)
        N, n = self.ids.shape
        starts = range(0, N, settings.batch_size)
        self.batches = group.share([slice(start, min(start + settings.batch_size, N)) for start in starts])
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
        bar = _Bar(self.batches, self.settings.length, progress)
        for k, batch in enumerate(self.batches):
            if k >= done:
                self._measure(batch)
                if time.monotonic() - saved >= checkpoint_every:
                    checkpoint.save(self.path, self.state(), k + 1, self.fingerprint)
                    saved = time.monotonic()
            bar.advance(batch, fresh=k >= done)
        bar.close()

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
            raise checks.refuse("influence", "gradients above 0", f"none in {low}; try --dtype float32")
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


class _Bar:
    """Show prompts, tokens/s and the time left on stderr, on one line."""

    def __init__(self, batches: list[slice], n: int, shown: bool) -> None:
        self.total, self.n, self.shown = sum(b.stop - b.start for b in batches), n, shown
        self.done = self.fresh = 0
        self.began = time.monotonic()

    def advance(self, batch: slice, *, fresh: bool) -> None:
        size = batch.stop - batch.start
        self.done += size
        self.fresh += size if fresh else 0
        if self.shown and self.fresh:
            rate = self.fresh / (time.monotonic() - self.began)
            left = int((self.total - self.done) / rate)
            line = f"{self.done}/{self.total} prompts, {rate * self.n:.0f} tokens/s, {left // 60}:{left % 60:02d} left"
            sys.stderr.write(f"\r{line:60}")
            sys.stderr.flush()

    def close(self) -> None:
        if self.shown:
            sys.stderr.write("\n")


def _check_output(output: Path) -> None:
    """Raise unless ``output`` is a .nc file in a folder that can be written."""
    if output.suffix != ".nc":
        raise checks.refuse("output", "a file name that ends in .nc", output.name)
    if output.is_dir():
        raise checks.refuse("output", "a file to write", f"the directory {output}")
    try:
        tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(output)) from None


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


def _provenance(settings: Settings, config: Any, tokenizer: Any, prompts: Prompts, group: Processes) -> dict[str, Any]:
    """Return where the numbers come from; of local paths only the last part, which says enough."""
    source, heads = settings.source, config.num_attention_heads
    return {
        "model": _name(source.model),
        "revision": source.commit() or source.revision or _digest(Path(model_folder(source.model))),
        "architecture": family_of(config).name,
        "position": "",
        "dataset": _name(settings.corpus.source) if settings.rule != "random" else "random tokens",
        "prompts": settings.prompts,
        "rule": settings.rule + (f", {settings.per_document} a document" if settings.rule == "cut" else ""),
        "length": settings.length,
        "batch_size": settings.batch_size,
        "dtype": settings.precision(),
        "device": settings.device_map or str(settings.place().type),
        "seed": settings.seed,
        "tokenizer": _name(source.tokenizer or source.model),
        "special_tokens": str(settings.special_tokens),
        "prompts_sha256": prompts.sha256,
        "position_details": "",
        "processes": group.world,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        **versions("torch", "transformers"),
    }


def _name(source: str) -> str:
    path = Path(source)
    return path.resolve().name if path.exists() else source


def _digest(folder: Path) -> str:
    """Return a digest of a model's files: names, sizes, and the first and last MiB of each."""
    found = hashlib.sha256()
    for file in sorted([folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        size = file.stat().st_size
        found.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as content:
            found.update(content.read(1 << 20))
            content.seek(max(0, size - (1 << 20)))
            found.update(content.read(1 << 20))
    return f"files-{found.hexdigest()[:16]}"

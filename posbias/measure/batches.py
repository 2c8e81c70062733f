"""Batches one after another, with checkpoints between them: the same for whatever is read of a batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posbias import errors
from posbias.measure import checkpoint
from posbias.measure.memory import has_fast_bfloat16
from posbias.measure.progress import progress as told
from posbias.measure.settings import Settings
from posbias.measure.unfinished import held_back

EVERY = 60.0
"""Least seconds between two checkpoints."""


class Batch(NamedTuple):
    """A batch: how many prompts it has, and what reads it and adds to the state."""

    prompts: int
    read: Callable[[], None]


def go_through(
    batches: Sequence[Batch],
    state: Callable[[], Mapping[str, Tensor]],
    path: Path,
    fingerprint: str,
    *,
    checkpoint_every: float,
    shown: bool,
) -> None:
    """Read the batches that are left, in order; at the end there is a checkpoint of all of them.

    Batches are the same in the same order whenever a run goes on; ``state`` gives all that is added up, by name. A run
    goes on from the checkpoint in ``path`` if that is there and has the same ``fingerprint``. Ctrl-C and SIGTERM wait
    for the batch at work and leave a checkpoint of it. With infinite seconds between checkpoints there are none.
    """
    done = checkpoint.restore(path, state(), fingerprint) if path.exists() else 0
    saved = time.monotonic()
    before = sum(batch.prompts for batch in batches[:done])
    bar = told(sum(batch.prompts for batch in batches), "prompts", "measuring", done=before, shown=shown)
    with held_back() if math.isfinite(checkpoint_every) else nullcontext() as asked, bar:
        for k, batch in enumerate(batches[done:], done):
            batch.read()
            is_last = k + 1 == len(batches) and math.isfinite(checkpoint_every)
            if asked or is_last or time.monotonic() - saved >= checkpoint_every:
                checkpoint.save(path, state(), k + 1, fingerprint)
                saved = time.monotonic()
            bar.update(batch.prompts)
            if asked:
                asked.end()


def fingerprint_of(provenance: Mapping[str, Any], rank: int) -> str:
    r"""Return the settings that must be equal for a run to go on, a line each, with the process.

    >>> fingerprint_of({"model": "m", "format_error": "{}"}, 1)
    'model=m\nrank=1'
    """
    named = {name: x for name, x in provenance.items() if name != "format_error"} | {"rank": rank}
    return "\n".join(f"{name}={value}" for name, value in named.items())


def differing(there: Mapping[Any, Any], provenance: Mapping[str, Any]) -> list[str]:
    """Return in words which settings of a result that is there are not those that are asked for.

    >>> differing({"seed": 0, "model": "m"}, {"seed": 4, "model": "m"})
    ['seed 0, not 4']
    """
    return [
        f"{name} {there.get(name, 'unknown')}, not {value}"
        for name, value in provenance.items()
        if str(there.get(name)) != str(value)
    ]


def out_of_memory(error: BaseException, settings: Settings) -> ValueError | None:
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
    return errors.invalid("batch_size", "a batch that fits into memory", f"{size}; try {advice}")

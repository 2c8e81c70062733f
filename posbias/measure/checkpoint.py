"""Checkpoints: the whole state of a run, in a file that is complete at any moment and holds no code.

Batches are gone through one after another, with checkpoints between them, whatever is read of a batch.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from pickle import UnpicklingError
from struct import error as StructError
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posbias import errors
from posbias.files import whole_file
from posbias.measure.progress import progress as told
from posbias.measure.unfinished import held_back

EVERY = 60.0
"""Least seconds between two checkpoints."""
FOUND = ("format_error", "self_check")
"""Provenance that is no setting, but found by measuring."""
BROKEN = (
    RuntimeError, UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError, StructError
)  # fmt: skip
"""What reading a damaged checkpoint can raise."""


def save(path: Path, state: Mapping[str, Any], done: int, fingerprint: str) -> None:
    """Write a checkpoint over the previous one, which is replaced only when the new one is complete.

    ``done`` steps or batches are in ``state``: tensors, and what has a ``state_dict``, as modules and optimizers do.
    ``fingerprint`` has the settings that must be equal for a run to resume from here, a ``name=value`` in each line.
    """
    parts = {name: x if isinstance(x, Tensor) else x.state_dict() for name, x in state.items()}
    content = io.BytesIO()  # what torch says of a full disk is not what the system says
    torch.save({"state": parts, "done": done, "fingerprint": fingerprint}, content)
    with whole_file(path) as file:
        file.write_bytes(content.getbuffer())


def settings_of(path: Path) -> dict[str, str]:
    """Return the settings of the run that wrote a checkpoint, by name."""
    lines = _read(path)["fingerprint"].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def restore(path: Path, state: Mapping[str, Any], fingerprint: str) -> int:
    """Load a checkpoint into ``state``, in place, and return how many steps or batches it includes.

    A damaged file, and one of a run with other settings, are refused with a ValueError.
    """
    found = _read(path)
    theirs, parts, done = found["fingerprint"], found["state"], found["done"]
    if theirs != fingerprint:
        ours = fingerprint.splitlines()
        received = ", ".join([line for line in theirs.splitlines() if line not in ours][:3]) or "one without settings"
        raise errors.invalid(str(path), "a checkpoint of a run with the same settings", received)
    if parts.keys() != state.keys():
        raise errors.invalid(str(path), f"a checkpoint of {', '.join(state)}", ", ".join(parts))
    for name, x in state.items():
        try:
            if isinstance(x, Tensor):
                x.copy_(parts[name])
            else:
                x.load_state_dict(parts[name])
        except (RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise errors.invalid(f"{path}: {name}", "the state of a run with the same settings", reason) from None
    return done


def _read(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds, with the parts that every one has."""
    if path.is_dir():
        raise errors.invalid(str(path), "a checkpoint, which is a file", "a directory")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        return {"fingerprint": str(found["fingerprint"]), "state": dict(found["state"]), "done": int(found["done"])}
    except BROKEN as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
        raise errors.invalid(str(path), "an intact checkpoint", reason) from None


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
    done = restore(path, state(), fingerprint) if path.exists() else 0
    saved = time.monotonic()
    before = sum(batch.prompts for batch in batches[:done])
    bar = told(sum(batch.prompts for batch in batches), "prompts", "measuring", done=before, shown=shown)
    with held_back() if math.isfinite(checkpoint_every) else nullcontext() as asked, bar:
        for k, batch in enumerate(batches[done:], done):
            batch.read()
            is_last = k + 1 == len(batches) and math.isfinite(checkpoint_every)
            if asked or is_last or time.monotonic() - saved >= checkpoint_every:
                save(path, state(), k + 1, fingerprint)
                saved = time.monotonic()
            bar.update(batch.prompts)
            if asked:
                asked.end()


def fingerprint_of(provenance: Mapping[str, Any], rank: int) -> str:
    r"""Return the settings that must be equal for a run to go on, a line each, with the process.

    >>> fingerprint_of({"model": "m", "format_error": "{}"}, 1)
    'model=m\nrank=1'
    """
    named = {name: x for name, x in provenance.items() if name not in FOUND} | {"rank": rank}
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

"""Checkpoints: the whole state of a run, in a file that is complete at any moment and holds no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from posbias import checks
from posbias.files import whole_file


@runtime_checkable
class Stateful(Protocol):
    """What keeps its own state, as modules and optimizers do."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Take over a state."""


def checkpoint_path(output: Path, rank: int) -> Path:
    """Return the checkpoint of a process: a file beside the result.

    >>> checkpoint_path(Path("out/m.nc"), 0).name
    'm.nc.rank0.checkpoint'
    """
    return output.with_name(f"{output.name}.rank{rank}.checkpoint")


def save(path: Path, state: Mapping[str, Tensor | Stateful], done: int, fingerprint: str) -> None:
    """Write a checkpoint over the previous one.

    Parameters
    ----------
    path
        Where to; the file is replaced only when the new one is complete.
    state
        Name → tensor, module or optimizer.
    done
        Steps or batches that the state includes.
    fingerprint
        Settings that must be equal for a run to resume from here, a ``name=value`` in each line.
    """
    parts = {name: x if isinstance(x, Tensor) else x.state_dict() for name, x in state.items()}
    with whole_file(path) as temporary:
        torch.save({"state": parts, "done": done, "fingerprint": fingerprint}, temporary)


def settings_of(path: Path) -> dict[str, str]:
    """Return the settings of the run that wrote a checkpoint, by name.

    Raises
    ------
    ValueError
        If the file is damaged.
    OSError
        If there is none.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        lines = str(found["fingerprint"]).splitlines()
    except (RuntimeError, UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise checks.refuse(str(path), "an intact checkpoint", f"{type(error).__name__}: {error}") from None
    return dict(line.split("=", 1) for line in lines if "=" in line)


def restore(path: Path, state: Mapping[str, Tensor | Stateful], fingerprint: str) -> int:
    """Load a checkpoint into ``state``, in place, and return how many steps or batches it includes.

    Raises
    ------
    ValueError
        If the file is damaged, or of a run with other settings.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        theirs, parts, done = str(found["fingerprint"]), dict(found["state"]), int(found["done"])
    except (RuntimeError, UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise checks.refuse(str(path), "an intact checkpoint", f"{type(error).__name__}: {error}") from None
    if theirs != fingerprint:
        raise checks.refuse(str(path), "a checkpoint of a run with the same settings", _difference(fingerprint, theirs))
    if parts.keys() != state.keys():
        raise checks.refuse(str(path), f"a checkpoint of {', '.join(state)}", ", ".join(parts))
    for name, x in state.items():
        if isinstance(x, Tensor):
            x.copy_(parts[name])
        else:
            x.load_state_dict(parts[name])
    return done


def _difference(ours: str, theirs: str) -> str:
    """Return the settings that differ, from two lists with a ``name=value`` in each line."""
    differing = [line for line in theirs.splitlines() if line not in ours.splitlines()]
    return ", ".join(differing[:3]) or "one without settings"

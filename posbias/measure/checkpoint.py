"""Checkpoints: the whole state of a run, in a file that is complete at any moment and holds no code."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from struct import error as StructError
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from posbias import errors
from posbias.files import whole_file

BROKEN = (
    RuntimeError, UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError, StructError
)  # fmt: skip
"""What reading a damaged checkpoint can raise."""


@runtime_checkable
class Stateful(Protocol):
    """What keeps its own state, as modules and optimizers do."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Take over a state."""


def save(path: Path, state: Mapping[str, Tensor | Stateful], done: int, fingerprint: str) -> None:
    """Write a checkpoint over the previous one, which is replaced only when the new one is complete.

    ``done`` steps or batches are in ``state``; ``fingerprint`` has the settings that must be equal for a run to resume
    from here, a ``name=value`` in each line.
    """
    parts = {name: x if isinstance(x, Tensor) else x.state_dict() for name, x in state.items()}
    content = io.BytesIO()  # what torch says of a full disk is not what the system says
    torch.save({"state": parts, "done": done, "fingerprint": fingerprint}, content)
    with whole_file(path) as file:
        file.write_bytes(content.getbuffer())


def settings_of(path: Path) -> dict[str, str]:
    """Return the settings of the run that wrote a checkpoint, by name."""
    found = _read(path)
    lines = str(found["fingerprint"]).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def restore(path: Path, state: Mapping[str, Tensor | Stateful], fingerprint: str) -> int:
    """Load a checkpoint into ``state``, in place, and return how many steps or batches it includes.

    A damaged file, and one of a run with other settings, are refused with a ValueError.
    """
    found = _read(path)
    theirs, parts, done = str(found["fingerprint"]), found["state"], found["done"]
    if theirs != fingerprint:
        raise errors.invalid(
            str(path), "a checkpoint of a run with the same settings", _difference(fingerprint, theirs)
        )
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


def _difference(ours: str, theirs: str) -> str:
    """Return the settings that differ, from two lists with a ``name=value`` in each line."""
    differing = [line for line in theirs.splitlines() if line not in ours.splitlines()]
    return ", ".join(differing[:3]) or "one without settings"

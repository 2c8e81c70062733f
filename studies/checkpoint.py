"""Checkpoints of training: the whole state of a run, in a file that is complete at any moment and holds no code."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from struct import error as StructError
from typing import Any

import torch
from torch import Tensor

from posbias import errors
from posbias.files import whole_file

BROKEN = (
    RuntimeError, UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError, StructError
)  # fmt: skip
"""What reading a damaged checkpoint can raise."""


def save(path: Path, state: Mapping[str, Any], done: int, fingerprint: str) -> None:
    """Write a checkpoint over the previous one, which is replaced only when the new one is complete."""
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
    """Load a checkpoint into ``state``, in place, and return how many steps or batches it includes."""
    found = _read(path)
    theirs, parts, done = found["fingerprint"], found["state"], found["done"]
    if theirs != fingerprint:
        ours = fingerprint.splitlines()
        received = ", ".join([line for line in theirs.splitlines() if line not in ours][:3]) or "one without settings"
        raise errors.invalid(str(path), "a checkpoint of a run with the same settings", received)
    for name, x in state.items():
        if isinstance(x, Tensor):
            x.copy_(parts[name])
        else:
            x.load_state_dict(parts[name])
    return done


def _read(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds, with the parts that every one has."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        return {"fingerprint": str(found["fingerprint"]), "state": dict(found["state"]), "done": int(found["done"])}
    except BROKEN as error:
        raise errors.invalid(str(path), "an intact checkpoint", errors.short(error)) from None

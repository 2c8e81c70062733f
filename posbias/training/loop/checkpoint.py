"""Checkpoints: everything a run has accumulated so far, in a file that is valid at any moment, without pickle."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from posbias import checks
from posbias.files import whole_file


def checkpoint_path(output: Path, rank: int) -> Path:
    """Return the path of a process's checkpoint, beside the result.

    >>> checkpoint_path(Path("out/m.nc"), 0).name
    'm.nc.rank0.checkpoint'
    """
    return output.with_name(f"{output.name}.rank{rank}.checkpoint")


def save(path: Path, tensors: dict[str, Tensor], done: int, fingerprint: str) -> None:
    """Write a checkpoint over the one before.

    Parameters
    ----------
    path
        From :func:`checkpoint_path`.
    tensors
        Name → sums so far; copied to the CPU.
    done
        Batches that they hold.
    fingerprint
        Whatever must be equal for the run to continue from here.
    """
    with whole_file(path) as temporary:
        on_cpu = {name: x.cpu().contiguous() for name, x in tensors.items()}
        save_file(on_cpu, temporary, metadata={"done": str(done), "fingerprint": fingerprint})


def restore(path: Path, tensors: dict[str, Tensor], fingerprint: str) -> int:
    """Copy a checkpoint into ``tensors``, in place, and return how many batches it holds.

    Raises
    ------
    ValueError
        If the file is damaged, or of a run with other settings.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("fingerprint") != fingerprint:
                other = _difference(fingerprint, metadata.get("fingerprint", ""))
                raise checks.refuse(str(path), "a checkpoint of a run with the same settings", other)
            if set(file.keys()) != set(tensors):
                raise checks.refuse(str(path), "a checkpoint of this layout", "other tensors")
            for name, x in tensors.items():
                x.copy_(file.get_tensor(name))
            return int(metadata["done"])
    except SafetensorError as error:
        raise checks.refuse(str(path), "an intact checkpoint", str(error)) from None


def _difference(ours: str, theirs: str) -> str:
    """Return the settings that differ, from two lists with a ``name=value`` in each line."""
    differing = [line for line in theirs.splitlines() if line not in ours.splitlines()]
    return ", ".join(differing[:3]) or "one without settings"

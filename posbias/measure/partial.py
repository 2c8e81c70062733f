"""Partial sums: a run that was killed goes on from its last batch, from one file beside its output."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from struct import error as StructError
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posbias import errors
from posbias.files import whole_file
from posbias.measure.progress import progress as told

SHARE = 20
"""How many times as long as the last writing took, at least, the run works until the next."""
BROKEN = (RuntimeError, UnpicklingError, StructError, EOFError, LookupError, TypeError, ValueError, AttributeError)
"""What reading a damaged file can raise."""


class Partial(NamedTuple):
    """Where the partial sums of a run are, and the settings that must be equal for it to go on from there."""

    path: Path
    settings: dict[str, str]

    def save(self, sums: Mapping[str, Tensor], done: int) -> None:
        """Write the sums over ``done`` batches, whole or not at all."""
        with whole_file(self.path) as file:
            torch.save({"settings": self.settings, "done": done, "sums": dict(sums)}, file)

    def read(self) -> dict[str, Any] | None:
        """Return what is there, None where nothing is; raise ValueError for a damaged file, and for another run's."""
        if not self.path.exists():
            return None
        try:
            there = torch.load(self.path, map_location="cpu", weights_only=True)
            theirs, found = dict(there["settings"]), {"done": int(there["done"]), "sums": dict(there["sums"])}
        except (*BROKEN, OSError) as error:
            raise errors.invalid(str(self.path), "intact partial sums", errors.short(error)) from None
        if theirs != self.settings:
            received = [f"{name}={x}" for name, x in theirs.items() if self.settings.get(name) != x][:3]
            raise errors.invalid(str(self.path), "partial sums of a run with the same settings", ", ".join(received))
        return found

    def restore(self, sums: Mapping[str, Tensor]) -> int:
        """Load what is there into ``sums``, in place, and return how many batches it is of; 0 where there is none."""
        found = self.read()
        for name, x in sums.items() if found else ():
            x.copy_(found["sums"][name])  # type: ignore[index]
        return 0 if found is None else int(found["done"])


class Batch(NamedTuple):
    """A batch: how many prompts it has, and what reads it and adds to the sums."""

    prompts: int
    read: Callable[[], None]


def read_batches(
    batches: Sequence[Batch], sums: Callable[[], Mapping[str, Tensor]], partial: Partial | None, *, shown: bool
) -> None:
    """Read the batches that are left, in order, and keep the sums in a file on the way if one is given."""
    done = 0 if partial is None else partial.restore(sums())
    saved, cost = time.monotonic(), 0.0
    before = sum(batch.prompts for batch in batches[:done])
    with told(sum(batch.prompts for batch in batches), "prompts", "measuring", done=before, shown=shown) as bar:
        for k, batch in enumerate(batches[done:], done + 1):
            batch.read()
            bar.update(batch.prompts)
            if partial is not None and (time.monotonic() - saved >= SHARE * cost or k == len(batches)):
                start = time.monotonic()
                partial.save(sums(), k)
                saved = time.monotonic()
                cost = saved - start


def as_settings(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return provenance as the settings that must be equal."""
    return {name: str(x) for name, x in provenance.items()}

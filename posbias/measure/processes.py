"""One process or many: the share of each, and sums over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed

Item = TypeVar("Item")


@dataclass(frozen=True)
class Processes:
    """Say which of how many processes this is; torchrun starts several, and without it there is one.

    Parameters
    ----------
    rank
        0-based.
    world
        Number of processes.
    device
        Where sums are exchanged: a GPU under nccl, the CPU under gloo.
    """

    rank: int
    world: int
    device: torch.device

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Return this process's items: every ``world``-th one."""
        return list(items[self.rank :: self.world])

    def add_up(self, x: Tensor) -> Tensor:
        """Return the sum of all processes' ``x``, the same in each.

        Raises
        ------
        ChildProcessError
            If another process has stopped; that one says why.
        """
        if self.world == 1:
            return x
        total = x.to(self.device, copy=True)
        try:
            distributed.all_reduce(total)
        except RuntimeError:
            raise ChildProcessError(f"process {self.rank}: expected all {self.world} to finish, one stopped") from None
        return total.to(x.device)


@contextmanager
def processes(device: torch.device) -> Iterator[Processes]:
    """Join the other processes, if torchrun started any, until the block ends."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes(0, 1, device)
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(distributed.get_rank(), world, device if device.type == "cuda" else torch.device("cpu"))
    finally:
        distributed.destroy_process_group()

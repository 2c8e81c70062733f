"""One process or many: the share of each, and sums over all of them.

Processes work alone until their prompts are done and then add up, on the CPU by gloo wherever the models run. That is
little work, done once, and gloo has what matters here: a process may wait for a slow one as long as it takes, and
hears at once if another has ended, for its connections close.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from posbias import errors

Item = TypeVar("Item")

PATIENCE = timedelta(days=7)
"""How long to wait for a process that is there: one that resumes has less to do than one that starts again."""


@dataclass(frozen=True)
class Processes:
    """Say which (from 0) of how many processes this is; torchrun starts several, and without it there is one."""

    rank: int
    world: int
    group: Any = None
    """Through which sums are exchanged; None takes the one of all processes."""

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Return this process's items: every ``world``-th one."""
        return list(items[self.rank :: self.world])

    def add_up(self, x: Tensor) -> Tensor:
        """Return the sum of all processes' ``x``, the same in each."""
        if self.world == 1:
            return x
        total = x.to("cpu", copy=True)
        try:
            distributed.all_reduce(total, group=self.group)
        except RuntimeError:
            raise ChildProcessError(
                f"process {self.rank}: expected all {self.world} to finish, one stopped; "
                "the same command with --resume goes on"
            ) from None
        return total.to(x.device)


def world_size() -> int:
    """Return how many processes torchrun started, 1 where it started none."""
    if os.environ.get("WORLD_SIZE", "1") == "1" and "RANK" not in os.environ:
        return 1
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise errors.invalid(name, "all of torchrun's variables, or none: start with torchrun", "none")
    world, rank = _number("WORLD_SIZE", 1, 2**31), _number("RANK", 0, 2**31)
    if rank >= world:
        raise errors.invalid("RANK", f"a number below WORLD_SIZE {world}: start with torchrun", rank)
    _number("MASTER_PORT", 1, 2**16)
    local_rank()
    return world


def local_rank() -> int:
    """Return which of the processes on this machine this is, 0 without torchrun; raise ValueError for no number."""
    return _number("LOCAL_RANK", 0, 2**31) if "LOCAL_RANK" in os.environ else 0


def found_device(name: str | None) -> torch.device:
    """Return the device of that name, or a GPU if there is one; raise ValueError if there is no such device."""
    if name is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    else:
        errors.device("device", name)
        try:
            device = torch.device(name)
            if device.type not in ("cpu", "cuda"):
                torch.zeros(1, device=device, dtype=torch.float64).item()
        except Exception:  # each kind of device that is not there has an error of its own
            raise errors.invalid("device", "cpu, cuda or cuda:0, cuda:1, …", repr(name)) from None
    if device.type == "cuda":
        there = torch.cuda.device_count()
        if (device.index or 0) >= there:
            raise errors.invalid("device", f"one of {there} GPUs", str(device))
        if device.index is None:
            device = torch.device("cuda", local_rank() % there)
    return device


def _number(name: str, least: int, below: int) -> int:
    """Return the whole number in a variable of the environment, which is at least ``least`` and below ``below``."""
    text = os.environ[name].strip()
    if not (text.isascii() and text.isdigit() and least <= int(text[:12]) < below):
        raise errors.invalid(name, f"a whole number from {least} to {below - 1}: start with torchrun", repr(text[:40]))
    return int(text)


@contextmanager
def processes() -> Iterator[Processes]:
    """Join the other processes, if torchrun started any, until the block ends."""
    world = world_size()
    if world == 1:
        yield Processes(0, 1)
        return
    try:
        distributed.init_process_group("gloo")
        group = distributed.new_group(backend="gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        wanted = "an address at which the processes meet: start with torchrun"
        raise errors.invalid("MASTER_ADDR", wanted, f"{os.environ['MASTER_ADDR']} ({reason})") from None
    try:
        yield Processes(distributed.get_rank(), world, group)
    finally:
        distributed.destroy_process_group()

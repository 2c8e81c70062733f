"""Work that is shared over processes which ``torchrun`` or ``accelerate launch`` started: each does a share of it.

What they add up is joined once, at the end, on their CPUs; the first of them writes. A process that ends before leaves
the others with one line, and its partial sums where they are.
"""

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")
LONG = timedelta(days=7)
"""How long a process waits for the others' shares."""


class Team(NamedTuple):
    """Say which process this is, of how many that share a piece of work."""

    rank: int = 0
    size: int = 1
    group: Any = None

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return this process's share: every ``size``-th, so that all end at about the same time."""
        return items[self.rank :: self.size]

    def add_up(self, sums: Mapping[str, Any]) -> None:
        """Add the other processes' tensors of the same names to these, in place."""
        if self.size > 1:
            from torch import distributed

            for x in sums.values():
                whole = x.cpu()
                _together(distributed.all_reduce, whole, group=self.group)
                x.copy_(whole)


def rank() -> int:
    """Return the number of this process; 0 of the first, which writes, and of one that was started alone."""
    return int(os.environ.get("RANK", "0"))


def share_out(parts: int) -> Team:
    """Return the team that shares so many parts: this process alone where there are fewer parts than processes.

    So it is, too, where somebody else's program has connected the processes, which may have other work.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or parts < size:
        return Team()
    group = _connected()
    return Team() if group is None else Team(rank(), size, group)


def wait() -> None:
    """Wait until all processes that share work have come here."""
    if _connected.cache_info().currsize and (group := _connected()) is not None:
        from torch import distributed

        _together(distributed.barrier, group=group)


@cache
def _connected() -> Any:
    """Connect the processes; one that is ended from outside, as the launcher does it, is interrupted."""
    from torch import distributed

    if distributed.is_initialized():
        return None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    _together(distributed.init_process_group, "gloo", timeout=timedelta(minutes=10))
    return _together(distributed.new_group, timeout=LONG)


def _together(act: Any, *given: Any, **how: Any) -> Any:
    """Return what an act of all processes gives, or say that one of them is missing."""
    try:
        return act(*given, **how)
    except RuntimeError:
        expected = "processes: expected all of them to work to the end, received one that ended before"
        raise ConnectionError(f"{expected}; partial sums are left: --resume goes on") from None

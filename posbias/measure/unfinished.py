"""Runs that have not ended: where their checkpoints lie, how they are stopped, and what is said of what is left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from posbias import errors
from posbias.files import check_output

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""What a process that was asked to end returns, by the signal that asked."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised as Ctrl-C is, so that whatever is open is closed and temporary files are removed."""


class Interrupted(BaseException):
    """A run that was asked to end: one line that says what is left, and the status of the process."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def checkpoint_path(output: Path, rank: int) -> Path:
    """Return the checkpoint of a process: a file beside the result.

    >>> checkpoint_path(Path("out/m.nc"), 0).name
    'm.nc.rank0.checkpoint'
    """
    return output.with_name(f"{output.name}.rank{rank}.checkpoint")


def own_checkpoint(output: Path) -> Path:
    """Return the checkpoint of this process, one of several if torchrun says so."""
    rank = os.environ.get("RANK", "0")
    return checkpoint_path(output, int(rank) if rank.isdigit() else 0)


def check_run(output: Path, *, resume: bool, overwrite: bool = False, report: Path | None = None) -> None:
    """Raise unless a result (and a report) can be written, and its run begun or resumed."""
    if report is not None:
        check_output(report, ".html", "report", overwrite=resume or overwrite)
    check_output(output, overwrite=resume or overwrite)
    path = own_checkpoint(output)
    if path.exists() and not path.is_file():
        raise errors.invalid(str(path), "a checkpoint, which is a file", "a directory" if path.is_dir() else "none")
    if path.exists() and not resume:
        raise errors.invalid(str(path), "no checkpoint of an unfinished run", "one; give --resume, or delete it")


class HeldBack:
    """A request to end that waits until a step is whole; made by :func:`held_back`."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def end(self) -> NoReturn:
        """Raise what the request would have raised at once."""
        raise Terminated if self.signal == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def held_back() -> Iterator[HeldBack]:
    """Hold Ctrl-C and SIGTERM back inside the block, so that a run ends between two steps, with a checkpoint.

    What is yielded is true from the first request on; the run saves its state and calls ``end()``. A second request
    does not wait.
    """
    asked = HeldBack()

    def hear(number: int, frame: Any) -> None:
        if asked:
            asked.end()
        asked.signal = signal.Signals(number)

    with _handled({number: hear for number in STATUS}):
        yield asked


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise :class:`Terminated` inside the block, so that what is open is closed."""

    def end(number: int, frame: Any) -> NoReturn:
        raise Terminated

    with _handled({signal.SIGTERM: end}):
        yield


@contextmanager
def _handled(handlers: dict[signal.Signals, Callable[[int, Any], None]]) -> Iterator[None]:
    """Handle signals inside the block; outside the main thread, which alone hears of them, nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def resumable(
    left: Callable[[], Sequence[Path]],
    how: str = "the same command with --resume goes on",
    nothing: str = "no checkpoint was written yet",
) -> Iterator[None]:
    """Raise :class:`Interrupted`, with the files that are left and how to go on, where a run inside is interrupted."""
    try:
        yield
    except KeyboardInterrupt as error:
        there = [path for path in left() if path.is_file()]
        kept = nothing if not there else f"{there[0]} is left: {how}"
        if len(there) > 1:
            kept = f"{there[0]} and {len(there) - 1} more are left: {how}"
        number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
        raise Interrupted(f"interrupted; {kept}", STATUS[number]) from None

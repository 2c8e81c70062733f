"""Runs that have not ended: where their checkpoints lie, how they are stopped, and what is said of what is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from posbias import errors
from posbias.files import remove_orphans

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""What a process that was asked to end returns, by the signal that asked."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised as Ctrl-C is, so that whatever is open is closed and temporary files are removed."""


class Interrupted(BaseException):
    """A run that was asked to end, with what is left of it.

    Parameters
    ----------
    message
        One line: what is left, and how to go on.
    status
        Of the process, one of :data:`STATUS`.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def checkpoint_path(output: Path, rank: int) -> Path:
    """Return the checkpoint of a process: a file beside the result.

    >>> checkpoint_path(Path("out/m.nc"), 0).name
    'm.nc.rank0.checkpoint'
    """
    return output.with_name(f"{output.name}.rank{rank}.checkpoint")


def check_unfinished(path: Path, *, resume: bool) -> bool:
    """Return whether there is a checkpoint to resume from; what a killed run left beside it is removed.

    Parameters
    ----------
    path
        The checkpoint.
    resume
        Whether the run may go on from there.

    Raises
    ------
    ValueError
        If there is one and it is not to be used, or there is something else of that name.
    """
    if path.exists() and not path.is_file():
        raise errors.invalid(str(path), "a checkpoint, which is a file", "a directory" if path.is_dir() else "none")
    if path.exists() and not resume:
        raise errors.invalid(str(path), "no checkpoint of an unfinished run", "one; give --resume, or delete it")
    remove_orphans(path)
    return path.exists()


def check_no_results(path: Path) -> None:
    """Raise ValueError if the results that are to be written are there."""
    if path.exists():
        raise errors.invalid(str(path), "no earlier results", "a file; give --resume, or another folder")


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
    """Hold Ctrl-C and SIGTERM back inside the block, so that a run can end between two steps, with a checkpoint.

    What is yielded is true from the first request on; the run saves its state and calls ``end()``. A second request
    does not wait. Outside the main thread, which alone hears of signals, nothing is held back.
    """
    asked = HeldBack()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def hear(number: int, frame: Any) -> None:
        if asked:
            asked.end()
        asked.signal = signal.Signals(number)

    before = {number: signal.signal(number, hear) for number in STATUS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise :class:`Terminated` inside the block, so that what is open is closed."""

    def end(number: int, frame: Any) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def resumable(
    left: Callable[[], Sequence[Path]],
    how: str = "the same command with --resume goes on",
    nothing: str = "no checkpoint was written yet",
) -> Iterator[None]:
    """Say what is left and how to go on, when a run is interrupted inside the block.

    Parameters
    ----------
    left
        Gives the files from which a run can go on, those that are not there included.
    how
        What to do then.
    nothing
        What to say if none is there.

    Raises
    ------
    Interrupted
        In place of the interruption.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        there = [path for path in left() if path.is_file()]
        kept = nothing if not there else f"{there[0]} is left: {how}"
        if len(there) > 1:
            kept = f"{there[0]} and {len(there) - 1} more are left: {how}"
        number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
        raise Interrupted(f"interrupted; {kept}", STATUS[number]) from None

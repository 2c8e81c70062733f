"""Progress of what takes long: a bar on a terminal, a line every half minute in the log of a batch system."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

EVERY = 30.0
"""Seconds between two lines where standard error is no terminal."""


class Progress:
    """How much of a task is done, told on standard error until the ``with`` block ends; made by :func:`progress`.

    On a terminal it is a bar of tqdm. Elsewhere a thread writes a line every :data:`EVERY` seconds, also while one step
    takes longer than that, and a last line says what was done in which time; what was quicker says nothing.
    """

    def __init__(self, total: int | None, unit: str, what: str, done: int, shown: bool) -> None:
        self.total, self.unit, self.what, self.done, self.note = total, unit, what, done, ""
        self._start, self._shown, self._since = done, shown, time.monotonic()
        self._bar: Any = None
        self._ended = threading.Event()
        self._lines: threading.Thread | None = None

    def __enter__(self) -> Progress:
        """Begin to tell."""
        self._since = time.monotonic()
        if self._shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                desc=self.what, total=self.total, initial=self.done, unit=f" {self.unit}", dynamic_ncols=True
            )
        elif self._shown:
            self._lines = threading.Thread(target=self._tell, args=(sys.stderr, EVERY), daemon=True)
            self._lines.start()
        return self

    def update(self, number: int = 1, note: str = "") -> None:
        """Count ``number`` more as done.

        Parameters
        ----------
        number
            How many units more; 0 changes the note alone.
        note
            What else to show, such as a loss; the last one stays unless given.
        """
        self.done += number
        self.note = note or self.note
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(number)

    @property
    def seconds(self) -> float:
        """Seconds since the block began."""
        return time.monotonic() - self._since

    def line(self) -> str:
        """Return what is done, how fast, and the time that is left, as far as they are known."""
        parts = [f"{self.done}{'' if self.total is None else f'/{self.total}'} {self.unit}"]
        rate = (self.done - self._start) / max(self.seconds, 1e-9)
        if rate > 0:
            parts.append(f"{rate:.3g} {self.unit}/s")
            if self.total is not None:
                parts.append(f"{clock_time((self.total - self.done) / rate)} left")
        else:
            parts.append(f"{clock_time(self.seconds)} so far")
        return f"{self.what}: {', '.join([*parts, *([self.note] if self.note else [])])}"

    def _tell(self, stream: Any, every: float) -> None:
        while not self._ended.wait(every):
            stream.write(f"{self.line()}\n")
            stream.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; after an error nothing more is said."""
        self._ended.set()
        if self._bar is not None:
            self._bar.close()
        if self._lines is not None:
            self._lines.join()
            if kind is None and self.seconds >= EVERY:
                made = f"{self.done - self._start} {self.unit} in {clock_time(self.seconds)}"
                sys.stderr.write(f"{self.what}: {', '.join([made, *([self.note] if self.note else [])])}\n")


def progress(total: int | None, unit: str, what: str, *, done: int = 0, shown: bool = True) -> Progress:
    """Return what tells how far a task is, in a ``with`` block.

    Parameters
    ----------
    total
        Units in all; None if that is not known.
    unit
        What is counted, in the plural, such as ``prompts``.
    what
        What is done, such as ``measuring``.
    done
        Units that were done before, such as those of a run that is resumed; they do not count towards the rate.
    shown
        Whether to tell anything at all.

    >>> with progress(4, "prompts", "measuring", shown=False) as bar:
    ...     for _ in range(3):
    ...         bar.update()
    >>> bar.done, bar.line().split(",")[0]
    (3, 'measuring: 3/4 prompts')
    """
    return Progress(total, unit, what, done, shown)


def clock_time(seconds: int | float) -> str:
    """Return a time in minutes and seconds, with hours where there are any.

    >>> clock_time(75), clock_time(7384)
    ('1:15', '2:03:04')
    """
    whole = int(seconds + 0.5)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"

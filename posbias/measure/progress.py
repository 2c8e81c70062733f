"""Progress of what takes long, on standard error: a bar on a terminal or in a notebook, else a line every so often."""

import sys
import threading
import time
from typing import Any

from tqdm import tqdm

EVERY = 4.0
"""Seconds without a sign of life of any bar after which there is one; in a log, what is quicker says nothing."""


class Progress(tqdm):
    """A bar of tqdm whose updates may carry a note, such as a loss."""

    shown = time.monotonic()
    """When any bar was last shown: many short tasks in a row are not silent together."""

    def __init__(self, **options: Any) -> None:
        self.ended = threading.Event()
        super().__init__(**options)
        if not self.disable:
            threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        """Show the bar again and again, also while a single step takes long, such as loading."""
        while not self.ended.wait(max(EVERY / 8, Progress.shown + EVERY - time.monotonic())):
            self.refresh()

    def display(self, *args: Any, **kwargs: Any) -> Any:
        """Show the bar."""
        Progress.shown = time.monotonic()
        return super().display(*args, **kwargs)

    def close(self) -> None:
        """End the signs of life with the bar."""
        self.ended.set()
        super().close()

    def update(self, n: int = 1, note: str = "") -> bool | None:
        """Count ``n`` more as done; the last note stays unless another is given."""
        if note:
            self.set_postfix_str(note, refresh=False)
        return super().update(n)


def progress(total: int | None, unit: str, what: str, *, done: int = 0, shown: bool = True) -> Progress:
    """Return what tells how far a task is, in a ``with`` block: ``total`` units, of which some were done before.

    >>> with progress(4, "prompts", "measuring", shown=False) as bar:
    ...     bar.update(3)
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    live = sys.stderr.isatty() or (shell is not None and shell() is not None)
    pause: dict[str, Any] = {} if live else {"mininterval": EVERY, "delay": EVERY, "miniters": 1}
    return Progress(
        total=total, unit=f" {unit}", desc=what, initial=done, disable=not shown, dynamic_ncols=True, **pause
    )

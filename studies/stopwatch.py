"""The seconds that a run takes, over all the processes that take part after interruptions."""

from __future__ import annotations

import time

import torch


class Stopwatch:
    """Seconds up to the last lap, as a tensor that a checkpoint can hold."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(1, dtype=torch.float64)
        """The seconds up to the last lap, for the checkpoint."""
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds up to the last lap."""
        return float(self.tensor)

    @property
    def running(self) -> float:
        """Seconds since the last lap."""
        return time.monotonic() - self._since

    def lap(self) -> None:
        """Add the time since the last lap."""
        now = time.monotonic()
        self.tensor += now - self._since
        self._since = now

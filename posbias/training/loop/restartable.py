"""What a training loop keeps so that it can resume exactly after an interruption: moments, and a clock."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import AdamW


def moments(optimizer: AdamW, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return an optimizer's step counts and moments by the parameters' names, as they stand; in place they restore.

    What the optimizer would make at its first step is made here, so that a checkpoint can be read before it.

    Parameters
    ----------
    optimizer
        Of all the parameters.
    named
        Name → parameter.
    """
    for x in named.values():
        if not optimizer.state[x]:
            step = torch.zeros((), device=x.device if optimizer.defaults["fused"] else "cpu")
            optimizer.state[x] = {"step": step, "exp_avg": torch.zeros_like(x), "exp_avg_sq": torch.zeros_like(x)}
    return {f"{name}.{what}": kept for name, x in named.items() for what, kept in optimizer.state[x].items()}


class Clock:
    """Seconds that a run takes, over all the processes that take part."""

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

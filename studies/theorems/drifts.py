"""Random small cases of what pulls where: kernels, mixing, and how far prefix masses move in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.rollout import masks
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import alibi_slopes
from posbias.rollout.structured import structured_kernels
from studies.theorems.forces import sort_stacks

TINY = -1e-12
"""Differences of prefix masses above this are rounding."""
SMALL = (4, 5, 6)
"""Tokens of the random cases, which have three layers."""
N, T, HEADS, MIXING, SLOPE = 64, 12, 8, 0.1, 0.25
"""Of the larger families: tokens, layers, heads with ALiBi's slopes, mixing of each layer, slope of a single head."""
Drifts = Float[np.ndarray, "cases"]


@dataclass(frozen=True)
class Draws:
    """Draw random cases, one after the other, from one generator."""

    rng: np.random.Generator
    cases: int = 200
    runs: int = 20

    def kernels(self, n: int, unsorted: float = 0.0, ahead: int = 0) -> Float[np.ndarray, "cases 3 n n"]:
        """Draw cases of three layers, with kernels monotone but for a share of them."""
        logits = self.rng.normal(scale=4, size=(self.cases, 3, n, n))
        A = attention_kernel(logits, np.tril(np.ones((n, n), dtype=bool), ahead))
        return np.asarray((1 - unsorted) * sort_stacks(A) + unsorted * A)

    def mixing(self) -> Float[np.ndarray, "cases 3"]:
        """Draw a schedule for each case, with values mostly close to 0 or 1, where order is lost most easily."""
        return self.rng.beta(0.3, 0.3, size=(self.cases, 3))

    def drifts(self, check: Callable[..., Drifts], **broken: Any) -> Drifts:
        """Return the drift of every case, over all sizes."""
        return np.concatenate([check(self, n, **broken) for n in SMALL])

    def passes(self, check: Callable[..., Drifts], **broken: Any) -> list[bool]:
        """Say for each of the runs whether the check passes."""
        return [bool((self.drifts(check, **broken) >= TINY).all()) for _ in range(self.runs)]


@dataclass(frozen=True)
class Families:
    """Hold stacks of monotone kernels of 64 tokens and 12 layers, and random ones that are not monotone."""

    stacks: dict[str, Float[np.ndarray, "T n n"]]
    unsorted: Float[np.ndarray, "T n n"]


def draw_families(draws: Draws) -> Families:
    """Return uniform, decay, ALiBi, window, and random monotone kernels."""
    structured = {
        "uniform": structured_kernels(T),
        "decay, one slope": structured_kernels(T, slope=SLOPE),
        "ALiBi, mean over heads": structured_kernels(T, slope=alibi_slopes(HEADS)),
        "window": structured_kernels(T, slope=SLOPE, mask=masks.sliding_window(N // 4)),
    }
    families = {name: A.dense(0, N) for name, A in structured.items()}
    unsorted = attention_kernel(draws.rng.normal(scale=2, size=(T, N, N)), masks.causal())
    families["random, monotone"] = sort_stacks(unsorted)
    return Families({name: np.broadcast_to(A, (T, N, N)) for name, A in families.items()}, unsorted)

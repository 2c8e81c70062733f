"""Prompts drawn from a known law, to try intervals on: the truth is there to be covered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from posbias import errors


@dataclass(frozen=True)
class PromptLaw:
    """A law of influences g = s p_j e^{σ z_j}, whose mean profile is p exactly.

    z is Gaussian with variance 1 at every position, so that E e^{σ z_j} is the same for all; s is log-normal.

    >>> g, documents = PromptLaw(np.full(8, 1 / 8)).draw(np.random.default_rng(0), 3, 2)
    >>> g.shape, documents.tolist()
    ((6, 8), [0, 0, 1, 1, 2, 2])
    """

    profile: Float[np.ndarray, "n"]
    shared: float = 0.5
    spread: float = 1.0
    reach: float = 3.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "profile", errors.distribution("profile", self.profile))
        if not 0 <= self.shared <= 1:
            raise errors.invalid("shared", "a share from 0 to 1", self.shared)

    def draw(
        self, rng: np.random.Generator, documents: int, prompts: int = 1
    ) -> tuple[Float[np.ndarray, "N n"], Int[np.ndarray, "N"]]:
        """Return the influence of N = documents × prompts prompts, and the document of each."""
        units = np.repeat(np.arange(documents), prompts)
        common, own = self._field(rng, documents)[units], self._field(rng, units.size)
        z = np.sqrt(self.shared) * common + np.sqrt(1 - self.shared) * own
        size = rng.lognormal(sigma=0.5, size=(units.size, 1))
        return size * self.profile * np.exp(self.spread * z), units

    def _field(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count n"]:
        n = self.profile.size
        distance = np.minimum(np.arange(n), n - np.arange(n))
        weights = np.exp(-0.5 * (distance / self.reach) ** 2)
        weights /= np.sqrt((weights**2).sum())
        white = rng.standard_normal((count, n))
        return np.fft.irfft(np.fft.rfft(white) * np.fft.rfft(weights), n)

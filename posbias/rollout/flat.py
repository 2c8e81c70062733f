"""The kernel of flat logits as a linear operator: A[i, j] ∝ 1 / log(i / j) on the first keys, those a query sees.

It is a mixture of kernels (j / i)^x over all x > 0, since 1 / s = ∫ e^(-s x) dx, s = log(i / j). The trapezoidal rule
in log x, whose error falls exponentially with the step, makes it a sum of some 170 terms to the last digits of a
double, whatever n, and a row vector goes through each by one running sum.
"""

from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from posbias.rollout.operators import SAFE, Kernel

STEP, NEGLIGIBLE = 0.28, 37.0
"""Step of the trapezoidal rule in log x; exponents beyond which a term is below the rounding of the whole."""


class Flat(Kernel):
    """Queries see their first ``seen`` keys, none nearer than ``cutoff`` in log-distance, or of none themselves."""

    def __init__(self, seen: Int[np.ndarray, "n"], cutoff: float) -> None:
        n = len(seen)
        super().__init__(n)
        self.seen, self.logs = seen, np.log(np.arange(1.0, n + 1))
        nearest, farthest = max(cutoff, float(-np.log1p(-1 / max(n, 2)))), float(np.log(max(n, 2)))
        y = np.arange(-NEGLIGIBLE - np.log(farthest), np.log(NEGLIGIBLE / nearest) + STEP, STEP)
        self.x, self.weight = np.exp(y), STEP * np.exp(y)  # 1 / s = Σ weight e^(-s x)

    @cached_property
    def sums(self) -> Float[np.ndarray, "n"]:
        """Σ_j 1 / log(i / j) over the keys that query i sees; 1 where it sees only itself. O(n²) time, once."""
        logs = self.logs
        return np.array([(1 / (logs[i] - logs[:c])).sum() if c else 1.0 for i, c in enumerate(self.seen)])

    def _rmatvec(self, v: np.ndarray) -> np.ndarray:
        """Return Aᵀv, a segment of keys at a time.

        The sum at key j for one x is (j / (j + 1))^x times that at j + 1, and what the queries add whose last key is j.
        Within a segment from a to b all is taken relative to b, with x log(b / a) in range.
        """
        logs, x = self.logs, self.x
        out = np.where(self.seen == 0, v, 0.0)  # queries that see only themselves
        u = np.where(self.seen > 0, v / self.sums, 0.0)
        carried = np.zeros(x.size)  # Σ_i u_i (b / i)^x at the last key b of the segment before, of queries that see it
        above, stop = logs[-1], int(self.seen[-1])
        while stop > 0:
            start = min(int(np.searchsorted(logs, logs[stop - 1] - SAFE / x[-1])), stop - 1)
            top = logs[stop - 1]
            carried = carried * np.exp((top - above) * x)
            queries = self._last_key_in(start, stop)
            added = np.zeros((stop - start, x.size))
            np.add.at(
                added, self.seen[queries] - 1 - start, u[queries, None] * np.exp((top - logs[queries])[:, None] * x)
            )
            sent = added[::-1].cumsum(axis=0)[::-1] + carried
            out[start:stop] += (np.exp((logs[start:stop] - top)[:, None] * x) * sent) @ self.weight
            carried, above, stop = sent[0], top, start
        return out

    def _last_key_in(self, start: int, stop: int) -> slice:
        """Return the queries whose last key is one of those from ``start`` to below ``stop``."""
        return slice(np.searchsorted(self.seen, start, side="right"), np.searchsorted(self.seen, stop, side="right"))

    def _rmatmat(self, X: np.ndarray) -> np.ndarray:
        from scipy.linalg.blas import dtrmm

        return np.asarray(dtrmm(1.0, self._written_out.T, X))

    @cached_property
    def _written_out(self) -> Float[np.ndarray, "n n"]:
        """The matrix: half of a product with it is known to be nothing."""
        n = len(self.seen)
        A = np.diag((self.seen == 0).astype(float))
        i, j = np.nonzero(np.arange(n) < self.seen[:, None])
        A[i, j] = 1 / (self.logs[i] - self.logs[j])
        return np.asarray(A / A.sum(axis=1, keepdims=True))

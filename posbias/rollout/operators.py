"""Kernels as linear operators: a row vector, or columns of them, goes through one without its n × n matrix.

A kernel A is row-stochastic, A[i, j] the weight of query i on key j. What a rollout asks of it is v A = Aᵀv, which is
``A.rmatvec(v)``, or ``A.rmatmat(X)`` for columns; sums, multiples and products of operators are operators again.
"""

from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg.blas import daxpy, dtrmm
from scipy.sparse.linalg import LinearOperator
from scipy.special import softmax

SEGMENT = 512  # tokens held at a time for every head: large enough for numpy, small enough for the cache
SAFE = 500.0  # exp(±500) stays far inside the range of a double
NO_MORE = 45.0  # exp(-45) is below the rounding of the sum it would be added to
STEEPEST = SAFE  # from here on the second-nearest key has no weight beside the nearest
STEP, NEGLIGIBLE = 0.28, 37.0
"""Step of the trapezoidal rule in log x; exponents beyond which a term is below the rounding of the whole."""


class Kernel(LinearOperator):
    """A kernel of n tokens; each kind has ``_rmatmat``, X ↦ AᵀX for columns X."""

    def __init__(self, n: int) -> None:
        super().__init__(np.float64, (n, n))

    def _rmatvec(self, v: np.ndarray) -> np.ndarray:
        return self._rmatmat(v.reshape(-1, 1))[:, 0]

    def _matmat(self, X: np.ndarray) -> np.ndarray:
        return self._rmatmat(np.eye(len(X))).T @ X


class Matrix(Kernel):
    """A kernel that is written out."""

    def __init__(self, A: Float[np.ndarray, "n n"]) -> None:
        super().__init__(len(A))
        self.A = A

    def _rmatvec(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(v @ self.A)

    def _rmatmat(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.A.T @ X)


class Geometric(Kernel):
    """Σ_h w_h A_h of causal heads that lose a slope ≥ 0 a token, with content on the diagonal, by a recurrence.

    A row of a head holds ``own`` for the query and ``near``·q^(k-1), q = e^-slope, for the key k before it, both over
    the larger of the two. With u = v over the rows' sums,

        (v A)[j] = own u[j] + near y[j + 1],     y[j] = u[j] + q y[j + 1],

    a running sum from the last token to the first. It is taken a segment at a time for all heads together, times q^k
    and back, so that the working memory is heads × segment. All terms have the sign of v: nothing cancels.

    >>> Geometric(3, [0.7], [0.0], [1.0]).rmatvec(np.array([0.0, 0.0, 1.0])).round(3)
    array([0.141, 0.285, 0.574])
    """

    def __init__(
        self,
        n: int,
        slopes: Float[np.ndarray, "H"] | list[float],
        diagonal: Float[np.ndarray, "H"] | list[float],
        weights: Float[np.ndarray, "H"] | list[float],
    ) -> None:
        super().__init__(n)
        slopes, diagonal, weights = (np.asarray(x, dtype=np.float64) for x in (slopes, diagonal, weights))
        top = np.maximum(diagonal, -slopes)
        self.own, self.near, self.weights = np.exp(diagonal - top), np.exp(-slopes - top), weights
        self.to_own, self.to_near = weights * self.own, weights * self.near
        self.slopes = np.minimum(slopes, STEEPEST)
        self.length = min(n, SEGMENT, int(SAFE / max(self.slopes.max(), SAFE / SEGMENT)))
        self.falling, rising, self.sums = _powers(self.slopes.tobytes(), self.length)
        self.lift = rising * self.to_near
        self.first_sums = self._row_sums(0, min(n, self.length))

    def _rmatmat(self, X: np.ndarray) -> np.ndarray:
        n, out = len(X), np.empty(X.shape)
        later = np.zeros((X.shape[1], self.slopes.size))  # y at the first token after this segment
        for start in range((n - 1) // self.length * self.length, -1, -self.length):
            stop = min(start + self.length, n)
            falling = self.falling[: stop - start]
            sums = self._row_sums(start, stop) if start else self.first_sums
            u = X[start:stop, :, None] / sums[:, None]
            out[start:stop] = np.einsum("jch,h->jc", u, self.to_own)
            u *= falling[:, None]
            inside = u[::-1].cumsum(axis=0)[::-1]  # y without what comes from later segments, falling
            out[start : stop - 1] += np.einsum("jch,jh->jc", inside[1:], self.lift[1 : stop - start])
            out[start:stop] += falling[::-1] @ (self.to_near * later).T
            later = inside[0] + later * np.exp(-self.slopes) * falling[-1]
        out[0] += self.weights.sum() * X[0]
        return out

    def _row_sums(self, start: int, stop: int) -> np.ndarray:
        """Return own + near Σ_{k < i} q^k for rows start ≤ i < stop; row 0 gives everything to itself, elsewhere."""
        first = -np.expm1(-self.slopes * start), -np.expm1(-self.slopes)
        before = np.divide(*first, out=np.full(self.slopes.size, float(start)), where=self.slopes > 0)
        if (self.slopes * start > NO_MORE).all():  # rows are alike from here on
            return np.asarray(self.own + self.near * before)[None]
        sums = self.near * np.exp(-self.slopes * start) * self.sums[: stop - start]
        sums += self.own + self.near * before
        if start == 0:
            sums[0] = np.inf
        return np.asarray(sums)


@lru_cache(maxsize=8)
def _powers(slopes: bytes, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return q^k, q^-k and Σ_{l < k} q^l for k < length, a column for each head: once for layers that share slopes."""
    exponent = np.arange(length)[:, None] * np.frombuffer(slopes)
    falling = np.exp(-exponent)
    return falling, np.exp(exponent), np.concatenate([np.zeros_like(falling[:1]), falling[:-1].cumsum(axis=0)])


class Window(Kernel):
    """The same heads within the last ``width`` tokens: rows are alike from there on, before it they are causal.

    >>> Window(3, 2, np.zeros(1), np.zeros(1), np.ones(1)).rmatvec(np.array([0.0, 0.0, 1.0])).tolist()
    [0.0, 0.5, 0.5]
    """

    def __init__(
        self,
        n: int,
        width: int,
        slopes: Float[np.ndarray, "H"],
        diagonal: Float[np.ndarray, "H"],
        weights: Float[np.ndarray, "H"],
    ) -> None:
        super().__init__(n)
        logits = -slopes[:, None] * np.arange(min(width, n))
        logits[:, 0] = diagonal
        self.shares = weights @ softmax(logits, axis=1)
        self.start = Geometric(logits.shape[1], slopes, diagonal, weights)

    def _rmatmat(self, X: np.ndarray) -> np.ndarray:
        out, width = np.zeros(X.shape), len(self.shares)
        out[:width] = self.start.rmatmat(X[:width])
        later = np.ascontiguousarray(X[width:]).ravel()
        for distance, share in enumerate(self.shares if later.size else ()):
            daxpy(later, out[width - distance : len(X) - distance].ravel(), a=share)  # adds in place
        return out


class Powers(Kernel):
    """A[i, j] ∝ j^α for j ≤ i, the query itself counting e^diagonal times, by one sum from the last token on.

    >>> Powers(3, 1.0, 0.0).rmatvec(np.array([0.0, 0.0, 6.0])).round(12).tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, n: int, alpha: float, diagonal: float) -> None:
        super().__init__(n)
        top = max(diagonal, 0.0)
        self.own, self.other = np.exp(diagonal - top), np.exp(-top)
        self.keys = (np.arange(1.0, n + 1) / n) ** alpha
        self.sums = self.own * self.keys + self.other * np.append(0.0, self.keys.cumsum()[:-1])

    def _rmatmat(self, X: np.ndarray) -> np.ndarray:
        u = X / self.sums[:, None]
        later = np.zeros_like(u)
        later[:-1] = u[:0:-1].cumsum(axis=0)[::-1]
        return np.asarray(self.keys[:, None] * (self.own * u + self.other * later))


class Flat(Kernel):
    """A[i, j] ∝ 1 / log(i / j) on the first ``seen`` keys, none nearer than ``cutoff`` in log-distance; else the query.

    It is a mixture of kernels (j / i)^x over all x > 0, since 1 / s = ∫ e^(-s x) dx, s = log(i / j). The trapezoidal
    rule in log x, whose error falls exponentially with the step, makes it a sum of some 170 terms to the last digits of
    a double, whatever n, and a row vector goes through each by one running sum.
    """

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
        return np.asarray(dtrmm(1.0, self._written_out.T, X))

    @cached_property
    def _written_out(self) -> Float[np.ndarray, "n n"]:
        """The matrix: half of a product with it is known to be nothing."""
        n = len(self.seen)
        A = np.diag((self.seen == 0).astype(float))
        i, j = np.nonzero(np.arange(n) < self.seen[:, None])
        A[i, j] = 1 / (self.logs[i] - self.logs[j])
        return np.asarray(A / A.sum(axis=1, keepdims=True))

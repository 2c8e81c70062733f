"""Gradients of a profile's distance to a target with respect to slopes, exponents and cut-offs of heads.

Under both laws a distance L depends on a kernel A through one matrix X over positions, dL = Σ_ij X_ij dA_ij:

- aligned: with the row vectors v_t from the last layer down and the columns g_t from the first layer up,
  g_0 = ∂L/∂p and g_t = R_t g_{t-1}, a head of weight w has X = Σ_t λ_t w v_t g_{t-1}ᵀ;
- at birth: with the Gram matrices G_t from the last layer down and K_t from the first layer up, K_0 = diag ∂L/∂G_jj
  and K_t = K_{t-1} + Σ_h c_h² A_h K_{t-1} A_hᵀ, a head of gain c has X = 2 c² Σ_t G_t A K_{t-1}.

What a parameter of the head makes of X is a covariance in each row: Σ_i Cov_{A_i}(∂z_i, X_i), z being the logits. The
kernel of a flat head steps with its cut-off, from one visible key to the next; here it goes from step to step in a
straight line, half-way points where the engine has its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from posbias.rollout.biased import SAFE
from posbias.rollout.position_bias import (
    AlibiBias,
    FlatBias,
    LogBias,
    exponential_integral_inverse,
    log_ratios,
)

FREE = ("log", "flat", "alibi")
"""Kinds of bias with one number that can be optimised."""
FARTHEST, NEAREST = 6.0, 0.5
"""Log-distance beyond which no cut-off is put, and tokens nearer than which it makes no difference."""
TINY = 1e-24
"""Of the largest mean square: added before the root, whose slope at 0 is infinite."""


def to_bias(kind: str, x: float) -> LogBias | FlatBias | AlibiBias:
    """Return the bias of a free kind at coordinate ``x``: log(α + 1), log τ or log slope.

    >>> to_bias("log", 0.0)
    LogBias(alpha=0.0)
    """
    number = float(np.exp(x))
    if kind == "log":
        return LogBias(number - 1)
    return FlatBias(number) if kind == "flat" else AlibiBias(number)


def limits(kind: str, n: int) -> tuple[float, float]:
    """Return between which coordinates a kind makes a difference to n tokens.

    >>> [bool(low < high) for low, high in (limits(kind, 64) for kind in FREE)]
    [True, True, True]
    """
    from scipy.special import exp1

    if kind == "flat":
        least, most = exp1([min(FARTHEST, np.log(max(n, 3) / 2)), NEAREST / n])
        return float(np.log(least)), float(np.log(most))
    if kind == "log":  # n^-α stays inside the range of a double
        return -4.0, min(5.0, float(np.log1p(SAFE / np.log(max(n, 2)))))
    return float(np.log(1e-2 / n)), float(np.log(20.0))


def smooth_kernel(kind: str, x: float, n: int) -> Float[np.ndarray, "n n"]:
    """Return a head's kernel, which for a flat head is continuous in its cut-off.

    >>> smooth_kernel("log", np.log(2), 3)[2].round(3).tolist()
    [0.167, 0.333, 0.5]
    """
    if kind == "flat":
        return _Cut(x, n).kernel()
    if kind == "log":
        keys, sums = _log_keys(x, n)
        return np.tril(keys / sums[:, None])
    q = _powers(x, n)
    return _toeplitz(q) / q.cumsum()[:, None]


def sensitivity(kind: str, x: float, X: Float[np.ndarray, "n n"]) -> float:
    """Return Σ_ij X_ij ∂A_ij/∂x for a head's kernel A.

    >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> h = 1e-6
    >>> slope = (smooth_kernel("log", h, 2) - smooth_kernel("log", -h, 2))[1, 0] / (2 * h)
    >>> bool(abs(sensitivity("log", 0.0, X) - slope) < 1e-8)
    True
    """
    n = len(X)
    if kind == "flat":
        return _Cut(x, n).sensitivity(X)
    if kind == "log":
        keys, sums = _log_keys(x, n)
        logs = np.log(np.arange(1.0, n + 1))
        given, lent = (np.tril(X) @ np.stack([keys, keys * logs], 1)).T / sums
        return float(np.exp(x) * (lent - (keys * logs).cumsum() / sums * given).sum())
    q, distance = _powers(x, n), np.arange(n)
    weighted = _toeplitz(q) * X
    sums, moment = q.cumsum(), (q * distance).cumsum()
    from_distance = (weighted * _toeplitz(distance.astype(float))).sum(1)
    return float(np.exp(x) * ((moment / sums * weighted.sum(1) - from_distance) / sums).sum())


class _Cut:
    """A flat head: row i gives 1 - f to the kernel with k visible keys and f to that with k + 1."""

    def __init__(self, x: float, n: int) -> None:
        self.epsilon, self.tau, i = exponential_integral_inverse(float(np.exp(x))), np.exp(x), np.arange(n)
        wanted = (i + 1) * np.exp(-self.epsilon) - 0.5
        seen = wanted.clip(0.0, i)
        self.moves = (wanted > 0) & (wanted < i)
        self.k: Int[np.ndarray, "n"] = np.floor(seen).astype(np.int64)
        self.f = seen - self.k
        self.near, sums = _nearness(n)
        self.sums, self.next = sums[i, self.k], sums[i, np.minimum(self.k + 1, n)]
        self.rows = i

    def kernel(self) -> np.ndarray:
        k, f, i = self.k, self.f, self.rows
        some = k > 0
        upto = np.where(some, (1 - f) / np.where(some, self.sums, 1.0), 0.0)
        added = np.where(f > 0, f / np.where(f > 0, self.next, 1.0), 0.0)
        A = self.near * (upto + added)[:, None]
        A[i[None, :] >= k[:, None]] = 0.0
        A[i, k] += added * self.near[i, k]
        A[i, i] += np.where(some, 0.0, 1 - f)
        return np.asarray(A)

    def sensitivity(self, X: np.ndarray) -> float:
        i, k = self.rows[self.moves], self.k[self.moves]
        moment = np.zeros((len(X), len(X) + 1))
        np.cumsum(self.near * X, axis=1, out=moment[:, 1:])
        some = k > 0
        before = np.where(some, moment[i, k] / np.where(some, self.sums[self.moves], 1.0), X[i, i])
        share = np.where(some, self.near[i, k] / self.next[self.moves], 1.0)
        by_count = share * (X[i, k] - before)
        return float((by_count * (i + 1)).sum() * self.tau * self.epsilon)  # dε / dτ = -ε e^ε


@lru_cache(maxsize=4)
def _nearness(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 / log(i / j), 0 from the query on, and its sums over the first 0, 1, …, n keys."""
    distance = log_ratios(n)
    near = np.divide(1.0, distance, out=np.zeros_like(distance), where=distance > 0)
    sums = np.zeros((n, n + 1))
    np.cumsum(near, axis=1, out=sums[:, 1:])
    return near, sums


def _log_keys(x: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    keys = (np.arange(1.0, n + 1) / n) ** (np.exp(x) - 1)
    return keys, keys.cumsum()


def _powers(x: float, n: int) -> np.ndarray:
    return np.asarray(np.exp(-np.exp(x) * np.arange(n)))


def _toeplitz(q: np.ndarray) -> np.ndarray:
    """Return q[i - j], 0 above the diagonal, as a view."""
    padded = np.concatenate([q[::-1], np.zeros(len(q) - 1)])
    return np.lib.stride_tricks.sliding_window_view(padded, len(q))[::-1]


@dataclass(frozen=True, eq=False)
class Objective:
    """Measure how far from a target the profile of heads is whose free ones have coordinates.

    Parameters
    ----------
    target
        Probabilities of n positions.
    lambda_
        Residual mixing of T layers.
    local
        The kernels of the heads that stay as they are, (K, n, n).
    law
        ``aligned``, or ``birth``: then λ < 1.
    """

    target: Float[np.ndarray, "n"]
    lambda_: Float[np.ndarray, "T"]
    local: Float[np.ndarray, "K n n"]
    law: str

    def value_and_gradient(
        self, kinds: Sequence[str], x: Float[np.ndarray, "layers free"], delta: float
    ) -> tuple[float, Float[np.ndarray, "layers free"]]:
        """Return Σ_k (√(d_k² + δ²) - δ) / (n - 1), d the difference of distribution functions, and its gradient.

        As δ goes to 0 this is the normalised W₁.

        Parameters
        ----------
        kinds
            Kinds of the free heads.
        x
            Their coordinates, for one layer that stands for all, or for T.
        delta
            Differences smaller than δ count as their squares.
        """
        free = [
            [smooth_kernel(kind, float(y), len(self.target)) for kind, y in zip(kinds, row, strict=True)] for row in x
        ]
        if self.law == "aligned":
            return self._aligned(kinds, x, free, delta)
        return self._at_birth(kinds, x, free, delta)

    def _aligned(
        self, kinds: Sequence[str], x: np.ndarray, free: list[list[np.ndarray]], delta: float
    ) -> tuple[float, np.ndarray]:
        T, n, H = len(self.lambda_), len(self.target), len(self.local) + len(kinds)
        means = [(self.local.sum(0) + sum(heads)) / H for heads in free]
        rows = np.zeros((T + 1, n))  # v_T, …, v_0
        rows[T, -1] = 1.0
        for t in range(T, 0, -1):
            mixing = self.lambda_[t - 1]
            rows[t - 1] = (1 - mixing) * rows[t] + mixing * (rows[t] @ means[min(t, len(means)) - 1])
        value, g = smooth_distance(rows[0], self.target, delta)
        columns = np.zeros((T, n))
        for t in range(1, T + 1):
            columns[t - 1], mixing = g, self.lambda_[t - 1]
            g = (1 - mixing) * g + mixing * (means[min(t, len(means)) - 1] @ g)
        weighted = self.lambda_[:, None] / H * rows[1:]
        gradient = np.zeros(x.shape)
        for layer in range(len(x)):
            part = slice(None) if len(x) == 1 else slice(layer, layer + 1)
            X = weighted[part].T @ columns[part]
            gradient[layer] = [sensitivity(kind, float(y), X) for kind, y in zip(kinds, x[layer], strict=True)]
        return value, gradient

    def _at_birth(
        self, kinds: Sequence[str], x: np.ndarray, free: list[list[np.ndarray]], delta: float
    ) -> tuple[float, np.ndarray]:
        T, n, H = len(self.lambda_), len(self.target), len(self.local) + len(kinds)
        squares = (self.lambda_ / (1 - self.lambda_)) ** 2 / H
        heads = [[*self.local, *row] for row in free]
        G = np.zeros((n, n))
        G[-1, -1] = 1.0
        above, scales = np.empty((T, n, n)), np.ones(T)
        for t in reversed(range(T)):
            above[t] = G
            G = G + squares[t] * sum(A.T @ (G @ A) for A in heads[min(t, len(heads) - 1)])
            scales[t] = np.trace(G)
            G = G / scales[t]
        roots = np.sqrt(np.diag(G).clip(0) + TINY)
        p = roots / roots.sum()
        value, g = smooth_distance(p, self.target, delta)
        K = np.diag((g - g @ p) / roots.sum() / (2 * roots))
        gradient = np.zeros(x.shape)
        for t in range(T):
            layer = min(t, len(x) - 1)
            K = K / scales[t]
            through = [A @ K for A in heads[layer]]
            for f, (kind, AK) in enumerate(zip(kinds, through[len(self.local) :], strict=True)):
                gradient[layer, f] += sensitivity(kind, float(x[layer, f]), 2 * squares[t] * (above[t] @ AK))
            K = K + squares[t] * sum(AK @ A.T for A, AK in zip(heads[layer], through, strict=True))
        return value, gradient


def smooth_distance(
    p: Float[np.ndarray, "n"], q: Float[np.ndarray, "n"], delta: float
) -> tuple[float, Float[np.ndarray, "n"]]:
    """Return Σ_k (√(d_k² + δ²) - δ) / (n - 1), d = F_p - F_q, and its gradient in p.

    >>> value, gradient = smooth_distance(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 0.0)
    >>> value, gradient.tolist()
    (1.0, [1.0, 0.0])
    """
    d = np.cumsum(p - q)[:-1]
    size = np.sqrt(d**2 + delta**2)
    slope = np.divide(d, size, out=np.zeros_like(d), where=size > 0) / len(d)
    return float((size - delta).mean()), np.append(slope[::-1].cumsum()[::-1], 0.0)

"""Gradients of a profile's distance to a target with respect to slopes, exponents and cut-offs of heads.

Under both laws a distance L depends on a kernel A through one matrix X over positions, dL = Σ_ij X_ij dA_ij:

- aligned: with the row vectors v_t from the last layer down and the columns g_t from the first layer up,
  g_0 = ∂L/∂p and g_t = R_t g_{t-1}, a head of weight w has X = Σ_t λ_t w v_t g_{t-1}ᵀ;
- untrained: with the Gram matrices G_t from the last layer down and their adjoints Γ_t from the first layer up,
  Γ_0 = diag ∂L/∂G_jj, a head of weight w has X = 2 w Σ_t (G_t ∘ (1 + K) ∘ o oᵀ) A (Γ_{t-1} ∘ c cᵀ): K is the Gram
  factor of the step after the attention, c the gain at a key and o the factor at a query. Then
  Γ_t = (1 + K) ∘ (Γ_{t-1} + o oᵀ ∘ Σ_h w A_h (Γ_{t-1} ∘ c cᵀ) A_hᵀ); of a step beside the attention K is left out of X
  and multiplies Γ_{t-1} alone.

What a parameter of the head makes of X is a covariance in each row: Σ_i Cov_{A_i}(∂z_i, X_i), z being the logits. The
kernel of a flat head steps with its cut-off, from one visible key to the next; here it goes from step to step in a
straight line, half-way points where the engine has its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from posbias.rollout.biased import SAFE
from posbias.rollout.gains import Gains
from posbias.rollout.position_bias import (
    AlibiBias,
    FlatBias,
    LogBias,
    exponential_integral_inverse,
    log_ratios,
)

Search = tuple[Sequence[str], np.ndarray, list[list[np.ndarray]], float]
"""Kinds and coordinates of free heads, their kernels by layer, and δ."""
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
    """Measure how far from a target the profile of heads is whose free ones have coordinates."""

    target: Float[np.ndarray, "n"]  # Probabilities of n positions
    # Residual mixing of T layers, for the aligned law; or gains, for the law of untrained networks
    layers: Float[np.ndarray, "T"] | Gains
    local: Float[np.ndarray, "K n n"]  # The kernels of the heads that stay as they are, (K, n, n)
    # Where gains are read for the n positions, which may stand for more; 1, …, n unless given
    positions: Float[np.ndarray, "n"] | None = None

    def value_and_gradient(
        self, kinds: Sequence[str], x: Float[np.ndarray, "layers free"], delta: float
    ) -> tuple[float, Float[np.ndarray, "layers free"]]:
        """Return Σ_k (√(d_k² + δ²) - δ) / (n - 1), d the difference of distribution functions, and its gradient.

        As δ goes to 0 this is the normalised W₁.
        """
        free = [
            [smooth_kernel(kind, float(y), len(self.target)) for kind, y in zip(kinds, row, strict=True)] for row in x
        ]
        search = kinds, x, free, delta
        if isinstance(self.layers, Gains):
            return self._of_untrained(self.layers, search)
        return self._aligned(self.layers, search)

    def _aligned(self, lambda_: np.ndarray, search: Search) -> tuple[float, np.ndarray]:
        kinds, x, free, delta = search
        T, n, H = len(lambda_), len(self.target), len(self.local) + len(kinds)
        means = [(self.local.sum(0) + sum(heads)) / H for heads in free]
        rows = np.zeros((T + 1, n))  # v_T, …, v_0
        rows[T, -1] = 1.0
        for t in range(T, 0, -1):
            mixing = lambda_[t - 1]
            rows[t - 1] = (1 - mixing) * rows[t] + mixing * (rows[t] @ means[min(t, len(means)) - 1])
        value, g = smooth_distance(rows[0], self.target, delta)
        columns = np.zeros((T, n))
        for t in range(1, T + 1):
            columns[t - 1], mixing = g, lambda_[t - 1]
            g = (1 - mixing) * g + mixing * (means[min(t, len(means)) - 1] @ g)
        weighted = lambda_[:, None] / H * rows[1:]
        gradient = np.zeros(x.shape)
        for layer in range(len(x)):
            part = slice(None) if len(x) == 1 else slice(layer, layer + 1)
            X = weighted[part].T @ columns[part]
            gradient[layer] = [sensitivity(kind, float(y), X) for kind, y in zip(kinds, x[layer], strict=True)]
        return value, gradient

    def _of_untrained(self, layers: Gains, search: Search) -> tuple[float, np.ndarray]:
        kinds, x, free, delta = search
        n, H = len(self.target), len(self.local) + len(kinds)
        heads = [[*self.local, *row] for row in free]
        network = _AtBirth(layers, np.arange(1.0, n + 1) if self.positions is None else self.positions, H)
        G = np.zeros((n, n))
        G[-1, -1] = 1.0
        read, scales = np.empty((layers.T, n, n)), np.ones(layers.T)
        for t in reversed(range(layers.T)):
            passed, read[t] = network.passed(t, G)
            G = passed + network.inputs(t, sum(A.T @ (read[t] @ A) for A in heads[min(t, len(heads) - 1)]))
            scales[t] = np.trace(G)
            G = G / scales[t]
        roots = np.sqrt(np.diag(G).clip(0) + TINY)
        p = roots / roots.sum()
        value, g = smooth_distance(p, self.target, delta)
        adjoint = np.diag((g - g @ p) / roots.sum() / (2 * roots))
        gradient = np.zeros(x.shape)
        for t in range(layers.T):
            layer = min(t, len(x) - 1)
            adjoint = adjoint / scales[t]
            sent = network.inputs(t, adjoint)
            through = [A @ sent for A in heads[layer]]
            for f, (kind, AK) in enumerate(zip(kinds, through[len(self.local) :], strict=True)):
                gradient[layer, f] += sensitivity(kind, float(x[layer, f]), 2 * (read[t] @ AK))
            back = sum(AK @ A.T for A, AK in zip(heads[layer], through, strict=True))
            adjoint = network.adjoint(t, adjoint, np.asarray(back))
        return value, gradient


class _AtBirth:
    """What a layer of the law of untrained networks does to Gram matrices beside its kernels, and the adjoint of that.

    Each of H heads has the same share of a layer's gain.
    """

    def __init__(self, layers: Gains, positions: np.ndarray, H: int) -> None:
        at = layers.at(positions)
        self.keys, self.queries, self.steps = at["scales"] / np.sqrt(H), at["outputs"], at["steps"]
        self.parallel = layers.parallel

    def passed(self, t: int, G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what goes past the attention of layer ``t``, and what its kernels are given."""
        stepped = G if self.steps is None else G + G * self.steps[t]
        return stepped, self._outputs(t, G if self.parallel else stepped)

    def inputs(self, t: int, X: Any) -> np.ndarray:
        """Return X times the gains at both keys."""
        return np.asarray(X * self.keys[t][:, None] * self.keys[t])

    def adjoint(self, t: int, above: np.ndarray, back: np.ndarray) -> np.ndarray:
        """Return the adjoint of G by that of what layer ``t`` makes of it, and by that of what its kernels are given.

        ``passed`` is linear and its parts are symmetric: the same factors stand in the adjoint.
        """
        back = self._outputs(t, back)
        given = above if self.parallel else above + back
        stepped = given if self.steps is None else given + given * self.steps[t]
        return stepped + back if self.parallel else stepped

    def _outputs(self, t: int, X: np.ndarray) -> np.ndarray:
        """Return X times the factors of both queries."""
        return np.asarray(X * self.queries[t][:, None] * self.queries[t])


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

"""Kernels of heads with position biases that are functions of i / j, alone or beside ALiBi.

A row vector goes through a kernel A[i, j] ∝ j^α by one sum from the last token to the first. The flat kernel is a
mixture of such kernels over all α > 0, since 1 / s = ∫ e^(-s x) dx: with s = log(i / j) the integrand is (j / i)^x. The
trapezoidal rule in log x, whose error falls exponentially with the step, makes it a sum of some 170 terms to the last
digits of a double, whatever n. Any other function of i / j costs O(n²).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.kernels import attention_kernel, head_weights, mix_heads
from posbias.rollout.logits import content_logits
from posbias.rollout.masks import causal
from posbias.rollout.position_bias import (
    AlibiBias,
    Biases,
    FlatBias,
    LogBias,
    NoBias,
    PositionBias,
    layered_biases,
    log_ratios,
)
from posbias.rollout.structured import structured_kernels

SAFE = 500.0
"""Exponents up to this size stay inside the range of a double."""
STEP, NEGLIGIBLE = 0.28, 37.0
"""Step of the trapezoidal rule in log x; exponents beyond which a term is below the rounding of the whole."""
FEW, SMALL = 4, 4096
"""Up to so many different flat heads each goes on its own; more of them as one matrix, if there are few tokens."""


@dataclass(frozen=True, eq=False)
class BiasedKernels:
    """Hold the causal kernels of T layers × H heads by their position biases, diagonal content and head weights.

    Make one with :func:`biased_kernels`.
    """

    # T, H: Numbers of layers and heads
    T: int
    H: int
    biases: Biases  # Of each head, for one layer that stands for all, or for T
    diagonal: Float[np.ndarray, "_ H"]  # Content logits on the diagonal, shape (1 or T, H)
    weights: Float[np.ndarray, "_ H"]  # Head weights, shape (1 or T, H), each row summing to 1

    @cached_property
    def same_in_every_layer(self) -> bool:
        """Say whether one kernel serves all T layers."""
        arrays = (self.diagonal, self.weights)
        return len(set(self.biases)) == 1 and all(bool((x == x[0]).all()) for x in arrays)

    def heads(self, t: int, weights: Float[np.ndarray, "H"] | None = None) -> dict[tuple[PositionBias, float], float]:
        """Return the different heads of layer ``t`` (0-based), bias and diagonal content, with their weights' sums."""
        t = errors.index("layer", t, self.T)
        biases = self.biases[min(t, len(self.biases) - 1)]
        diagonal, own = (x[min(t, len(x) - 1)] for x in (self.diagonal, self.weights))
        found: dict[tuple[PositionBias, float], float] = {}
        for bias, d, w in zip(biases, diagonal.tolist(), own if weights is None else weights, strict=True):
            key = bias, 0.0 if isinstance(bias, FlatBias) else d  # a flat head hides the diagonal with its content
            found[key] = found.get(key, 0.0) + float(w)
        return found

    def dense(self, t: int, n: int) -> Float[np.ndarray, "n n"]:
        """Return layer ``t``'s head-averaged kernel as an (n, n) matrix: the oracle of :meth:`pull`."""
        heads = self.heads(t)
        return mix_heads(np.stack([dense_kernel(*head, n) for head in heads]), np.array([*heads.values()]))

    def pull(self, v: Float[np.ndarray, "n"], t: int) -> Float[np.ndarray, "n"]:
        """Return the row vector v A_t, A_t being layer ``t``'s head-averaged kernel.

        Cost: O(n) for each different head without bias, with ALiBi or with log j; O(170 n) for each flat one, or O(n²)
        for all where there are more than four; O(n²) for each with another function of i / j, or ALiBi below 0.

        >>> kernels = biased_kernels(1, {"kind": "log", "alpha": 1.0})
        >>> kernels.pull(np.array([0.0, 0.0, 6.0]), 0).round(12).tolist()
        [1.0, 2.0, 3.0]
        """
        heads = self.heads(t)
        flat = {bias: w for (bias, _), w in heads.items() if isinstance(bias, FlatBias)}
        together = len(flat) > FEW and v.size <= SMALL
        out = np.zeros(v.size)
        sloped = [(bias.slope, d, w) for (bias, d), w in heads.items() if _is_recent(bias)]  # type: ignore[union-attr]
        if sloped:
            slopes, diagonal, weights = zip(*sloped, strict=True)
            alibi = structured_kernels(1, slope=slopes, diagonal=diagonal, weights=weights)
            out += sum(weights) * alibi.pull(v, 0)
        for (bias, d), w in heads.items():
            if not _is_recent(bias) and not (together and isinstance(bias, FlatBias)):
                out += w * pushed(bias, d, v[:, None])[:, 0]
        return out + v @ _flat_matrix(tuple(flat.items()), v.size) if together else out


def biased_kernels(
    T: int, biases: object, *, diagonal: Numbers = 0.0, weights: Numbers | None = None, H: int | None = None
) -> BiasedKernels:
    """Describe T layers of H causal heads by position biases and diagonal content.

    Parameters
    ----------
    T
        Number of layers.
    biases
        A description for all heads, a list for heads, or a list of such lists for layers, as
        :func:`~posbias.rollout.position_bias.layered_biases` reads them.
    diagonal
        Content logits on the diagonal: one number, (H,), or (1 or T, 1 or H).
    weights
        Head weights, (H,) or (1 or T, H), normalised to sum to 1; uniform unless given.
    H
        Number of heads; read off the biases unless given.

    Raises
    ------
    ValueError
        Naming the argument, what was expected and what came.

    >>> biased_kernels(2, [{"kind": "none"}, {"kind": "flat", "tau": 2.0}]).H
    2
    """
    T = errors.positive_integer("T", T)
    content = np.atleast_2d(errors.finite_array("diagonal", diagonal, ndim=(0, 1, 2)))
    rows = None if weights is None else np.atleast_2d(errors.finite_array("head_weights", weights, ndim=(1, 2)))
    widest = max(content.shape[1], 1 if rows is None else rows.shape[1])
    found = layered_biases(biases, T, H)
    if H is None and len(found[0]) == 1:
        found = tuple(row * widest for row in found)
    H = len(found[0])
    if content.shape[0] not in (1, T) or content.shape[1] not in (1, H):
        raise errors.invalid("diagonal", f"one number, ({H},) or (1 or {T}, 1 or {H})", f"shape {content.shape}")
    if rows is not None and len(rows) not in (1, T):
        raise errors.invalid("head_weights", f"1 or {T} rows", f"shape {rows.shape}")
    mixed = np.stack([head_weights(w, H) for w in ([None] if rows is None else rows)])
    return BiasedKernels(T, H, found, np.broadcast_to(content, (len(content), H)), mixed)


def dense_kernel(bias: PositionBias, diagonal: float, n: int) -> Float[np.ndarray, "n n"]:
    """Return one head's causal kernel as an (n, n) matrix.

    >>> dense_kernel(NoBias(), 0.0, 2).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    return attention_kernel(bias.logits(n) + content_logits(n, 0.0, diagonal), causal())


def pushed(bias: PositionBias, diagonal: float, X: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, "n columns"]:
    """Return AᵀX, A being one head's kernel: columns of weights on queries become weights on keys.

    >>> pushed(NoBias(), 0.0, np.array([[0.0], [1.0]])).tolist()
    [[0.5], [0.5]]
    """
    n = len(X)
    alpha = bias.alpha if isinstance(bias, LogBias) else 0.0 if isinstance(bias, NoBias) else None
    if alpha is not None and abs(alpha) * np.log(n) < SAFE:
        return _by_powers(alpha, diagonal, X)
    if _is_recent(bias) and X.shape[1] == 1:
        kernels = structured_kernels(1, slope=bias.slope, diagonal=diagonal)  # type: ignore[union-attr]
        return kernels.pull(X[:, 0], 0)[:, None]
    if isinstance(bias, FlatBias) and X.shape[1] == 1:
        return _flat_pushed(bias, X[:, 0])[:, None]
    return np.asarray(dense_kernel(bias, diagonal, n).T @ X)


def _is_recent(bias: PositionBias) -> bool:
    """Tell whether a bias is ALiBi that favours what is near, as structured kernels have it."""
    return isinstance(bias, AlibiBias) and bias.slope > 0


def _by_powers(alpha: float, diagonal: float, X: np.ndarray) -> np.ndarray:
    """Push columns through A[i, j] ∝ j^α, the query itself counting e^diagonal times, by sums from the last token on.

    All is taken relative to the larger of 1 and e^diagonal.
    """
    keys = (np.arange(1.0, len(X) + 1) / len(X)) ** alpha
    top = max(diagonal, 0.0)
    own, other = np.exp(diagonal - top), np.exp(-top)
    before = np.append(0.0, keys.cumsum()[:-1])
    u = X / (own * keys + other * before)[:, None]
    later = np.zeros_like(u)
    later[:-1] = u[:0:-1].cumsum(axis=0)[::-1]
    return np.asarray(keys[:, None] * (own * u + other * later))


@lru_cache(maxsize=64)
def _exponents(nearest: float, farthest: float) -> tuple[np.ndarray, np.ndarray]:
    """Return x and ω such that 1 / s = Σ ω e^(-s x) for s between two log-distances, to the rounding of a double."""
    y = np.arange(-NEGLIGIBLE - np.log(farthest), np.log(NEGLIGIBLE / nearest) + STEP, STEP)
    return np.exp(y), STEP * np.exp(y)


@lru_cache(maxsize=8)
def _flat_rows(bias: FlatBias, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many keys each query sees, and the sums Σ_j 1 / log(i / j) over them; 1 where it sees only itself.

    The sum over the keys up to the c-th for one x is a running one as well, from the first key on.
    """
    seen, sums = bias.visible(n), np.ones(n)
    x, weight = _exponents(*_range(bias, n))
    logs = np.log(np.arange(1.0, n + 1))
    carried = np.zeros(x.size)  # Σ_j (j / a)^x over the keys up to a, the last one of the segment before
    start, last = 0, int(seen[-1])
    while start < last:
        stop = max(int(np.searchsorted(logs, logs[start] + SAFE / x[-1], side="right")), start + 1)
        stop = min(stop, last)
        top = logs[stop - 1]
        if start:
            carried = carried * np.exp((logs[start - 1] - top) * x)
        upto = np.exp((logs[start:stop] - top)[:, None] * x).cumsum(axis=0) + carried
        queries = slice(np.searchsorted(seen, start, side="right"), np.searchsorted(seen, stop, side="right"))
        sums[queries] = (np.exp((top - logs[queries])[:, None] * x) * upto[seen[queries] - 1 - start]) @ weight
        carried, start = upto[-1], stop
    return seen, sums


def _range(bias: FlatBias, n: int) -> tuple[float, float]:
    """Return the nearest and the farthest log-distance between a query and a key that it sees."""
    return max(bias.cutoff, float(-np.log1p(-1 / max(n, 2)))), float(np.log(max(n, 2)))


def _flat_pushed(bias: FlatBias, v: np.ndarray) -> np.ndarray:
    """Push a row vector through the flat kernel, as a sum of kernels (j / i)^x, a segment of keys at a time.

    The sum at key j for one x is (j / (j + 1))^x times that at j + 1, and what the queries add whose last key is j.
    Within a segment from a to b all is taken relative to b, with x log(b / a) in range.
    """
    n = v.size
    seen, sums = _flat_rows(bias, n)
    x, weight = _exponents(*_range(bias, n))
    out = np.where(seen == 0, v, 0.0)  # queries that see only themselves
    u = np.where(seen > 0, v / sums, 0.0)
    logs = np.log(np.arange(1.0, n + 1))
    carried = np.zeros(x.size)  # Σ_i u_i (b / i)^x at the last key b of the segment before, of queries that see it
    above, stop = logs[-1], int(seen[-1])
    while stop > 0:
        start = min(int(np.searchsorted(logs, logs[stop - 1] - SAFE / x[-1])), stop - 1)
        top = logs[stop - 1]
        carried = carried * np.exp((top - above) * x)
        queries = slice(np.searchsorted(seen, start, side="right"), np.searchsorted(seen, stop, side="right"))
        added = np.zeros((stop - start, x.size))
        terms = u[queries, None] * np.exp((top - logs[queries])[:, None] * x)
        np.add.at(added, seen[queries] - 1 - start, terms)
        sent = added[::-1].cumsum(axis=0)[::-1] + carried
        out[start:stop] += (np.exp((logs[start:stop] - top)[:, None] * x) * sent) @ weight
        carried, above, stop = sent[0], top, start
    return out


@lru_cache(maxsize=2)
def _near(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 / log(i / j) for j < i, 0 elsewhere, and its sums over the keys up to each."""
    distance = log_ratios(n)
    near = np.divide(1.0, distance, out=np.zeros_like(distance), where=distance > 0)
    return near, near.cumsum(axis=1)


@lru_cache(maxsize=4)
def _flat_matrix(heads: tuple[tuple[FlatBias, float], ...], n: int) -> np.ndarray:
    """Return Σ_h w_h A_h of flat heads: one table of 1 / log(i / j), times what its key weighs over the heads."""
    near, sums = _near(n)
    shares = np.zeros((n, n + 1))
    own, rows = np.zeros(n), np.arange(n)
    for bias, w in heads:
        seen = bias.visible(n)
        some = seen > 0
        own[~some] += w
        shares[rows[some], seen[some] - 1] += w / sums[rows[some], seen[some] - 1]
    out = shares[:, ::-1].cumsum(axis=1)[:, :0:-1]
    out *= near
    out[rows, rows] += own
    return out

"""Kernels given by a few numbers: slopes, a diagonal, a mask; a row vector goes through one in O(n) per head.

Every head's kernel is A[i, j] ∝ exp((base + diagonal·1[i = j] - slope·(i - j)) / temperature) on the keys
that the mask allows. The n×n matrix is never needed to push a row vector v through it: the constant cancels,
the diagonal is one number per row, and the rest is geometric in the distance, so that

    (v A)[j] = v[j] A[j, j] + Σ_{i > j} u[i] q^(i-1-j),     q = exp(-slope / temperature),

with u[i] = v[i] A[i, i-1], is a running sum from the last token to the first. It is taken a segment at a
time for all heads together, so that the working memory is heads × segment whatever the number of tokens.
All terms are positive except under a sliding window, where what leaves the window is taken off.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.kernels import attention_kernel, head_weights, mix_heads
from posbias.rollout.logits import content_logits, position_logits
from posbias.rollout.masks import Mask, causal

SEGMENT = 512  # tokens held at a time for every head: large enough for numpy, small enough for the cache
SAFE_EXPONENT = 500.0  # exp(±500) stays far inside the range of a double
NO_MORE = 45.0  # exp(-45) is below the rounding of the sum it would be added to
STEEPEST = SAFE_EXPONENT  # from here on the second-nearest key has no weight beside the nearest


@dataclass(frozen=True, eq=False)
class StructuredKernels:
    """Hold the kernels of T layers × H heads by their slopes, diagonal content, mask and head weights.

    Make one with :func:`structured_kernels`.

    Parameters
    ----------
    T, H
        Numbers of layers and heads.
    mask
        The mask shared by all of them.
    slopes, diagonal, base
        Logits per token of distance, on the diagonal, and everywhere; shape (1 or T, H), already divided
        by the softmax temperature.
    weights
        Head weights, shape (1 or T, H), each row summing to 1.
    """

    T: int
    H: int
    mask: Mask
    slopes: Float[np.ndarray, "_ H"]
    diagonal: Float[np.ndarray, "_ H"]
    base: Float[np.ndarray, "_ H"]
    weights: Float[np.ndarray, "_ H"]

    @cached_property
    def same_in_every_layer(self) -> bool:
        """Say whether one kernel serves all T layers (the constant base cancels and does not count)."""
        return all((x == x[0]).all() for x in (self.slopes, self.diagonal, self.weights))

    def layer(self, t: int) -> tuple[Float[np.ndarray, "H"], Float[np.ndarray, "H"], Float[np.ndarray, "H"]]:
        """Return slopes, diagonal and weights of layer ``t`` (0-based), each of shape (H,)."""
        t = errors.index("layer", t, self.T)
        return tuple(x[min(t, len(x) - 1)] for x in (self.slopes, self.diagonal, self.weights))

    def dense(self, t: int, n: int) -> Float[np.ndarray, "n n"]:
        """Return layer ``t``'s head-averaged kernel as an (n, n) matrix: the oracle of :meth:`pull`."""
        slopes, diagonal, weights = self.layer(t)
        base = self.base[min(t, len(self.base) - 1)]
        A = [
            attention_kernel(position_logits(n, m) + content_logits(n, b, d), self.mask)
            for m, d, b in zip(slopes, diagonal, base, strict=True)
        ]
        return mix_heads(np.stack(A), weights)

    def pull(self, v: Float[np.ndarray, "n"], t: int) -> Float[np.ndarray, "n"]:
        """Return the row vector v A_t, A_t being layer ``t``'s head-averaged kernel, without forming A_t.

        Cost: O(n H) time, O(n + H·512) memory.

        Parameters
        ----------
        v
            Weights on queries, ≥ 0, shape (n,).
        t
            Layer, 0-based.

        >>> structured_kernels(T=1, slope=0.7).pull(np.array([0.0, 0.0, 1.0]), 0).round(3)
        array([0.141, 0.285, 0.574])
        """
        slopes, diagonal, weights = self.layer(t)
        n = v.size
        together = {"full": n, "prefix": min(self.mask.width, n)}.get(self.mask.kind, 0)
        reach = self.mask.width - 1 if self.mask.kind == "window" else n
        out = np.zeros(n)
        out[:together] = _both_ways(v[:together], slopes, diagonal, weights)
        if together < n:
            past = v.copy()
            past[:together] = 0.0
            out += _backwards(past, reach, slopes, diagonal, weights)
        return out


def structured_kernels(
    T: int,
    *,
    slope: Numbers | None = None,
    diagonal: Numbers = 0.0,
    base: Numbers = 0.0,
    mask: Mask | None = None,
    weights: Numbers | None = None,
    temperature: float = 1.0,
    H: int | None = None,
) -> StructuredKernels:
    """Describe T layers of H heads by slopes and constant-plus-diagonal content.

    Parameters
    ----------
    T
        Number of layers.
    slope
        ALiBi slopes (logits per token), > 0: one number, (H,), or (1 or T, 1 or H). None: no positional logits.
    diagonal, base
        Content logits on the diagonal (added) and everywhere, same shapes.
    mask
        Causal unless given.
    weights
        Head weights, (H,) or (1 or T, H), normalised to sum to 1; uniform unless given.
    temperature
        Divides all logits, > 0.
    H
        Number of heads; read off the shapes unless given.

    Raises
    ------
    ValueError
        Naming the argument, what was expected and what came.

    Source: residual-aware paper, sections 3 and 6.2, Proposition 4.5, appendix B.

    >>> kernels = structured_kernels(T=2, slope=[0.5, 0.25], diagonal=[[1.0], [-1.0]])
    >>> kernels.H, kernels.same_in_every_layer
    (2, False)
    """
    T = errors.positive_integer("T", T)
    temperature = float(errors.finite_array("softmax_temperature", temperature, ndim=(0,)))
    if temperature <= 0:
        raise errors.invalid("softmax_temperature", "a number above 0", temperature)
    given = {"slope": 0.0 if slope is None else slope, "diagonal": diagonal, "base": base}
    arrays = {field: np.atleast_2d(errors.finite_array(field, x, ndim=(0, 1, 2))) for field, x in given.items()}
    if slope is not None and (arrays["slope"] <= 0).any():
        raise errors.invalid("slope", "numbers above 0", arrays["slope"].min())
    rows = None if weights is None else np.atleast_2d(errors.finite_array("head_weights", weights, ndim=(1, 2)))
    sizes = [x.shape[1] for x in (*arrays.values(), *([] if rows is None else [rows]))]
    H = errors.positive_integer("H", max(sizes) if H is None else H)
    parts = {field: _per_layer_and_head(field, x, T, H) / temperature for field, x in arrays.items()}
    if rows is not None and len(rows) not in (1, T):
        raise errors.invalid("head_weights", f"1 or {T} rows", f"shape {rows.shape}")
    mixed = np.stack([head_weights(w, H) for w in ([None] if rows is None else rows)])
    return StructuredKernels(T, H, mask or causal(), parts["slope"], parts["diagonal"], parts["base"], mixed)


def _per_layer_and_head(field: str, x: np.ndarray, T: int, H: int) -> np.ndarray:
    """Widen a (1 or T, 1 or H) array to (1 or T, H)."""
    if x.shape[0] not in (1, T) or x.shape[1] not in (1, H):
        raise errors.invalid(field, f"one number, ({H},) or (1 or {T}, 1 or {H})", f"shape {x.shape}")
    return np.broadcast_to(x, (x.shape[0], H))


@dataclass(frozen=True)
class _Powers:
    """Tables for one segment: q^k, q^-k and Σ_{l < k} q^l for k < length, one column per head."""

    falling: np.ndarray
    rising: np.ndarray
    partial: np.ndarray


@lru_cache(maxsize=8)
def _powers(slopes: bytes, length: int) -> _Powers:
    """Tabulate the powers of q = exp(-slope) once for all the layers that share their slopes."""
    exponent = np.arange(length)[:, None] * np.frombuffer(slopes)
    falling = np.exp(-exponent)
    partial = np.concatenate([np.zeros_like(falling[:1]), falling[:-1].cumsum(axis=0)])
    return _Powers(falling, np.exp(exponent), partial)


def _segment_length(n: int, slopes: np.ndarray) -> int:
    """Return how many tokens to take at a time so that exp(slope·length) stays in range."""
    steepest = float(slopes.max())
    return min(n, SEGMENT, int(SAFE_EXPONENT / steepest) if steepest > 0 else SEGMENT)


def _geometric_sum(slopes: np.ndarray, terms: int) -> np.ndarray:
    """Return Σ_{k < terms} exp(-slope·k) for each slope, accurate for slopes near 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.expm1(-slopes * terms) / np.expm1(-slopes)
    return np.where(slopes > 0, ratio, float(terms))


@dataclass(frozen=True)
class _PastRows:
    """Rows of kernels that see the ``reach`` tokens before the query, and the query itself.

    Row i > 0 gives ``own`` to itself and ``near``·q^(k-1) to the token k ≤ min(i, reach) before it, both
    relative to the larger of the two, so that their sum own + near·g[i], g[i] = Σ_{k < min(i, reach)} q^k,
    is at least 1 and nothing overflows. Row 0 gives everything to itself.
    """

    v: np.ndarray
    reach: int
    slopes: np.ndarray
    own: np.ndarray
    near: np.ndarray
    powers: _Powers

    def over_sums(self, first: int, last: int) -> np.ndarray:
        """Return v[i] over the row's sum, (last - first, H); 0 for row 0 and beyond the last token."""
        part = self.v[first:last, None]
        sums = self.near * self._reachable(first, first + len(part))
        sums += self.own
        if first == 0:
            sums[0] = np.inf
        scaled = part / sums
        return scaled if first + len(part) == last else np.pad(scaled, ((0, last - first - len(part)), (0, 0)))

    def _reachable(self, first: int, last: int) -> np.ndarray:
        """Return g[i] for first ≤ i < last, (last - first, H); one row where g no longer changes."""
        everything = _geometric_sum(self.slopes, self.reach)
        if first >= self.reach or (self.slopes * first > NO_MORE).all():
            return everything[None]
        g = np.exp(-self.slopes * first) * self.powers.partial[: last - first]
        g += _geometric_sum(self.slopes, first)
        g[self.reach - first :] = everything
        return g


def _backwards(v: np.ndarray, reach: int, slopes: np.ndarray, diagonal: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Push v through causal (reach ≥ n - 1) or sliding-window kernels by a running sum from the last token."""
    n = v.size
    if n == 1 or reach == 0:
        return v.copy()
    top = np.maximum(diagonal, -slopes)
    own, near = np.exp(diagonal - top), np.exp(-slopes - top)
    slopes = np.minimum(slopes, STEEPEST)
    length = _segment_length(n, slopes)
    powers = _powers(slopes.tobytes(), length)
    rows = _PastRows(v, reach, slopes, own, near, powers)
    q, leaving = np.exp(-slopes), np.exp(-slopes * reach)
    to_own, to_near = weights * own, weights * near
    lift = powers.rising * to_near
    out = np.empty(n)
    later = np.zeros(slopes.size)  # the running sum at the first token after this segment
    for start in range((n - 1) // length * length, -1, -length):
        stop = min(start + length, n)
        falling = powers.falling[: stop - start]
        sent = rows.over_sums(start, stop)
        out[start:stop] = sent @ to_own
        if reach < n:
            sent -= leaving * rows.over_sums(start + reach, stop + reach)
        sent *= falling
        inside = sent[::-1].cumsum(axis=0)[::-1]  # the running sum without what comes from later segments, falling
        out[start : stop - 1] += np.einsum("jh,jh->j", inside[1:], lift[1 : stop - start])
        out[start:stop] += falling[::-1] @ (to_near * later)
        later = inside[0] + later * q * falling[-1]
    out[0] += v[0]
    if reach < n:  # only here were terms taken off: leave no rounding below 0 or beyond the window
        np.maximum(out, 0.0, out=out)
        out[: max(0, int(np.argmax(v > 0)) - reach)] = 0.0
    return out


def _both_ways(v: np.ndarray, slopes: np.ndarray, diagonal: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Push v through kernels in which all K tokens see one another (a full mask, or the rows of a prefix).

    Key j then weighs exp(slope·(j - K + 1)) in every row alike, so that one sum over rows serves all keys;
    only a row's own key differs. The last row, whose own key is the heaviest, is taken relative to its
    neighbour. A head at a time: memory O(K).
    """
    K, out = v.size, np.zeros(v.size)
    if K < 2:
        return v.copy()
    distance = np.arange(K - 1.0, -1.0, -1.0)
    for slope, d, w in zip(slopes, diagonal, weights, strict=True):
        key = np.exp(-min(slope, STEEPEST) * distance)
        own = (d - slope * distance)[:-1]
        top = np.maximum(own, 0.0)
        rate = v[:-1] / (np.exp(own - top) + np.exp(-top) * _others(key)[:-1])
        out[:-1] += w * rate * np.exp(own - top)
        out += w * key * _others(np.append(rate * np.exp(-top), 0.0))
        top = max(d, -slope)
        near = np.exp(-slope - top) * np.exp(-min(slope, STEEPEST) * (distance[:-1] - 1))
        last = w * v[-1] / (np.exp(d - top) + near.sum())
        out[-1] += last * np.exp(d - top)
        out[:-1] += last * near
    return out


def _others(x: np.ndarray) -> np.ndarray:
    """Return Σ_{i ≠ j} x[i] for each j as sums of what stands before and after, so that nothing cancels."""
    before = np.concatenate([[0.0], x[:-1].cumsum()])
    after = np.concatenate([x[:0:-1].cumsum()[::-1], [0.0]])
    return before + after

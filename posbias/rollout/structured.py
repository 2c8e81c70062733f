"""Kernels given by a few numbers: slopes or other position biases, content on the diagonal, a mask.

Every head's kernel is A[i, j] ∝ exp(b[i, j] + diagonal·1[i = j]) on the keys that the mask allows, b being
-slope·(i - j) or another bias. Content that is the same for all keys cancels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.layers import Layers
from posbias.rollout.masks import Mask, causal
from posbias.rollout.operators import SAFE, Flat, Geometric, Kernel, Matrix, Powers, Window
from posbias.rollout.position_bias import AlibiBias, Biases, FlatBias, LogBias, NoBias, PositionBias, layered_biases


def head_kernel(bias: PositionBias, n: int, diagonal: float, mask: Mask) -> Kernel:
    """Return the kernel of a head with content logits on the diagonal, written out where no bias has a quicker way.

    >>> head_kernel(LogBias(1.0), 3, 0.0, causal()).rmatvec(np.array([0.0, 0.0, 6.0])).round(12).tolist()
    [1.0, 2.0, 3.0]
    """
    if mask.kind == "causal" and not np.isnan(bias.fall):
        return Geometric(n, [bias.fall], [diagonal], [1.0])
    if mask.kind == "causal" and isinstance(bias, LogBias) and abs(bias.alpha) * np.log(n) < SAFE:
        return Powers(n, bias.alpha, diagonal)
    if mask.kind == "causal" and isinstance(bias, FlatBias):
        return flat_kernel(bias, n)
    return Matrix(attention_kernel(bias.logits(n) + diagonal * np.eye(n), mask))


@lru_cache(maxsize=8)
def flat_kernel(bias: FlatBias, n: int) -> Flat:
    """Return the kernel of a flat bias, with what it has summed up for other layers."""
    return Flat(bias.visible(n), bias.cutoff)


@dataclass(frozen=True, eq=False)
class StructuredKernels(Layers):
    """Hold the kernels of T layers × H heads by their slopes, diagonal content, mask and head weights.

    Make one with :func:`structured_kernels`, or with :func:`biased_kernels`.
    """

    T: int
    H: int
    mask: Mask  # shared by all
    # Logits lost per token of distance, and on the diagonal
    slopes: Float[np.ndarray, "_ H"]  # NaN for heads with another bias
    diagonal: Float[np.ndarray, "_ H"]
    weights: Float[np.ndarray, "_ H"]  # Each row sums to 1
    biases: Biases | None = None  # Of all heads, for one layer that stands for all or for T, where some are no slopes

    @cached_property
    def same_in_every_layer(self) -> bool:
        """Say whether one kernel serves all T layers."""
        arrays = (np.nan_to_num(self.slopes, nan=-1.0), self.diagonal, self.weights)
        return len(set(self.biases or ())) < 2 and all(bool((x == x[0]).all()) for x in arrays)

    def layer(self, t: int) -> tuple[Float[np.ndarray, "H"], Float[np.ndarray, "H"], Float[np.ndarray, "H"]]:
        """Return slopes, diagonal and weights of layer ``t`` (0-based), each of shape (H,)."""
        t = errors.index("layer", t, self.T)
        return tuple(x[min(t, len(x) - 1)] for x in (self.slopes, self.diagonal, self.weights))

    def alike(self, t: int, weights: Float[np.ndarray, "H"] | None = None) -> dict[tuple[PositionBias, float], float]:
        """Return the different heads of layer ``t``, bias and diagonal content, with their weights' sums."""
        _, diagonal, own = self.layer(t)
        found: dict[tuple[PositionBias, float], float] = {}
        for bias, d, w in zip(self._biases(t), diagonal.tolist(), own if weights is None else weights, strict=True):
            key = bias, 0.0 if bias.hides_query else d
            found[key] = found.get(key, 0.0) + float(w)
        return found

    def heads(self, t: int, n: int, weights: Float[np.ndarray, "H"] | None = None) -> list[tuple[Any, float]]:
        """Return the different kernels of layer ``t`` for n tokens, each with the sum of its heads' weights."""
        return [(head_kernel(bias, n, d, self.mask), w) for (bias, d), w in self.alike(t, weights).items()]

    def kernel(self, t: int, n: int, weights: Float[np.ndarray, "H"] | None = None) -> Any:
        """Return the head-averaged kernel of layer ``t`` for n tokens as a linear operator.

        Cost of a row vector: O(n H) with slopes, O(n × width) in a window, O(n) for each different head with log j,
        O(170 n) with a flat bias, but for sums taken once; O(n²) with other biases and under other masks.

        >>> structured_kernels(T=1, slope=0.7).kernel(0, 3).rmatvec(np.array([0.0, 0.0, 1.0])).round(3)
        array([0.141, 0.285, 0.574])
        """
        slopes, diagonal, own = self.layer(t)
        heads = slopes, diagonal, own if weights is None else weights
        if np.isnan(slopes).any() or self.mask.kind not in ("causal", "window"):
            return super().kernel(t, n, weights)
        return Geometric(n, *heads) if self.mask.kind == "causal" else Window(n, self.mask.width, *heads)

    def dense(self, t: int, n: int) -> Float[np.ndarray, "n n"]:
        """Return layer ``t``'s head-averaged kernel as an (n, n) matrix: the oracle of :meth:`kernel`."""
        A, (_, diagonal, weights) = np.zeros((n, n)), self.layer(t)
        for bias, d, w in zip(self._biases(t), diagonal, weights, strict=True):
            A += w * attention_kernel(bias.logits(n) + d * np.eye(n), self.mask)
        return A

    def _biases(self, t: int) -> Sequence[PositionBias]:
        """Return the biases of the heads of layer ``t``."""
        if self.biases:
            return self.biases[min(t, len(self.biases) - 1)]
        return [AlibiBias(slope) if slope else NoBias() for slope in self.layer(t)[0].tolist()]


def structured_kernels(
    T: int,
    *,
    slope: Numbers | None = None,
    diagonal: Numbers = 0.0,
    mask: Mask | None = None,
    weights: Numbers | None = None,
    H: int | None = None,
) -> StructuredKernels:
    """Describe T layers of H heads by slopes and content on the diagonal.

    Parameters
    ----------
    T
        Number of layers.
    slope
        ALiBi slopes (logits per token), > 0: one number, (H,), or (1 or T, 1 or H). None: no positional logits.
    diagonal
        Content logits on the diagonal, less those off it, same shapes.
    mask
        Causal unless given.
    weights
        Head weights, (H,) or (1 or T, H), normalised to sum to 1; uniform unless given.
    H
        Number of heads; read off the shapes unless given.

    Source: residual-aware paper, sections 3 and 6.2, Proposition 4.5, appendix B.

    >>> kernels = structured_kernels(T=2, slope=[0.5, 0.25], diagonal=[[1.0], [-1.0]])
    >>> kernels.H, kernels.same_in_every_layer
    (2, False)
    """
    T = errors.positive_integer("T", T)
    given = {"slope": 0.0 if slope is None else slope, "diagonal": diagonal}
    given["head_weights"] = 1.0 if weights is None else weights
    arrays = {field: _rows(field, x) for field, x in given.items()}
    if slope is not None and (arrays["slope"] <= 0).any():
        raise errors.invalid("slope", "numbers above 0", arrays["slope"].min())
    H = errors.positive_integer("H", max(x.shape[1] for x in arrays.values()) if H is None else H)
    slopes, content, shares = (_widen(field, x, T, H) for field, x in arrays.items())
    return StructuredKernels(T, H, mask or causal(), slopes, content, _shares(shares))


def biased_kernels(
    T: int, biases: object, *, diagonal: Numbers = 0.0, weights: Numbers | None = None, H: int | None = None
) -> StructuredKernels:
    """Describe T layers of H causal heads by position biases and diagonal content.

    Parameters
    ----------
    T
        Number of layers.
    biases
        A description for all heads, a list for heads, or a list of such lists for layers, as
        :func:`~posbias.rollout.position_bias.layered_biases` reads them.
    diagonal, weights, H
        As in :func:`structured_kernels`.

    >>> biased_kernels(2, [{"kind": "none"}, {"kind": "flat", "tau": 2.0}]).H
    2
    """
    T = errors.positive_integer("T", T)
    content, shares = _rows("diagonal", diagonal), _rows("head_weights", 1.0 if weights is None else weights)
    rows = layered_biases(biases, T, H)
    if H is None and len(rows[0]) == 1:
        rows = tuple(row * max(content.shape[1], shares.shape[1]) for row in rows)
    H = len(rows[0])
    slopes = np.array([bias.fall for row in rows for bias in row]).reshape(len(rows), H)
    content, shares = _widen("diagonal", content, T, H), _shares(_widen("head_weights", shares, T, H))
    return StructuredKernels(T, H, causal(), slopes, content, shares, rows)


def _rows(field: str, values: Numbers) -> np.ndarray:
    """Return one number, those of heads, or rows of layers as rows."""
    return np.atleast_2d(errors.finite_array(field, values, ndim=(0, 1, 2)))


def _widen(field: str, x: np.ndarray, T: int, H: int) -> np.ndarray:
    """Widen a (1 or T, 1 or H) array to (1 or T, H)."""
    if x.shape[0] not in (1, T) or x.shape[1] not in (1, H):
        raise errors.invalid(field, f"one number, ({H},) or (1 or {T}, 1 or {H})", f"shape {x.shape}")
    return np.broadcast_to(x, (x.shape[0], H))


def _shares(weights: np.ndarray) -> Float[np.ndarray, "_ H"]:
    """Return rows of head weights that sum to 1."""
    if (weights < 0).any() or not weights.any(1).all():
        raise errors.invalid("head_weights", "weights ≥ 0 with one above 0 in each layer", weights.tolist())
    return np.asarray(weights / weights.sum(1, keepdims=True))

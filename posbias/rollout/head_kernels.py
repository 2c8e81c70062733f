"""The kernel of one head by the kind of its bias: a linear operator where there is a quicker way than n × n."""

from __future__ import annotations

from functools import lru_cache, singledispatch

import numpy as np

from posbias.rollout.flat import Flat
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import content_logits
from posbias.rollout.masks import Mask
from posbias.rollout.operators import SAFE, Kernel, Matrix, Powers, sloped
from posbias.rollout.position_bias import AlibiBias, FlatBias, LogBias, NoBias, PositionBias


@singledispatch
def head_kernel(bias: PositionBias, n: int, diagonal: float, mask: Mask) -> Kernel:
    """Return the kernel of a head with a bias and content logits on the diagonal.

    Cost of a row vector: O(n) without bias, with ALiBi or with log j, O(170 n) for a flat bias, O(n²) for others.

    >>> from posbias.rollout.masks import causal
    >>> head_kernel(LogBias(1.0), 3, 0.0, causal()).rmatvec(np.array([0.0, 0.0, 6.0])).round(12).tolist()
    [1.0, 2.0, 3.0]
    """
    return Matrix(attention_kernel(bias.logits(n) + content_logits(n, 0.0, diagonal), mask))


written_out = head_kernel.dispatch(PositionBias)


@head_kernel.register(NoBias)
@head_kernel.register(AlibiBias)
def _(bias: PositionBias, n: int, diagonal: float, mask: Mask) -> Kernel:
    if np.isnan(bias.fall):
        return written_out(bias, n, diagonal, mask)
    return sloped(n, np.array([bias.fall]), np.array([diagonal]), np.ones(1), mask)


@head_kernel.register
def _(bias: LogBias, n: int, diagonal: float, mask: Mask) -> Kernel:
    if mask.kind == "causal" and abs(bias.alpha) * np.log(n) < SAFE:  # j^α stays inside the range of a double
        return Powers(n, bias.alpha, diagonal)
    return written_out(bias, n, diagonal, mask)


@head_kernel.register
def _(bias: FlatBias, n: int, diagonal: float, mask: Mask) -> Kernel:
    return flat_kernel(bias, n) if mask.kind == "causal" else written_out(bias, n, diagonal, mask)


@lru_cache(maxsize=8)
def flat_kernel(bias: FlatBias, n: int) -> Flat:
    """Return a kernel that other layers are likely to have too, with what it has summed up."""
    return Flat(bias.visible(n), bias.cutoff)

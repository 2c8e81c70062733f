"""Attention logits before the softmax, of positions: ALiBi and decay."""

import numpy as np
from jaxtyping import Float

from posbias import errors


def alibi_slopes(H: int) -> Float[np.ndarray, "H"]:
    """Return the slopes that ALiBi's own rule gives H ≥ 1 heads, in head order.

    For H a power of two: 2^(-8h/H), h = 1..H. Otherwise, with p the largest power of two
    below H: the p slopes of that rule, then 2^(-4h/p) for h = 1, 3, 5, … until H are filled.

    Source: Press et al. 2022, footnote on heads that are not a power of two; BLOOM, MPT and Falcon
    build their slopes by this rule. The residual-aware paper's configurations use
    :func:`geometric_slopes` instead, which differs for BLOOM-176B's 112 heads.

    >>> alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    H = errors.positive_integer("H", H)
    p = 1 << (H.bit_length() - 1)
    base = 2.0 ** (-8.0 * np.arange(1, p + 1) / p)
    rest = 2.0 ** (-4.0 * np.arange(1, 2 * (H - p), 2) / p)
    return np.concatenate([base, rest])


def geometric_slopes(H: int) -> Float[np.ndarray, "H"]:
    """Return 2^(-8h/H), h = 1..H: the formula usually quoted, right for H a power of two only.

    >>> geometric_slopes(2).tolist()
    [0.0625, 0.00390625]
    """
    H = errors.positive_integer("H", H)
    return 2.0 ** (-8.0 * np.arange(1, H + 1) / H)


def position_logits(n: int, slope: float) -> Float[np.ndarray, "n n"]:
    """Return the ALiBi (or decay-mask) logits -slope · (i - j) of n tokens; a slope of 0 is no positional encoding.

    Keys after the query (reached only without a causal mask) get a positive logit, as they do in
    models that write the bias as +slope · j: the two differ by a constant in each row.

    Source: Press et al. 2022, section 3; the decay mask of Wu et al. 2025 is the same with m = slope.

    >>> position_logits(3, 0.5)
    array([[ 0. ,  0.5,  1. ],
           [-0.5,  0. ,  0.5],
           [-1. , -0.5,  0. ]])
    """
    n = errors.positive_integer("n", n)
    slope = float(errors.finite_array("slope", slope, ndim=(0,)))
    if slope < 0:
        raise errors.invalid("slope", "a number ≥ 0", slope)
    i = np.arange(n, dtype=np.float64)
    return slope * (i[None, :] - i[:, None])

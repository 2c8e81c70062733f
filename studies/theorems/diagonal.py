"""A content logit on the diagonal: what it does to a kernel, and when the kernel stays stochastically monotone."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors


def add_diagonal(
    A: Float[np.ndarray, "*over n n"], d: float | Float[np.ndarray, "*over"]
) -> Float[np.ndarray, "*over n n"]:
    """Return the kernel whose logits are those of A plus d on the diagonal.

    Parameters
    ----------
    A
        A row-stochastic kernel that came out of a softmax, or a stack of them.
    d
        Content logit of every token with itself; a number for each kernel, or one for all.

    Source: residual-aware paper, Proposition 4.5.

    >>> add_diagonal(np.array([[1.0, 0.0], [0.5, 0.5]]), np.log(3))
    array([[1.  , 0.  ],
           [0.25, 0.75]])
    """
    errors.stochastic_kernel("A", A.reshape(-1, *A.shape[-2:]))
    weights = A * np.exp(np.asarray(d)[..., None, None] * np.eye(A.shape[-1]))
    return weights / weights.sum(axis=-1, keepdims=True)


def diagonal_keeps_order(c: Float[np.ndarray, "n"], d: float) -> bool:
    """Say whether the causal kernel with logits c_j + d 1[i = j] is stochastically monotone.

    Parameters
    ----------
    c
        Logit of every key, the same for all queries; ALiBi of one slope m is c_j = m j.
    d
        Content logit on the diagonal.

    Notes
    -----
    For d ≤ 0 always; for d > 0 exactly if c_i - c_(i+1) ≤ -log(1 - e^(-d)) for 2 ≤ i < n.

    Source: ours.

    >>> diagonal_keeps_order(np.array([0.0, 1.0, 0.0]), 0.4), diagonal_keeps_order(np.array([0.0, 1.0, 0.0]), 0.5)
    (True, False)
    """
    return bool(d <= 0 or (c[1:-1] - c[2:] <= -np.log(-np.expm1(-d))).all())

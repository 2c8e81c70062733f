"""Causal kernels that collapse as slowly as a bound on the weights lets them: they attain the bounds of the theory."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors


def stairs(delta: float, n: int) -> Float[np.ndarray, "n n"]:
    """Return the kernel that moves one place down with probability δ and stays otherwise.

    Of all causal kernels with 1 - A[i, i] ≥ δ for i ≥ 2 it leaves most mass off the first token, at every depth.

    Parameters
    ----------
    delta
        Probability of a step down, in [0, 1].
    n
        Tokens.

    Source: ours, the equality case of the count of moves.

    >>> stairs(0.25, 3)
    array([[1.  , 0.  , 0.  ],
           [0.25, 0.75, 0.  ],
           [0.  , 0.25, 0.75]])
    """
    n, delta = errors.positive_integer("n", n), _probability("delta", delta)
    A = np.diag(np.full(n, 1 - delta)) + np.diag(np.full(n - 1, delta), -1)
    A[0, 0] = 1.0
    return A


def direct(epsilon: float, n: int) -> Float[np.ndarray, "n n"]:
    """Return the kernel that moves to the first token with probability ε and stays otherwise.

    It attains the bound Π (1 - ε λ_t) on the mass off the first token.

    Parameters
    ----------
    epsilon
        Weight of every token on the first, in [0, 1].
    n
        Tokens.

    Source: the equality case of theorem 5.5 (ii) of the residual-aware paper.

    >>> direct(0.25, 3)
    array([[1.  , 0.  , 0.  ],
           [0.25, 0.75, 0.  ],
           [0.25, 0.  , 0.75]])
    """
    n, epsilon = errors.positive_integer("n", n), _probability("epsilon", epsilon)
    A = (1 - epsilon) * np.eye(n)
    A[:, 0] += epsilon
    return A


def _probability(field: str, value: float) -> float:
    number = float(errors.finite_array(field, value, ndim=(0,)))
    if not 0 <= number <= 1:
        raise errors.invalid(field, "a number in [0, 1]", number)
    return number

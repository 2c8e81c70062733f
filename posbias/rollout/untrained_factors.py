"""The law at birth by factors: the Gram matrix as B Bᵀ with as few columns as its accuracy asks for.

A layer takes B to [B, c_1 A_1ᵀ B, …, c_H A_Hᵀ B]. A Cholesky factorisation with pivots, which only looks at the columns
that it takes, makes that few columns again: kernels of tokens that are far apart smooth, so that a thousand tokens need
some hundred and fifty. The cost is that of pushing so many columns through each head.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.biased import BiasedKernels, dense_kernel
from posbias.rollout.gains import Gains
from posbias.rollout.influence import Kernels
from posbias.rollout.position_bias import PositionBias
from posbias.rollout.untrained import birth_profile, unit

TOLERANCE = 1e-6
"""Relative error of each mean square in one layer."""
TINY = 1e-24
"""Share of all squares below which a mean square counts as none."""
KEPT = 2**30
"""Bytes of kernels that are kept from layer to layer."""
EXACT = 256
"""Most tokens whose law at birth is computed without factors."""


def profile_of_gains(kernels: Kernels, gains: Gains, n: int) -> Float[np.ndarray, "n"]:
    """Return the law at birth of a network's gains: :func:`~posbias.rollout.untrained.birth_profile` the quickest way.

    Gains alone take the paths without steps: by powers of one kernel, or of more than :data:`EXACT` tokens by factors,
    then within 1e-5 at each position, relatively. Else the time is O(T H n³), O(T H n²) without flat heads.

    Parameters
    ----------
    kernels
        Of T layers.
    gains
        Of as many.
    n
        Tokens.

    Raises
    ------
    ValueError
        If numbers of layers differ.

    Source: ours; the chapter on the law at birth.

    >>> from posbias.rollout.biased import biased_kernels
    >>> from posbias.rollout.gains import gains_of_mixing
    >>> profile_of_gains(biased_kernels(1, {"kind": "none"}), gains_of_mixing([0.5]), 2).round(4).tolist()
    [0.309, 0.691]
    """
    alone = gains.alone
    if alone is None:
        return birth_profile(kernels, n=n, **gains.at(np.arange(1.0, errors.positive_integer("n", n) + 1)))
    if n > EXACT and isinstance(kernels, BiasedKernels):
        return factored_birth_profile(kernels, alone, n)
    return birth_profile(kernels, alone, n)


def factored_birth_profile(
    kernels: BiasedKernels, gains: Numbers, n: int, *, tolerance: float = TOLERANCE
) -> Float[np.ndarray, "n"]:
    """Return :func:`~posbias.rollout.untrained.birth_profile` up to about ``tolerance``, relative, at each position.

    O(n² r) for each head and layer, r columns; where one kernel serves all heads and layers the law itself is quicker,
    and is what comes back.

    Parameters
    ----------
    kernels
        Kernels of heads by their position biases.
    gains
        c ≥ 0, T values.
    n
        Tokens.
    tolerance
        Relative error of each mean square in one layer, > 0.

    Raises
    ------
    ValueError
        If gains are not T numbers of at least 0, or the tolerance is not above 0.

    Source: ours.

    >>> from posbias.rollout.biased import biased_kernels
    >>> kernels = biased_kernels(3, [{"kind": "log", "alpha": 1.0}, {"kind": "none"}])
    >>> p, q = factored_birth_profile(kernels, [0.5] * 3, 8), birth_profile(kernels, [0.5] * 3, 8)
    >>> bool(abs(p / q - 1).max() < 1e-5)
    True
    """
    gain = errors.finite_array("gains", gains, ndim=(1,))
    if gain.size != kernels.T or (gain < 0).any():
        raise errors.invalid("gains", f"{kernels.T} numbers of at least 0", gain.tolist()[:5])
    if not tolerance > 0:
        raise errors.invalid("tolerance", "a number above 0", tolerance)
    if kernels.same_in_every_layer and len(kernels.heads(0)) == 1:
        return birth_profile(kernels, gain, n)
    n = errors.positive_integer("n", n)
    errors.fits("n", n, 8 * n**2)
    B = np.zeros((n, 1))
    B[-1] = 1.0
    squares = B[:, 0]
    written: dict[tuple[PositionBias, float], np.ndarray] = {}
    for t in reversed(range(kernels.T)):
        parts = [B]
        for head, weight in kernels.heads(t).items():
            A = written[head] if head in written else dense_kernel(*head, n)
            if (len(written) + 1) * A.nbytes < KEPT:
                written[head] = A
            parts.append(gain[t] * np.sqrt(weight) * (A.T @ B))
        C = np.concatenate(parts, axis=1)
        squares = (C**2).sum(1)
        B = few_columns(C / np.sqrt(squares.sum()), tolerance)
    return unit(np.sqrt(squares))


def few_columns(C: Float[np.ndarray, "n many"], tolerance: float) -> Float[np.ndarray, "n few"]:
    """Return B with B Bᵀ below C Cᵀ and, on the diagonal, within ``tolerance`` of it, relatively.

    >>> few_columns(np.ones((3, 5)), 1e-9).round(6).tolist()
    [[2.236068], [2.236068], [2.236068]]
    """
    wanted = (C**2).sum(1)
    left, least = wanted.copy(), np.maximum(wanted, TINY * wanted.sum())
    columns = np.zeros((min(C.shape), len(C)))
    for r in range(len(columns)):
        pivot = int(np.argmax(left / least))
        if left[pivot] <= tolerance * least[pivot]:
            return columns[:r].T.copy()
        column = C @ C[pivot] - columns[:r, pivot] @ columns[:r]
        columns[r] = column / np.sqrt(left[pivot])
        left = (left - columns[r] ** 2).clip(0.0)
        left[pivot] = 0.0
    return columns.T.copy()

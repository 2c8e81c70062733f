"""Rollouts with more measured: mixing and gain by position, and how skip and attention branch add up.

A residual kernel keeps every position's mass, and what comes by the skip and what comes by the branch are added. In a
network the steps between attentions may let one position grow more than another, and the two gradients that meet at a
position are vectors, which add as sizes only if they point the same way.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers


def joined_history(
    A: Float[np.ndarray, "T n n"],
    lambda_: Numbers,
    gain: Numbers | None = None,
    *,
    power: float = 1.0,
    row: int = -1,
) -> Float[np.ndarray, "depths n"]:
    """Return v_T = e_row and v_{t-1} ∝ (((1-λ_t) u)^r + ((λ_t u) A_t)^r)^{1/r}, u = v_t ∘ gain_t; v_0 comes first.

    T + 1 distributions: the last one is the row itself, and v_t what enters layer t + 1 counted from 1.

    Parameters
    ----------
    A
        Attention kernels, first layer first.
    lambda_
        Residual mixing in [0, 1]: T values, or (T, n) of them, one for each query.
    gain
        Gains ≥ 0, (T, n), of the step after the attention of each layer; 1 unless given. A factor that is the same for
        all positions of a layer changes nothing.
    power
        r ≥ 1: 1 adds what comes by the skip and by the branch as a rollout does; 2 adds them as vectors at right
        angles. What different queries send to one key is added as sizes in either case.
    row
        The position whose sources are asked for.

    Raises
    ------
    ValueError
        For kernels that are not row-stochastic, λ or gains of another shape or outside their range, a power below 1,
        and gains that let nothing through.

    Source: this project.

    >>> A = np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    >>> joined_history(A, [0.2, 0.4])
    array([[0.28, 0.72],
           [0.2 , 0.8 ],
           [0.  , 1.  ]])
    """
    A = errors.stochastic_kernel("A", A)
    if A.ndim != 3:
        raise errors.invalid("A", "a stack (T, n, n), one kernel for each layer", f"shape {A.shape}")
    T, n = A.shape[:2]
    mixing = errors.finite_array("lambda_", lambda_, ndim=(1, 2))
    if mixing.shape not in ((T,), (T, n)) or (mixing < 0).any() or (mixing > 1).any():
        raise errors.invalid("lambda_", f"{T} or {T} × {n} values in [0, 1]", f"shape {mixing.shape} or values outside")
    gains = np.ones((T, n)) if gain is None else errors.finite_array("gain", gain, ndim=(2,))
    if gains.shape != (T, n) or (gains < 0).any():
        raise errors.invalid("gain", f"{T} × {n} values of at least 0", f"shape {gains.shape} or values below")
    if not np.isfinite(power) or power < 1:
        raise errors.invalid("power", "a number of at least 1", power)
    history = np.zeros((T + 1, n))
    history[T, errors.index("row", row, n)] = 1.0
    for t in range(T - 1, -1, -1):
        u = history[t + 1] * gains[t]
        kept, moved = (1 - mixing[t]) * u, (mixing[t] * u) @ A[t]
        v = kept + moved if power == 1 else (kept**power + moved**power) ** (1 / power)
        if not v.any():
            raise errors.invalid("gain", "gains that let something through", f"none in layer {t}")
        history[t] = v / v.sum()
    return history


def joined_profile(
    A: Float[np.ndarray, "T n n"], lambda_: Numbers, gain: Numbers | None = None, *, power: float = 1.0, row: int = -1
) -> Float[np.ndarray, "n"]:
    """Return v_0 of :func:`joined_history`: the influence profile, with the same arguments and errors.

    >>> A = np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    >>> joined_profile(A, [0.2, 0.4]), joined_profile(A, [0.2, 0.4], power=2.0).round(3)
    (array([0.28, 0.72]), array([0.272, 0.728]))
    """
    return joined_history(A, lambda_, gain, power=power, row=row)[0]

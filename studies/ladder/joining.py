"""Rollouts with more measured: mixing and gain by position, and how skip and attention branch add up.

A residual kernel keeps every position's mass, and what comes by the skip and what comes by the branch are added. In a
network the steps between attentions may let one position grow more than another, and the two gradients that meet at a
position are vectors, which add as sizes only if they point the same way.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias.errors import Numbers
from posbias.published import numbers
from posbias.rollout.profiles import mean_position

JOINS = {"sizes": 1.0, "angles": 2.0}
"""How skip and branch add up: as sizes, or as vectors at right angles (the power of :func:`joined_history`)."""


def joined_history(
    A: Float[np.ndarray, "T n n"], lambda_: Numbers, gain: Numbers | None = None, *, power: float = 1.0, row: int = -1
) -> Float[np.ndarray, "depths n"]:
    """Return v_T = e_row and v_{t-1} ∝ (((1-λ_t) u)^r + ((λ_t u) A_t)^r)^{1/r}, u = v_t ∘ gain_t; v_0 comes first.

    T + 1 distributions: the last one is the row itself, and v_t what enters layer t + 1 counted from 1. λ has T
    values, or (T, n) of them, one for each query; gains are (T, n), of the step after the attention of each layer. The
    power r is 1 for sizes, as in a rollout, and 2 for vectors at right angles; what different queries send to one key
    is added as sizes in either case.

    Source: this project.

    >>> A = np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    >>> joined_history(A, [0.2, 0.4])
    array([[0.28, 0.72],
           [0.2 , 0.8 ],
           [0.  , 1.  ]])
    """
    T, n = A.shape[:2]
    mixing, gains = np.asarray(lambda_), np.ones((T, n)) if gain is None else np.asarray(gain)
    history = np.zeros((T + 1, n))
    history[T, row] = 1.0
    for t in range(T - 1, -1, -1):
        u = history[t + 1] * gains[t]
        kept, moved = (1 - mixing[t]) * u, (mixing[t] * u) @ A[t]
        v = kept + moved if power == 1 else (kept**power + moved**power) ** (1 / power)
        history[t] = v / v.sum()
    return history


def joined_profile(
    A: Float[np.ndarray, "T n n"], lambda_: Numbers, gain: Numbers | None = None, *, power: float = 1.0, row: int = -1
) -> Float[np.ndarray, "n"]:
    """Return v_0 of :func:`joined_history`: the influence profile.

    >>> A = np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    >>> joined_profile(A, [0.2, 0.4]), joined_profile(A, [0.2, 0.4], power=2.0).round(3)
    (array([0.28, 0.72]), array([0.272, 0.728]))
    """
    return joined_history(A, lambda_, gain, power=power, row=row)[0]


def joined_means(name: str) -> dict[str, float]:
    """Return the mean position of a published model's influence as measured, and as predicted with either join.

    ``measured`` is the printed distance of attention alone, all of whose mass is on the first token; ``sizes`` and
    ``angles`` come from the published λ and slopes without content.

    Source: residual-aware paper, table 2 and the authors' configurations.

    >>> {key: round(value, 2) for key, value in joined_means("falcon-rw-7b").items()}
    {'measured': 0.63, 'sizes': 0.47, 'angles': 0.75}
    """
    config = numbers.config(name, "none")
    A = config.kernels().dense(0, config.sequence_length)  # without content all layers have one kernel
    A, lambdas = np.stack([A] * config.num_layers), config.lambdas()
    means = {join: mean_position(joined_profile(A, lambdas, power=power)) for join, power in JOINS.items()}
    return {"measured": numbers.printed(2, name, "a").wasserstein, **means}

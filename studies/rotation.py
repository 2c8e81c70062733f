"""Rotary positions: logits of turned queries and keys."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers

THETA = 10_000.0
NO_ROTATION = {"rope_parameters": {"rope_type": "linear", "rope_theta": THETA, "factor": 1e30}}
"""Rotary angles of nothing: cosines of 1, sines below 1e-26, which change no number."""


def rope_logits(q: Float[np.ndarray, "n d"], k: Float[np.ndarray, "n d"], theta: Numbers) -> Float[np.ndarray, "n n"]:
    """Return ⟨q_i R_i, k_j R_j⟩, R_i turning the l-th pair of features by the angle i θ_l: RoPE's logits.

    A pair is a complex number, its rotation at position p a multiplication by exp(√-1 p θ_l), and the inner product the
    real part of q conj(k): it depends on positions through i - j alone. No 1/√d here.

    Parameters
    ----------
    q, k
        Queries and keys before the rotation, one row per position, d even.
    theta
        Angle per token of each of the d/2 pairs (2l-1, 2l), in radians.

    Raises
    ------
    ValueError
        If d is odd or there are not d/2 angles.

    Source: Su et al. 2024; Wu et al. 2025, section 3.3.

    >>> rope_logits(np.array([[1.0, 0.0]] * 3), np.array([[1.0, 0.0]] * 3), [np.pi / 2]).round(2) + 0.0
    array([[ 1.,  0., -1.],
           [ 0.,  1.,  0.],
           [-1.,  0.,  1.]])
    """
    n, d = q.shape
    theta = errors.finite_array("theta", theta, ndim=(1,))
    if d % 2:
        raise errors.invalid("d", "an even number of features", d)
    if theta.size != d // 2:
        raise errors.invalid("theta", f"{d // 2} angles, one for each pair of features", theta.size)
    turn = np.exp(1j * np.arange(n)[:, None] * theta)
    rotated_q, rotated_k = ((x[:, 0::2] + 1j * x[:, 1::2]) * turn for x in (q, k))
    return (rotated_q @ rotated_k.conj().T).real


def rotate(x: Float[np.ndarray, "... d"], theta: Numbers, n: int) -> Float[np.ndarray, "... n d"]:
    """Return Θ_p x for p = 0..n-1: the l-th pair of features turned by the angle p θ_l.

    >>> rotate(np.array([1.0, 0.0]), [np.pi / 2], 3).round(2) + 0.0
    array([[ 1.,  0.],
           [ 0.,  1.],
           [-1.,  0.]])
    """
    d, angles = x.shape[-1], np.asarray(theta, dtype=float)
    turn = np.exp(1j * np.arange(n)[:, None] * angles)
    pairs = (x[..., 0::2] + 1j * x[..., 1::2])[..., None, :] * turn
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(*pairs.shape[:-1], d)

"""Rollouts of many small cases at once: random stacks of kernels, each with its own mixing."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.rollout.order import prefix_masses


def sort_stacks(A: Float[np.ndarray, "*over n n"]) -> Float[np.ndarray, "*over n n"]:
    """Return the stochastically monotone kernels whose prefix masses are those of A, sorted at every cutoff.

    Parameters
    ----------
    A
        Row-stochastic kernels; masks in which later rows start later (causal, sliding window) are kept.

    Source: :func:`posbias.rollout.order.monotone_rearrangement`, for every leading axis at once.

    >>> sort_stacks(np.array([[[0.25, 0.75], [1.0, 0.0]]]))
    array([[[1.  , 0.  ],
            [0.25, 0.75]]])
    """
    masses = prefix_masses(_stochastic(A))
    masses = -np.sort(-masses / masses[..., -1:], axis=-2)
    return np.diff(masses, axis=-1, prepend=0.0)


def case_rollouts(
    A: Float[np.ndarray, "cases T n n"], lambdas: Float[np.ndarray, "schedules layers"]
) -> Float[np.ndarray, "cases depths n n"]:
    """Return P_t = R_t ⋯ R_1 of every case for t = 0 to T: all rows, at every depth.

    Parameters
    ----------
    A
        Attention kernels of each case, first layer first.
    lambdas
        Residual mixing of each case and layer, in [0, 1].

    Raises
    ------
    ValueError
        For kernels that are not row-stochastic, and mixing of another shape or outside [0, 1].

    Source: residual-aware paper, section 3; :func:`posbias.rollout.influence.rollout_matrix` for many cases.

    >>> case_rollouts(np.array([[[[1.0, 0.0], [0.5, 0.5]]]]), np.array([[0.4]]))[0, 1]
    array([[1. , 0. ],
           [0.2, 0.8]])
    """
    A, lambdas = _checked(A, lambdas)
    P = np.empty((A.shape[0], A.shape[1] + 1, *A.shape[2:]))
    P[:, 0] = np.eye(A.shape[-1])
    for t in range(A.shape[1]):
        mixing = lambdas[:, t, None, None]
        P[:, t + 1] = (1 - mixing) * P[:, t] + mixing * (A[:, t] @ P[:, t])
    return P


def last_rows(
    A: Float[np.ndarray, "*over T n n"], lambdas: Float[np.ndarray, "schedules layers"]
) -> Float[np.ndarray, "schedules n"]:
    """Return the influence profile of every case.

    Parameters
    ----------
    A
        Attention kernels, first layer first: one stack for each case, or one stack (T, n, n) for all of them.
    lambdas
        Residual mixing of each case and layer, in [0, 1].

    Raises
    ------
    ValueError
        As :func:`case_rollouts` does.

    Source: residual-aware paper, section 3; :func:`posbias.rollout.influence.influence_profile` for many cases.

    >>> last_rows(np.array([[[1.0, 0.0], [0.5, 0.5]]]), np.array([[0.4], [1.0]]))
    array([[0.2, 0.8],
           [0.5, 0.5]])
    """
    A, lambdas = _checked(A, lambdas)
    row = np.zeros((len(lambdas), 1, A.shape[-1]))
    row[..., -1] = 1.0
    for t in reversed(range(A.shape[-3])):
        mixing = lambdas[:, t, None, None]
        row = (1 - mixing) * row + mixing * (row @ A[..., t, :, :])
    return row[:, 0]


def _checked(A: np.ndarray, lambdas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    A, lambdas = _stochastic(A), errors.finite_array("lambdas", lambdas, ndim=(2,))
    shape = (A.shape[0] if A.ndim == 4 else len(lambdas), A.shape[-3])
    if lambdas.shape != shape or (lambdas < 0).any() or (lambdas > 1).any():
        expected = f"{shape[0]} × {shape[1]} values in [0, 1]"
        raise errors.invalid("lambdas", expected, f"shape {lambdas.shape}, from {lambdas.min():g} to {lambdas.max():g}")
    return A, lambdas


def _stochastic(A: np.ndarray) -> np.ndarray:
    errors.stochastic_kernel("A", A.reshape(-1, *A.shape[-2:]))
    return A

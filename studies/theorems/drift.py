"""Drift: which way a change moves influence, at every cutoff at once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from posbias import errors
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.masks import Mask
from posbias.rollout.order import prefix_masses


def recency_drift(before: Float[np.ndarray, "... n"], after: Float[np.ndarray, "... n"]) -> float:
    """Return min over cutoffs k of F_k(before) - F_k(after): at least 0 if every prefix mass falls or stays.

    Parameters
    ----------
    before, after
        Profiles, or arrays of profiles of one shape (rows of a kernel, depths); the smallest fall of all is returned.

    Raises
    ------
    ValueError
        If the shapes differ.

    Source: the order of the residual-aware paper, appendix A.1; a *primacy drift* has the arguments exchanged.

    >>> early, late = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    >>> recency_drift(early, late), recency_drift(late, early)
    (0.0, -0.25)
    """
    if before.shape != after.shape:
        raise errors.invalid("before, after", "profiles of one shape", f"{before.shape} and {after.shape}")
    return float((prefix_masses(before) - prefix_masses(after)).min())


def case_drifts(
    before: Float[np.ndarray, "cases *more"], after: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "cases"]:
    """Return, for each case, the smallest fall of a prefix mass: negative where the drift is not towards recency.

    Parameters
    ----------
    before, after
        Arrays of profiles of one shape; the first axis counts cases, the last positions.

    Raises
    ------
    ValueError
        If the shapes differ.

    Source: :func:`recency_drift`, case by case.

    >>> early, late = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    >>> case_drifts(np.stack([early, late]), np.stack([late, early]))
    array([ 0.  , -0.25])
    """
    if before.shape != after.shape:
        raise errors.invalid("before, after", "profiles of one shape", f"{before.shape} and {after.shape}")
    return (prefix_masses(before) - prefix_masses(after)).reshape(len(before), -1).min(axis=1)


def mean_kernel(
    logits: Float[np.ndarray, "*over n n"], mask: Mask | Bool[np.ndarray, "n n"]
) -> Float[np.ndarray, "n n"]:
    """Return the average attention kernel of one layer over inputs and heads.

    Parameters
    ----------
    logits
        Logits (…, query, key); every leading axis is averaged over, after the softmax.
    mask
        Allowed keys, as in :func:`posbias.rollout.kernels.attention_kernel`.

    Source: residual-aware paper, section 3 (kernels are averages over a data set).

    >>> from posbias.rollout import masks
    >>> two_inputs = np.array([[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [np.log(3), 0.0]]])
    >>> mean_kernel(two_inputs, masks.causal())
    array([[1.   , 0.   ],
           [0.625, 0.375]])
    """
    kernels = attention_kernel(logits, mask)
    return kernels.reshape(-1, *kernels.shape[-2:]).mean(axis=0)

"""Profiles as mixtures over the number of hops: rows of powers of one kernel, and weights to mix them with.

Where all layers share a kernel A, the rollout is Σ_k ω_k e A^k with ω_k the probability of k hops. Rows e A^k are
computed once; a schedule, its clock, and everything in between are then different weights for the same rows.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.clock import clock_error_bound, hop_distribution, poisson_distribution
from posbias.rollout.influence import influence_history
from posbias.rollout.structured import StructuredKernels, structured_kernels


def hop_rows(kernels: StructuredKernels, hops: int, n: int) -> Float[np.ndarray, "rows n"]:
    """Return the last rows of A^0, A^1, …, A^hops for a kernel A that all layers share.

    Parameters
    ----------
    kernels
        The same in every layer; how many layers does not matter.
    hops
        The highest power, at least 1.
    n
        Tokens.

    Raises
    ------
    ValueError
        If the layers' kernels differ.

    >>> hop_rows(structured_kernels(1), 1, 2)
    array([[0. , 1. ],
           [0.5, 0.5]])
    """
    if not kernels.same_in_every_layer:
        raise errors.invalid("kernels", "one kernel for all layers", f"{kernels.T} layers that differ")
    hops = errors.positive_integer("hops", hops)
    return influence_history(dataclasses.replace(kernels, T=hops), np.ones(hops), n)


def mix_hops(rows: Float[np.ndarray, "rows n"], weights: Float[np.ndarray, "hops"]) -> Float[np.ndarray, "n"]:
    """Return Σ_k ω_k rows[k]; where there are more weights than rows, or fewer, the others count as 0.

    >>> mix_hops(np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([0.5, 0.5]))
    array([0.25, 0.75])
    """
    return weights[: len(rows)] @ rows[: len(weights)]


def partly_exact_hops(lambda_: Numbers, exact: int) -> tuple[Float[np.ndarray, "hops"], float]:
    """Return the weights of the numbers of hops if only the largest λ_t are treated exactly, and their error.

    Parameters
    ----------
    lambda_
        Mixing coefficients in any order.
    exact
        How many of the largest keep their own 0-or-1 hop; all others run by the clock, as a Poisson number.

    Returns
    -------
    tuple
        The weights ω_k, and (1 - e^{-τ'})/τ' · Σ λ_t² over the others: a bound on their total variation from
        the weights of the schedule.

    Raises
    ------
    ValueError
        If ``exact`` is not between 0 and the number of layers.

    >>> weights, bound = partly_exact_hops([0.5, 0.5], 2)
    >>> weights.tolist(), bound
    ([0.25, 0.5, 0.25], 0.0)
    """
    falling = np.sort(errors.mixing_coefficients("lambda_", lambda_))[::-1]
    if not 0 <= exact <= falling.size:
        raise errors.invalid("exact", f"0 to {falling.size} layers", exact)
    others = falling[exact:]
    weights = np.convolve(hop_distribution(falling[:exact]), poisson_distribution(others.sum()))
    return weights, clock_error_bound(others)


def mean_kernel(kernels: StructuredKernels, lambda_: Numbers) -> StructuredKernels:
    """Return the one kernel Σ_t λ_t A_t / Σ_t λ_t: a layer whose heads are the heads of all layers.

    It is what the clock exp Σ_t λ_t (A_t - I) knows of kernels that differ between layers.

    >>> two = structured_kernels(2, slope=[[0.1], [0.3]])
    >>> mean_kernel(two, [0.25, 0.75]).weights.tolist()
    [[0.25, 0.75]]
    """
    lambda_ = errors.mixing_coefficients("lambda_", lambda_)
    if lambda_.size != kernels.T or not lambda_.any():
        raise errors.invalid("lambda_", f"{kernels.T} values, not all 0", lambda_.tolist())
    parts = (kernels.slopes, kernels.diagonal, kernels.weights)
    slopes, diagonal, weights = (np.broadcast_to(x, (kernels.T, kernels.H)) for x in parts)
    return structured_kernels(
        1,
        slope=slopes.ravel(),
        diagonal=diagonal.ravel(),
        weights=(lambda_[:, None] * weights).ravel(),
        mask=kernels.mask,
    )

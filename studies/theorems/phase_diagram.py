"""Phase diagram of the trough: its depth and place over total mixing and slopes."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout import schedules
from posbias.rollout.clock import hop_distribution
from posbias.rollout.influence import influence_history
from posbias.rollout.profiles import u_shape
from posbias.rollout.structured import structured_kernels


def trough_map(
    n: int, T: int, tau: Numbers, slopes: Float[np.ndarray, "S H"]
) -> tuple[Float[np.ndarray, "S taus"], Float[np.ndarray, "S taus"]]:
    """Return depth and location of the trough for every pair of slopes and total mixing.

    Parameters
    ----------
    n, T
        Tokens, at least 3, and layers.
    tau
        Values of the total mixing Σ_t λ_t, in [0, T]; it is spread evenly over the layers.
    slopes
        ALiBi slopes of H heads, logits per token, > 0; a row for each line of the map.

    Raises
    ------
    ValueError
        If a total mixing is not in [0, T].

    Notes
    -----
    All layers share a kernel, so that the last rows of its powers are computed once for each row of slopes, and only
    their weights, the distribution of the number of hops, change with the mixing.

    Source: ours; depth and location are those of :func:`posbias.rollout.profiles.u_shape`. Where the trough ends in
    the limit of many tokens is known: :func:`studies.clock.trough.critical_mixing`.

    >>> depth, location = trough_map(64, 12, [1.2], np.array([[0.5, 0.25, 0.125, 0.0625]]))
    >>> depth.shape, bool(depth[0, 0] > 0)
    ((1, 1), True)
    """
    T, totals = errors.positive_integer("T", T), errors.finite_array("tau", tau, ndim=(1,))
    if (totals < 0).any() or (totals > T).any():
        raise errors.invalid("tau", f"total mixing from 0 to T = {T}", f"{totals.min():g} to {totals.max():g}")
    weights = np.zeros((totals.size, T + 1))
    for row, total in zip(weights, totals, strict=True):
        omega = hop_distribution(schedules.constant(T, total / T))
        row[: omega.size] = omega
    depth, location = np.empty((2, len(slopes), totals.size))
    for line, own in enumerate(slopes):
        powers = influence_history(structured_kernels(T, slope=own), np.ones(T), n)
        shapes = [u_shape(omega @ powers) for omega in weights]
        depth[line] = [shape.depth for shape in shapes]
        location[line] = [shape.location for shape in shapes]
    return depth, location

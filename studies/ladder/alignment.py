"""Between the law at birth and the aligned sum: one number for how far what meets at a sum points the same way.

Going back through a layer, gradients meet twice: what comes around the step after the attention (an MLP) with what
comes through it, and what comes around the attention with what comes through it. If two such vectors u and w meet at a
cosine ρ, whatever their positions, their Gram matrices add up to

    G_u + G_w + ρ (a bᵀ + b aᵀ),     a_j = ‖u_j‖, b_j = ‖w_j‖.

ρ = 0 is the law at birth. At ρ = 1 the Gram matrix has rank one and its diagonal holds the squares of sums of sizes:
the aligned sum. What is mixed inside a branch goes the same way, from the heads' own kernels and the step's own Gram
factor (ρ = 0) to one kernel and to sizes (ρ = 1), in proportion.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.cells import CellSteps
from posbias.rollout.influence import Kernels
from posbias.rollout.two_sided import congruence, pushed
from posbias.rollout.untrained import Network, checked_network, unit


def coherent_profile(
    kernels: Kernels,
    gains: Numbers,
    coherence: Numbers,
    n: int | None = None,
    *,
    scales: Numbers | None = None,
    outputs: Numbers | None = None,
    steps: Numbers | CellSteps | None = None,
    parallel: Numbers = 0,
    shares: Numbers | None = None,
    row: int = -1,
) -> Float[np.ndarray, "n"]:
    """Return the profile if what meets at a sum has cosine ρ: the law at birth at 0, the aligned sum at 1.

    Parameters
    ----------
    kernels, gains, n, scales, outputs, steps, parallel, row
        As for :func:`~posbias.rollout.untrained.birth_profile`.
    coherence
        ρ in [-1, 1]: one number for every sum, or (T, 2) of them, attention first, step second. What is below 0 leaves
        the branches' insides as they are at 0.
    shares
        What comes through each branch, Σ_j ‖w_j‖² / Σ_j (‖u_j‖² + ‖w_j‖²), (T, 2) in [0, 1), in place of what the
        gains say of it; where in a prompt it comes out is left to kernels, denominators and steps.

    Raises
    ------
    ValueError
        As ``birth_profile`` does, if ρ is outside [-1, 1], and for shares outside [0, 1).

    Source: ours.

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> coherent_profile(A, [1.0], 1.0)
    array([0.25, 0.75])
    >>> p = coherent_profile(A, [1.0], 0.0)
    >>> p / p[0] - np.array([1.0, np.sqrt(1.25) / 0.5])
    array([0., 0.])
    """
    net = checked_network(kernels, gains, n, scales=scales, outputs=outputs, steps=steps, parallel=parallel, row=row)
    rho = _pairs("coherence", coherence, net.T, -1.0, 1.0)
    return _back(net, rho, None if shares is None else _pairs("shares", shares, net.T, 0.0, 1 - 1e-9))[0]


def branch_shares(
    kernels: Kernels,
    gains: Numbers,
    n: int | None = None,
    *,
    scales: Numbers | None = None,
    outputs: Numbers | None = None,
    steps: Numbers | CellSteps | None = None,
    parallel: Numbers = 0,
    row: int = -1,
) -> Float[np.ndarray, "T 2"]:
    """Return what the law at birth expects to come through each branch, attention first, step second.

    A share as :func:`coherent_profile` takes it; arguments and errors are those of
    :func:`~posbias.rollout.untrained.birth_profile`.

    >>> branch_shares(np.array([[1.0, 0.0], [0.5, 0.5]]), [1.0]).round(3).tolist()
    [[0.333, 0.0]]
    """
    net = checked_network(kernels, gains, n, scales=scales, outputs=outputs, steps=steps, parallel=parallel, row=row)
    return _back(net, np.zeros((net.T, 2)), None)[1]


def _back(net: Network, rho: np.ndarray, shares: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the profile and the shares that came through the branches."""
    found = np.zeros((net.T, 2))
    G = net.start()
    for t in reversed(range(net.T)):
        attention, step = rho[t]
        above = G
        if net.steps is not None:
            back = _sized(G * _factor(net.steps[t], max(step, 0.0)), G, None if shares is None else shares[t, 1])
            found[t, 1] = np.trace(back) / np.trace(G + back)
            G = _met(G, back, step)
        sent = (above if net.parallel[t] else G) * np.outer(net.outputs[t], net.outputs[t])
        back = _sent_back(net, t, sent, max(attention, 0.0)) * np.outer(net.scales[t], net.scales[t])
        back = _sized(back, G, None if shares is None else shares[t, 0])
        found[t, 0] = np.trace(back) / np.trace(G + back)
        G = _met(G, back, attention)
        G /= np.trace(G)
    return unit(_lengths(G)), found


def _sized(W: np.ndarray, U: np.ndarray, share: float | None) -> np.ndarray:
    """Return W, or W such that it has a share of both traces."""
    size = np.trace(W)
    if share is None or size <= 0:
        return W
    return np.asarray(W * (share / (1 - share) * np.trace(U) / size))


def _pairs(field: str, values: Numbers, T: int, least: float, most: float) -> Float[np.ndarray, "T 2"]:
    """Return a number for each layer's two sums, or raise ValueError."""
    x = errors.finite_array(field, values, ndim=(0, 2))
    if x.shape not in ((), (T, 2)) or (x < least).any() or (x > most).any():
        expected = f"one number or ({T}, 2) in [{least:g}, {most:g}]"
        raise errors.invalid(field, expected, f"shape {x.shape} or values outside")
    return np.broadcast_to(x, (T, 2))


def _met(U: np.ndarray, W: np.ndarray, rho: float) -> np.ndarray:
    """Return the Gram matrix of sums of two vectors of cosine ρ at every position."""
    cross = rho * np.outer(_lengths(U), _lengths(W))
    return np.asarray(U + W + cross + cross.T)


def _lengths(G: np.ndarray) -> np.ndarray:
    """Return the vectors' lengths; below ρ = 0 no vectors need have such cosines, and what would be negative is 0."""
    return np.asarray(np.sqrt(np.maximum(np.diag(G), 0)))


def _factor(K: np.ndarray, rho: float) -> np.ndarray:
    """Return a step's Gram factor between its own and that of its sizes."""
    size = _lengths(K)
    return np.asarray((1 - rho) * K + rho * np.outer(size, size))


def _sent_back(net: Network, t: int, X: np.ndarray, rho: float) -> np.ndarray:
    """Return what heads of independent maps make of X, and what one map of their mean kernel does, in proportion."""
    own = congruence(net.kernels, t, X, net.gains[t] ** 2)
    if rho == 0:
        return own
    weights = net.as_one_branch(t)
    return np.asarray((1 - rho) * own + rho * pushed(net.kernels, t, pushed(net.kernels, t, X, weights).T, weights).T)

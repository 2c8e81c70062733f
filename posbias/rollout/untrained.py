"""The law at birth: what an untrained network listens to, from its kernels, gains, denominators and gates.

A rollout adds sizes. Before training the value maps of the layers are independent and of mean zero, so that in the
mean of the squared gradient contributions of different sets of layers do not meet: they are added as squares, while
all paths over positions that use one set of layers share one product of matrices and are added as sizes,

    E‖g_j‖² ∝ Σ_S (Π_{t ∈ S} c_t²) ((Π_{t ∈ S} A_t)_{nj})²,

the product taken from the last layer of S to the first. The sum over 2^T sets is a recursion on the Gram matrix G of
the gradients at all positions, from the last layer to the first: an attention adds Σ_h c_h² A_hᵀ G A_h, a step after it
(an MLP) multiplies G entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.biased import BiasedKernels
from posbias.rollout.cells import CellKernels, CellSteps
from posbias.rollout.clock import hop_distribution
from posbias.rollout.gains import KnotSteps
from posbias.rollout.influence import Kernels
from posbias.rollout.structured import StructuredKernels
from posbias.rollout.two_sided import congruence, pushed

Law = StructuredKernels | BiasedKernels | np.ndarray
"""Kernels that the law is computed with: those of whole tokens."""

LARGEST = 1e40
"""Gains, scales and steps up to this size leave every product of a layer finite."""
ROUNDING = 1e-9
"""Share of all squares by which one may come out below 0."""
MATRICES = 6
"""Matrices over pairs of positions that are held at a time."""
Steps = CellSteps | KnotSteps
"""Gram factors of steps that are written out a layer at a time."""


def birth_profile(
    kernels: Kernels,
    gains: Numbers,
    n: int | None = None,
    *,
    scales: Numbers | None = None,
    outputs: Numbers | None = None,
    steps: Numbers | Steps | None = None,
    parallel: Numbers = 0,
    row: int = -1,
) -> Float[np.ndarray, "n"]:
    """Return the root mean square of ‖∂x_row / ∂x_j‖ over independent value maps of mean zero, normalised to sum 1.

    O(T n) time and O(n) memory where one structured kernel serves all heads and layers and only gains are given,
    O(T H n²) and O(n²) for other structured causal kernels, O(T H n³) and O(n²) for arrays.

    Parameters
    ----------
    kernels
        Structured (then ``n`` is needed), or arrays (n, n), (T, n, n) or (T, H, n, n), first layer first.
    gains
        c ≥ 0: what a branch makes of a random gradient, ‖W‖_F/√d of its whole map. T values, or (T, H). One value for
        a layer of several heads is split over them as their weights, c_h² = w_h c². With a residual mixing λ,
        c = λ/(1 - λ).
    n
        Tokens; taken from arrays.
    scales
        Factor of the branch's input at each key, (T, n): 1/σ_j of the norm before it. 1 unless given.
    outputs
        Factor of the branch's output at each query, (T, n): that of a norm after it. 1 unless given.
    steps
        Gram factor K of the step after each attention, (T, n, n), in cells or by knots: G ← G ∘ (1 + K). None for none.
    parallel
        Whether the step reads what the attention reads, one value or T: then the two are added.
    row
        The position whose sources are asked for.

    Raises
    ------
    ValueError
        If shapes do not agree, a kernel is not row-stochastic, a number is negative, not finite or above
        :data:`LARGEST`, or steps are no Gram factors, so that a mean square comes out below 0.

    Source: ours; derived in the chapter on the law at birth.

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> p = birth_profile(A, [1.0])  # last token: 1 around the layer and 1/2 through it, as squares
    >>> p / p[0] - np.array([1.0, np.sqrt(1.25) / 0.5])
    array([0., 0.])
    """
    net = checked_network(kernels, gains, n, scales=scales, outputs=outputs, steps=steps, parallel=parallel, row=row)
    plain = steps is None and scales is None and outputs is None
    if plain and not isinstance(net.kernels, np.ndarray) and _is_one_kernel(net.kernels):
        return _by_powers(net.kernels, net.gains, net.n, net.row)
    errors.fits("n", net.n, MATRICES * 8 * net.n**2)
    G = net.start()
    for t in reversed(range(net.T)):
        step = 0.0 if net.steps is None else G * net.steps[t]
        above = G if net.parallel[t] else G + step
        added = congruence(net.kernels, t, above * np.outer(net.outputs[t], net.outputs[t]), net.gains[t] ** 2)
        G = above + added * np.outer(net.scales[t], net.scales[t])
        if net.parallel[t]:
            G += step
        squares = np.diag(G)
        if squares.min() < -ROUNDING * squares.sum():
            received = f"a mean square of {squares.min():.3g} after layer {t}"
            raise errors.invalid("steps", "Gram factors, which are positive semidefinite", received)
        G /= squares.sum()  # a factor for all positions changes nothing, and nothing overflows
    return unit(np.sqrt(np.diag(G).clip(0)))


def aligned_profile(
    kernels: Kernels,
    gains: Numbers,
    n: int | None = None,
    *,
    scales: Numbers | None = None,
    outputs: Numbers | None = None,
    steps: Numbers | Steps | None = None,
    parallel: Numbers = 0,
    row: int = -1,
) -> Float[np.ndarray, "n"]:
    """Return the profile that the same numbers give if all contributions point the same way: sizes are added.

    A layer's heads are one branch of gain (Σ c_h²)^½ whose kernel is their mean with weights c_h². With gains alone
    this is the rollout with λ = c/(1 + c).

    Parameters
    ----------
    kernels, gains, n, scales, outputs, steps, parallel, row
        As in :func:`birth_profile`; of a step only the sizes, the roots of its diagonal, count.

    Raises
    ------
    ValueError
        As :func:`birth_profile` does.

    Source: ours; the other limit of the law at birth.

    >>> aligned_profile(np.array([[1.0, 0.0], [0.5, 0.5]]), [1.0])
    array([0.25, 0.75])
    """
    net = checked_network(kernels, gains, n, scales=scales, outputs=outputs, steps=steps, parallel=parallel, row=row)
    v = np.zeros(net.n)
    v[net.row] = 1.0
    for t in reversed(range(net.T)):
        step = 0.0 if net.steps is None else v * np.sqrt(np.diag(net.steps[t]))
        above = v if net.parallel[t] else v + step
        v = above + pushed(net.kernels, t, above * net.outputs[t], net.as_one_branch(t)) * net.scales[t]
        if net.parallel[t]:
            v = v + step
        v = unit(v)
    return v


@dataclass(frozen=True)
class Network:
    """Hold the checked numbers of a network whose layers are sums; :func:`checked_network` makes one.

    Parameters
    ----------
    kernels
        Structured, or (T, H, n, n).
    n
        Tokens.
    gains, scales, outputs, steps, parallel, row
        As :func:`birth_profile` has them, each written out for all layers.
    """

    kernels: Law
    n: int
    gains: Float[np.ndarray, "T H"]
    scales: Float[np.ndarray, "T n"]
    outputs: Float[np.ndarray, "T n"]
    steps: Float[np.ndarray, "T n n"] | Steps | None
    parallel: Bool[np.ndarray, "T"]
    row: int

    @property
    def T(self) -> int:
        """Number of layers."""
        return len(self.gains)

    def start(self) -> Float[np.ndarray, "n n"]:
        """Return the Gram matrix above the last layer: all of the gradient at the row asked for."""
        G = np.zeros((self.n, self.n))
        G[self.row, self.row] = 1.0
        return G

    def as_one_branch(self, t: int) -> Float[np.ndarray, "H"]:
        """Return heads' weights in the one kernel of gain (Σ c_h²)^½ that layer ``t`` is to aligned gradients."""
        return np.asarray(self.gains[t] ** 2 / max(float(np.linalg.norm(self.gains[t])), np.finfo(float).tiny))


def checked_network(
    kernels: Kernels,
    gains: Numbers,
    n: int | None = None,
    *,
    scales: Numbers | None = None,
    outputs: Numbers | None = None,
    steps: Numbers | Steps | None = None,
    parallel: Numbers = 0,
    row: int = -1,
) -> Network:
    """Return the numbers of a network with their shapes checked; arguments and errors are :func:`birth_profile`'s."""
    kernels, n, gain = _sizes(kernels, gains, n)
    T = len(gain)
    return Network(
        kernels,
        n,
        gain,
        _factors("scales", scales, T, n),
        _factors("outputs", outputs, T, n),
        _steps(steps, T, n),
        _layers("parallel", parallel, T),
        errors.index("row", row, n),
    )


def unit(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return numbers over their sum."""
    return np.asarray(x / x.sum())


def _sizes(kernels: Kernels, gains: Numbers, n: int | None) -> tuple[Law, int, np.ndarray]:
    """Return kernels with heads, the number of tokens and the gains (T, H), or raise ValueError."""
    gain = errors.finite_array("gains", gains, ndim=(1, 2))
    if (gain < 0).any() or not gain.size or gain.max() > LARGEST:
        raise errors.invalid("gains", f"numbers from 0 to {LARGEST:g}, one or more", _described(gain))
    T = len(gain)
    if isinstance(kernels, CellKernels):
        raise errors.invalid("kernels", "kernels of tokens, whole or structured", "kernels of cells")
    if isinstance(kernels, StructuredKernels | BiasedKernels):
        if n is None:
            raise errors.invalid("n", "the number of tokens, which structured kernels do not have", None)
        n, H = errors.positive_integer("n", n), kernels.H
        if kernels.T != T:
            raise errors.invalid("gains", f"{kernels.T} layers", T)
        shares = np.broadcast_to(kernels.weights, (T, H))
    else:
        kernels = errors.finite_array("kernels", kernels, ndim=(2, 3, 4))
        errors.stochastic_kernel("kernels", kernels.reshape(-1, *kernels.shape[-2:]))
        if kernels.ndim > 2 and len(kernels) != T:
            raise errors.invalid("kernels", f"(n, n), ({T}, n, n) or ({T}, heads, n, n)", f"shape {kernels.shape}")
        size, H = kernels.shape[-1], kernels.shape[1] if kernels.ndim == 4 else 1
        kernels = np.broadcast_to(kernels if kernels.ndim == 4 else kernels[..., None, :, :], (T, H, size, size))
        if n not in (None, size):
            raise errors.invalid("n", f"{size}, the kernels' own", n)
        n, shares = size, np.full((T, H), 1 / H)
    if gain.ndim == 1:
        gain = gain[:, None] * np.sqrt(shares)
    if gain.shape != (T, H):
        raise errors.invalid("gains", f"({T},) or ({T}, {H})", f"shape {gain.shape}")
    return kernels, n, gain


def _described(x: np.ndarray) -> str:
    """Return the shape of an array, with its least and its largest number."""
    return f"shape {x.shape}" + (f", {x.min():.3g} to {x.max():.3g}" if x.size else "")


def _layers(field: str, values: Numbers, T: int) -> np.ndarray:
    """Return T truth values from one or T numbers, or raise ValueError."""
    x = errors.finite_array(field, values, ndim=(0, 1))
    if x.ndim and len(x) != T:
        raise errors.invalid(field, f"one value or {T}", len(x))
    return np.broadcast_to(x, (T,)) > 0


def _factors(field: str, values: Numbers | None, T: int, n: int) -> np.ndarray:
    """Return factors (T, n) of at least 0, 1 for None, or raise ValueError."""
    if values is None:
        return np.ones((T, n))
    x = errors.finite_array(field, values, ndim=(2,))
    if x.shape != (T, n) or (x < 0).any() or x.max() > LARGEST:
        raise errors.invalid(field, f"({T}, {n}) numbers from 0 to {LARGEST:g}", _described(x))
    return x


def _steps(values: Numbers | Steps | None, T: int, n: int) -> np.ndarray | Steps | None:
    """Return Gram factors (T, n, n), None for none, or raise ValueError."""
    if values is None:
        return None
    if isinstance(values, CellSteps | KnotSteps):
        if len(values) != T or values.diagonals.shape != (T, n) or (values.diagonals < 0).any():
            expected = f"{T} layers of {n} tokens, none below 0 on diagonals"
            raise errors.invalid("steps", expected, _described(values.diagonals))
        return values
    K = errors.finite_array("steps", values, ndim=(3,))
    if K.shape != (T, n, n) or (np.diagonal(K, axis1=1, axis2=2) < 0).any() or np.abs(K).max() > LARGEST:
        expected = f"({T}, {n}, {n}) numbers of size {LARGEST:g} or less, none below 0 on diagonals"
        raise errors.invalid("steps", expected, _described(K))
    return K


def _is_one_kernel(kernels: StructuredKernels | BiasedKernels) -> bool:
    """Tell whether one kernel serves all heads and layers."""
    if isinstance(kernels, BiasedKernels):
        return kernels.same_in_every_layer and len(kernels.heads(0)) == 1
    return kernels.same_in_every_layer and all(bool((x == x[0, 0]).all()) for x in (kernels.slopes, kernels.diagonal))


def _by_powers(kernels: StructuredKernels | BiasedKernels, gain: np.ndarray, n: int, row: int) -> np.ndarray:
    """Return the root of Σ_k e_k(c_1², …, c_T²) [(A^k)_{row, j}]², over its sum.

    e_k over Π(1 + c_t²) is the distribution of the number of hops with odds c_t².
    """
    odds = (gain**2).sum(1)
    squares, v = np.zeros(n), np.zeros(n)
    v[row] = 1.0
    for share in hop_distribution(odds / (1 + odds)):
        squares += share * v**2
        v = kernels.pull(v, 0)
    return unit(np.sqrt(squares))

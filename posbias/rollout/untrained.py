"""The law of untrained networks: what an untrained network listens to, from its kernels, gains, denominators and gates.

A rollout adds sizes. Before training the value maps of the layers are independent and of mean zero, so that in the
mean of the squared gradient contributions of different sets of layers do not meet: they are added as squares, while
all paths over positions that use one set of layers share one product of matrices and are added as sizes,

    E‖g_j‖² ∝ Σ_S (Π_{t ∈ S} c_t²) ((Π_{t ∈ S} A_t)_{nj})²,

the product taken from the last layer of S to the first. The sum over 2^T sets is a recursion on the Gram matrix G of
the gradients at all positions, from the last layer to the first: an attention adds Σ_h c_h² A_hᵀ G A_h, a step after it
(an MLP) multiplies G entry by entry.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.clock import hop_distribution
from posbias.rollout.influence import Kernels
from posbias.rollout.layers import Layers, WrittenOut

LARGEST = 1e40
"""Gains, scales and steps up to this size leave every product of a layer finite."""
ROUNDING = 1e-9
"""Share of all squares by which one may come out below 0."""


def untrained_profile(
    kernels: Kernels,
    gains: Numbers,
    n: int | None = None,
    *,
    scales: Numbers | None = None,
    outputs: Numbers | None = None,
    steps: Numbers | None = None,
    parallel: Numbers = 0,
) -> Float[np.ndarray, "n"]:
    """Return the root mean square of ‖∂x_n / ∂x_j‖ over independent value maps of mean zero, normalised to sum 1.

    O(T n) time and O(n) memory where one structured kernel serves all heads and layers and only gains are given, else
    O(n²) memory and the time of n rows through every head's kernel: O(T H n²) with ALiBi, O(T H n³) for arrays.

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
        Gram factor K of the step after each attention, (T, n, n): G ← G ∘ (1 + K). None for none.
    parallel
        Whether the step reads what the attention reads, one value or T: then the two are added.

    Source: ours; derived in the chapter on the law of untrained networks.

    >>> A = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> p = untrained_profile(A, [1.0])  # last token: 1 around the layer and 1/2 through it, as squares
    >>> p / p[0] - np.array([1.0, np.sqrt(1.25) / 0.5])
    array([0., 0.])
    """
    net = checked_network(kernels, gains, n, scales=scales, outputs=outputs, steps=steps, parallel=parallel)
    plain = steps is None and scales is None and outputs is None
    if plain and net.kernels.same_in_every_layer and len(net.kernels.heads(0, net.n)) == 1:
        return _by_powers(net)
    G = net.start()
    for t in reversed(range(net.T)):
        step = 0.0 if net.steps is None else G * net.steps[t]
        above = G if net.parallel[t] else G + step
        added = two_sided(net.kernels, t, above * np.outer(net.outputs[t], net.outputs[t]), net.gains[t] ** 2)
        G = above + added * np.outer(net.scales[t], net.scales[t])
        if net.parallel[t]:
            G += step
        squares = np.diag(G)
        if squares.min() < -ROUNDING * squares.sum():
            received = f"a mean square of {squares.min():.3g} after layer {t}"
            raise errors.invalid("steps", "Gram factors, which are positive semidefinite", received)
        G /= squares.sum()  # a factor for all positions changes nothing, and nothing overflows
    p = np.sqrt(np.diag(G).clip(0))
    return np.asarray(p / p.sum())


def aligned_profile(kernels: Kernels, gains: Numbers, n: int | None = None, **network: Any) -> Float[np.ndarray, "n"]:
    """Return the profile that the same numbers give if all contributions point the same way: sizes are added.

    Arguments and errors as in :func:`untrained_profile`; of a step only the roots of its diagonal count. A layer's
    heads are one branch of gain (Σ c_h²)^½ whose kernel is their mean with weights c_h². With gains alone this is the
    rollout with λ = c/(1 + c).

    Source: ours; the other limit of the law of untrained networks.

    >>> aligned_profile(np.array([[1.0, 0.0], [0.5, 0.5]]), [1.0])
    array([0.25, 0.75])
    """
    net = checked_network(kernels, gains, n, **network)
    v = np.zeros(net.n)
    v[-1] = 1.0
    for t in reversed(range(net.T)):
        A = net.kernels.kernel(t, net.n, net.as_one_branch(t))
        step = 0.0 if net.steps is None else v * np.sqrt(np.diag(net.steps[t]))
        above = v if net.parallel[t] else v + step
        v = above + A.rmatvec(above * net.outputs[t]) * net.scales[t]
        if net.parallel[t]:
            v = v + step
        v = np.asarray(v / v.sum())
    return v


@dataclass(frozen=True)
class Network:
    """Hold the checked numbers of a network whose layers are sums; :func:`checked_network` makes one."""

    kernels: Layers
    n: int
    gains: Float[np.ndarray, "T H"]
    scales: Float[np.ndarray, "T n"]
    outputs: Float[np.ndarray, "T n"]
    steps: Float[np.ndarray, "T n n"] | None
    parallel: Bool[np.ndarray, "T"]

    @property
    def T(self) -> int:
        """Number of layers."""
        return len(self.gains)

    def start(self) -> Float[np.ndarray, "n n"]:
        """Return the Gram matrix above the last layer: all of the gradient at the last position."""
        return np.diag(np.eye(self.n)[-1])

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
    steps: Numbers | None = None,
    parallel: Numbers = 0,
) -> Network:
    """Return the numbers of a network, their shapes checked; arguments and errors as in :func:`untrained_profile`."""
    layers = kernels if isinstance(kernels, Layers) else WrittenOut(kernels, ndim=(2, 3, 4))
    n, H, T = layers.tokens(n), layers.H, layers.T or max(len(np.atleast_1d(gains)), 1)
    gain = _factors("gains", gains, (T,), (T, H))
    if gain.ndim == 1:
        gain = gain[:, None] * np.sqrt(np.broadcast_to(layers.weights, (T, H)))
    if steps is not None:
        steps = _factors("steps", steps, (T, n, n))
    before, after = (_factors(*x, (T, n)) for x in (("scales", scales), ("outputs", outputs)))
    beside = np.broadcast_to(np.asarray(parallel) > 0, (T,))
    return Network(layers, n, gain, before, after, steps, beside)


def two_sided(kernels: Layers, t: int, X: Float[np.ndarray, "n n"], weights: Numbers) -> Float[np.ndarray, "n n"]:
    """Return Σ_h w_h A_hᵀ X A_h over the heads of layer ``t``; heads whose kernels are equal are taken once.

    >>> A = WrittenOut([[1.0, 0.0], [0.5, 0.5]])
    >>> two_sided(A, 0, np.diag([0.0, 1.0]), [1.0]).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    heads = kernels.heads(t, len(X), np.asarray(weights, dtype=float))
    return np.asarray(sum(w * A.rmatmat(A.rmatmat(X).T).T for A, w in heads))


def _factors(field: str, values: Numbers | None, *shapes: tuple[int, ...]) -> np.ndarray:
    """Return numbers of one of the shapes, 1 for None; factors are at least 0, matrices are so on their diagonals."""
    if values is None:
        return np.ones(shapes[0])
    x = errors.finite_array(field, values, ndim=tuple(map(len, shapes)))
    least = np.diagonal(x, axis1=-2, axis2=-1) if x.ndim == 3 else x
    if x.shape not in shapes or (least < 0).any() or np.abs(x).max() > LARGEST:
        expected = f"{' or '.join(map(str, shapes))} numbers from 0 to {LARGEST:g}, of any sign off diagonals"
        raise errors.invalid(field, expected, f"shape {x.shape}, {x.min(initial=0):.3g} to {x.max(initial=0):.3g}")
    return x


def _by_powers(net: Network) -> Float[np.ndarray, "n"]:
    """Return the root of Σ_k e_k(c_1², …, c_T²) [(A^k)_{n, j}]² of one kernel, over its sum.

    e_k over Π(1 + c_t²) is the distribution of the number of hops with odds c_t².
    """
    odds, A = (net.gains**2).sum(1), net.kernels.kernel(0, net.n)
    squares, v = np.zeros(net.n), np.zeros(net.n)
    v[-1] = 1.0
    for share in hop_distribution(odds / (1 + odds)):
        squares += share * v**2
        v = A.rmatvec(v)
    p = np.sqrt(squares)
    return np.asarray(p / p.sum())

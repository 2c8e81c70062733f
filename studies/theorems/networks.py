"""Attention networks that meet the assumptions of a theorem: runs beside bounds, and outputs as sums over paths.

Heads add their outputs, layer t computes (1 - λ_t) X + λ_t Σ_h A_th X W_th; λ_t = 1 is a network without residual
connections. A path takes one head in every layer, or the residual connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float

from posbias.errors import Numbers
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import position_logits
from posbias.rollout.masks import Mask, causal
from studies.rotation import rope_logits, rotate
from studies.theorems.depth import Values, attention_floor, state_bound


@dataclass(frozen=True)
class NetworkRun:
    """Hold what an attention network did: per layer, its largest state norm, smallest weight, kernel and states."""

    norms: Float[np.ndarray, "T"]  # Largest row norm of the states after each layer
    floors: Float[np.ndarray, "T"]  # Smallest attention weight on an allowed key in each layer
    kernels: Float[np.ndarray, "T n n"]
    states: Float[np.ndarray, "T n d"]  # The states that each layer reads; the first are the input


def run_residual_network(
    X: Float[np.ndarray, "n d"],
    W_qk: Float[np.ndarray, "T d d"],
    W_v: Float[np.ndarray, "T d d"],
    lambda_: Values,
    slope: float = 0.0,
    *,
    mask: Mask | Bool[np.ndarray, "n n"] | None = None,
    theta: Numbers | None = None,
) -> NetworkRun:
    """Run x ← (1 - λ_t) x + λ_t A_t x W_v,t with A_t = softmax(x W_qk xᵀ / √d - slope·distance) on the mask.

    Source: the model of residual-aware paper, sections 3 and 5; with λ = 1 that of Wu et al. 2025, section 3.
    """
    T, (n, d) = len(W_v), X.shape
    mask = causal() if mask is None else mask
    bias, allowed = position_logits(n, slope), mask.matrix(n) if isinstance(mask, Mask) else mask
    norms, floors, kernels, states = np.empty(T), np.empty(T), np.empty((T, n, n)), np.empty((T, n, d))
    for t in range(T):
        states[t] = X
        content = X @ W_qk[t] @ X.T if theta is None else rope_logits(X @ W_qk[t], X, theta)
        A = attention_kernel(content / np.sqrt(d) + bias, allowed)
        X = (1 - lambda_[t]) * X + lambda_[t] * A @ X @ W_v[t]
        norms[t], floors[t], kernels[t] = np.linalg.norm(X, axis=1).max(), A[allowed].min(), A
    return NetworkRun(norms, floors, kernels, states)


def random_states(n: int, d: int, norm: float, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
    """Draw input states of one norm in random directions.

    >>> np.linalg.norm(random_states(3, 4, 2.0, np.random.default_rng(0)), axis=1).round(6).tolist()
    [2.0, 2.0, 2.0]
    """
    X = rng.standard_normal((n, d))
    return X * (norm / np.linalg.norm(X, axis=1, keepdims=True))


def weights_of_norms(norms: Numbers, d: int, rng: np.random.Generator) -> Float[np.ndarray, "*layers d d"]:
    """Draw Gaussian matrices and scale each to its operator norm.

    Source: made here for assumptions 5.1 and 5.2 of the residual-aware paper.

    >>> np.linalg.norm(weights_of_norms([0.5, 2.0], 3, np.random.default_rng(0)), 2, axis=(1, 2)).round(6).tolist()
    [0.5, 2.0]
    """
    target = np.asarray(norms, dtype=float)
    W = rng.standard_normal((*target.shape, d, d))
    return W * (target / np.linalg.norm(W, 2, axis=(-2, -1)))[..., None, None]


@dataclass(frozen=True)
class BoundedWeights:
    """Hold weights that meet assumptions A1 and A2 at every depth; make them with :func:`bounded_weights`."""

    W_q: Float[np.ndarray, "T d d"]
    W_k: Float[np.ndarray, "T d d"]
    W_v: Float[np.ndarray, "T d d"]

    @property
    def W_qk(self) -> Float[np.ndarray, "T d d"]:
        """Return W_Q W_Kᵀ of every layer."""
        return self.W_q @ self.W_k.swapaxes(1, 2)


def bounded_weights(T: int, d: int, norm: float, condition: float, rng: np.random.Generator) -> BoundedWeights:
    """Draw ‖W_Q‖ = ‖W_K‖ = norm and W_V,t = D⁻¹ O_t D with O_t orthogonal and D diagonal, max D / min D = condition.

    Products of the value maps telescope to D⁻¹ (O_1 … O_t) D, whose norm is at most ``condition`` at any depth,
    while single maps may have norms up to ``condition`` as well: bounded products do not need contracting layers.

    Source: Wu et al. 2025, assumptions A1 and A2.

    >>> weights = bounded_weights(50, 4, 0.5, 3.0, np.random.default_rng(0))
    >>> bool(value_product_norms(weights.W_v).max() <= 3), bool(np.linalg.norm(weights.W_v, 2, axis=(1, 2)).max() > 1)
    (True, True)
    """
    W_q, W_k = (
        W * (norm / np.linalg.norm(W, 2, axis=(1, 2)))[:, None, None] for W in rng.standard_normal((2, T, d, d))
    )
    D = np.geomspace(1.0, condition, d)
    O = np.linalg.qr(rng.standard_normal((T, d, d)))[0]  # noqa: E741 - the letter of an orthogonal matrix
    return BoundedWeights(W_q, W_k, O * D / D[:, None])


def value_product_norms(W_v: Float[np.ndarray, "T d d"]) -> Float[np.ndarray, "T"]:
    """Return ‖W_V,1 W_V,2 … W_V,t‖ for every depth t: what assumption A2 bounds.

    >>> value_product_norms(np.array([[[2.0]], [[0.5]]])).tolist()
    [2.0, 1.0]
    """
    product, norms = np.eye(W_v.shape[-1]), np.empty(len(W_v))
    for t, W in enumerate(W_v):
        product = product @ W
        norms[t] = np.linalg.norm(product, 2)
    return norms


def sector_network(
    n: int, pairs: int, T: int, spread: float, strength: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "T d d"], Float[np.ndarray, "T d d"]]:
    """Draw X, W_qk and W_v, d = 2·pairs, such that no pair of features ever turns by more than 2·spread between tokens.

    Means of vectors of a sector stay in it, and the value maps turn each pair of features of all tokens alike: so what
    holds of the input, angles, and norms up to cos(spread), holds in every layer. W_qk is a multiple of the identity.

    Source: made here for the conditions of Wu et al. 2025, lemmas 4.6 and I.1.

    >>> X, W_qk, W_v = sector_network(3, 2, 5, 0.1, 1.0, np.random.default_rng(0))
    >>> states = run_residual_network(X, W_qk, W_v, np.ones(5), theta=[0.1, 0.2]).states.reshape(5, 3, 2, 2)
    >>> angles = np.angle(states[..., 0] + 1j * states[..., 1])
    >>> bool(np.abs(np.angle(np.exp(1j * (angles - angles[:, :1])))).max() <= 0.2)
    True
    """
    d = 2 * pairs
    z = rng.uniform(1.0, 1.2, (n, 1)) / np.sqrt(pairs) * np.exp(1j * rng.uniform(-spread, spread, (n, pairs)))
    X = np.stack([z.real, z.imag], axis=-1).reshape(n, d)
    W_qk = np.eye(d) * np.sqrt(d) * rng.uniform(0.8 * strength, strength, (T, 1, 1))
    W_v, angles = np.zeros((T, d, d)), rng.uniform(0, 2 * np.pi, (T, pairs))
    for pair in range(pairs):
        a, b = 2 * pair, 2 * pair + 1
        W_v[:, a, a] = W_v[:, b, b] = np.cos(angles[:, pair])
        W_v[:, a, b], W_v[:, b, a] = np.sin(angles[:, pair]), -np.sin(angles[:, pair])
    return X, W_qk, W_v


@dataclass(frozen=True)
class Network:
    """Hold a causal attention network with its input."""

    X: Float[np.ndarray, "n d"]  # Input states
    W_qk: Float[np.ndarray, "T d d"]  # Products of query and key maps
    W_v: Float[np.ndarray, "T d d"]
    lambda_: Float[np.ndarray, "T"]
    slope: float = 0.0
    theta: Float[np.ndarray, "pairs"] | None = None  # RoPE's angles, d/2 radians per token; None for no rotation

    def run(self, logit_factor: float = 1.0) -> NetworkRun:
        """Run the network, content logits multiplied by ``logit_factor``."""
        return run_residual_network(
            self.X, logit_factor * self.W_qk, self.W_v, self.lambda_, self.slope, theta=self.theta
        )

    def bounds(
        self,
        state: Callable[[float, np.ndarray, np.ndarray], float] = state_bound,
        floor: Callable[[int, float, float], float] = attention_floor,
    ) -> tuple[Float[np.ndarray, "depths"], Float[np.ndarray, "T"]]:
        """Return C_t, t = 0..T, and the floor ε_t of every layer, from norms of weights alone.

        Source: residual-aware paper, lemma 5.4. RoPE keeps norms, so that its angles do not enter.

        >>> net = opposed_network(2, [1.0, 2.0], [0.5, 0.5], logit=0.5 * np.log(3))
        >>> [x.round(3).tolist() for x in net.bounds()]
        [[1.0, 1.0, 1.5], [0.167, 0.167]]
        """
        (n, d), norms = self.X.shape, np.linalg.norm(self.W_v, 2, axis=(1, 2))
        x0, T = float(np.linalg.norm(self.X, axis=1).max()), len(norms)
        C = np.array([x0, *(state(x0, norms[: t + 1], self.lambda_[: t + 1]) for t in range(T))])
        L = C[:-1] ** 2 * np.linalg.norm(self.W_qk, 2, axis=(1, 2)) / np.sqrt(d)
        return C, np.array([floor(n, float(x), self.slope * (n - 1)) for x in L])


def random_network(
    n: int,
    d: int,
    value_norms: Values,
    lambda_: Values,
    rng: np.random.Generator,
    *,
    logit_norm: float = 1.0,
) -> Network:
    """Draw a network with Gaussian weights of given norms and input states of norm 1.

    >>> net = random_network(3, 2, [1.5], [0.5], np.random.default_rng(0))
    >>> bool(net.run().norms[0] <= net.bounds()[0][1])
    True
    """
    norms = np.asarray(value_norms, dtype=float)
    W_qk, W_v = weights_of_norms([np.full(norms.size, logit_norm), norms], d, rng)
    return Network(random_states(n, d, 1.0, rng), W_qk, W_v, np.asarray(lambda_))


def opposed_network(
    n: int,
    value_norms: Values,
    lambda_: Values,
    *,
    logit: float,
    slope: float = 0.0,
    theta: float | None = None,
) -> Network:
    """Return the network that attains the bounds: the first token points against all others, value maps are a_t I.

    The first token sees itself alone, so that its state is multiplied by 1 + λ_t (a_t - 1). In the first layer the last
    query has the logit -``logit`` for the first key and +``logit`` for all others.

    Source: ours.

    >>> opposed_network(2, [1.0], [1.0], logit=0.5 * np.log(3)).run().floors.round(3).tolist()
    [0.25]
    """
    a, eye = np.asarray(value_norms, dtype=float), np.eye(2)
    X = np.tile(eye[0], (n, 1)) if theta is None else rotate(eye[0], [-theta], n)
    X[0] *= -1
    W_qk = np.tile(logit * np.sqrt(2) * eye, (a.size, 1, 1))
    angles = None if theta is None else np.array([theta])
    return Network(X, W_qk, a[:, None, None] * eye, np.asarray(lambda_), slope, angles)


States = Float[np.ndarray, "n d"]
Maps = Float[np.ndarray, "T H d d"]


def run_heads(
    X: States, W_qk: Maps, W_v: Maps, lambda_: Values, allowed: Bool[np.ndarray, "n n"]
) -> tuple[States, Float[np.ndarray, "T H n n"]]:
    """Run X ← (1 - λ_t) X + λ_t Σ_h A_th X W_th with A_th = softmax(X W_qk,th Xᵀ / √d), and return states and kernels.

    Source: Wu et al. 2025, equation 1, with heads and residual connections.

    >>> X, one = np.array([[1.0], [3.0]]), np.ones((1, 1, 1, 1))
    >>> run_heads(X, 0 * one, one, [1.0], np.tri(2, dtype=bool))[0].ravel().tolist()
    [1.0, 2.0]
    """
    kernels = []
    for W_logits, W_values, mixing in zip(W_qk, W_v, lambda_, strict=True):
        logits = X @ W_logits @ X.T / np.sqrt(X.shape[1])
        top = np.where(allowed, logits, -np.inf).max(axis=-1, keepdims=True)
        weights = np.where(allowed, np.exp(np.where(allowed, logits - top, 0)), 0)
        A = weights / weights.sum(axis=-1, keepdims=True)
        X = (1 - mixing) * X + mixing * (A @ X @ W_values).sum(axis=0)
        kernels.append(A)
    return X, np.stack(kernels)


def path_sum(kernels: Float[np.ndarray, "T H n n"], W_v: Maps, lambda_: Values, X: States) -> States:
    """Return Σ over paths of (kernels along it) X (value maps along it): equation 4, one term for each path.

    A path has weight λ_t for a head of layer t and 1 - λ_t for the residual connection, which changes nothing. There
    are (H + 1)^T paths; those of weight 0 are left out.

    Source: Wu et al. 2025, equation 4, which is the case of one head and λ = 1.

    >>> A = np.array([[[[1.0, 0.0], [0.5, 0.5]]]])
    >>> path_sum(A, np.ones((1, 1, 1, 1)), [0.5], np.array([[1.0], [3.0]])).ravel().tolist()
    [1.0, 2.5]
    """
    T, H, n, _ = kernels.shape
    d, total = X.shape[1], np.zeros_like(X)
    for path in product(range(H + 1), repeat=T):  # H stands for the residual connection
        weight, P, W = 1.0, np.eye(n), np.eye(d)
        for t, head in enumerate(path):
            weight *= 1 - lambda_[t] if head == H else lambda_[t]
            if head < H and weight:
                P, W = kernels[t, head] @ P, W @ W_v[t, head]
        if weight:
            total = total + weight * P @ X @ W
    return total


def product_of_averages(kernels: Float[np.ndarray, "T H n n"], W_v: Maps, lambda_: Values, X: States) -> States:
    """Return P X W: the rollout of the mean kernels times the product of the summed value maps, as if one path did.

    Exact for one head and λ = 1 alone.

    >>> A = np.array([[[[1.0, 0.0], [0.5, 0.5]]]])
    >>> product_of_averages(A, np.ones((1, 1, 1, 1)), [1.0], np.array([[1.0], [3.0]])).ravel().tolist()
    [1.0, 2.0]
    """
    for A, W, mixing in zip(kernels.mean(axis=1), W_v.sum(axis=1), lambda_, strict=True):
        X = ((1 - mixing) * X + mixing * A @ X) @ W
    return X

"""Bounded attention networks: weights that meet the assumptions of a theorem, and what the network then does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import position_logits, rope_logits
from posbias.rollout.masks import Mask, causal


@dataclass(frozen=True)
class NetworkRun:
    """Hold what an attention network did: per layer, its largest state norm, smallest weight, kernel and states.

    Parameters
    ----------
    norms
        Largest row norm of the states after each layer, (T,).
    floors
        Smallest attention weight on an allowed key in each layer, (T,).
    kernels
        The attention kernels, (T, n, n).
    states
        The states that each layer reads, (T, n, d); the first are the input.
    """

    norms: Float[np.ndarray, "T"]
    floors: Float[np.ndarray, "T"]
    kernels: Float[np.ndarray, "T n n"]
    states: Float[np.ndarray, "T n d"]


def run_residual_network(
    X: Float[np.ndarray, "n d"],
    W_qk: Float[np.ndarray, "T d d"],
    W_v: Float[np.ndarray, "T d d"],
    lambda_: Numbers,
    slope: float = 0.0,
    *,
    mask: Mask | Bool[np.ndarray, "n n"] | None = None,
    theta: Numbers | None = None,
) -> NetworkRun:
    """Run x ← (1 - λ_t) x + λ_t A_t x W_v,t with A_t = softmax(x W_qk xᵀ / √d - slope·distance) on the mask.

    Parameters
    ----------
    X
        Input states, one row per token.
    W_qk, W_v
        Products W_Q W_Kᵀ of query and key maps, and value maps, one for each layer.
    lambda_
        Residual mixing, T values in [0, 1]; 1 is a network without residual connections.
    slope
        ALiBi slope, or strength of a decay mask; 0 for none.
    mask
        Causal unless given; a boolean (query, key) matrix for any other graph.
    theta
        RoPE's angles, d/2 radians per token; queries are then x W_qk and keys the states x (W_K = I).

    Source: the model of residual-aware paper, sections 3 and 5; with λ = 1 that of Wu et al. 2025, section 3.
    """
    T, (n, d) = len(W_v), X.shape
    schedule = errors.mixing_coefficients("lambda_", lambda_, T=T)
    mask = causal() if mask is None else mask
    bias, allowed = position_logits(n, slope), mask.matrix(n) if isinstance(mask, Mask) else mask
    norms, floors, kernels, states = np.empty(T), np.empty(T), np.empty((T, n, n)), np.empty((T, n, d))
    for t in range(T):
        states[t] = X
        content = X @ W_qk[t] @ X.T if theta is None else rope_logits(X @ W_qk[t], X, theta)
        A = attention_kernel(content / np.sqrt(d) + bias, allowed)
        X = (1 - schedule[t]) * X + schedule[t] * A @ X @ W_v[t]
        norms[t], floors[t], kernels[t] = np.linalg.norm(X, axis=1).max(), A[allowed].min(), A
    return NetworkRun(norms, floors, kernels, states)


def random_states(n: int, d: int, norm: float, rng: np.random.Generator) -> Float[np.ndarray, "n d"]:
    """Draw input states of one norm in random directions.

    Parameters
    ----------
    n, d
        Tokens, and width of a state.
    norm
        Euclidean norm of every state, > 0.
    rng
        Where the directions come from.

    >>> np.linalg.norm(random_states(3, 4, 2.0, np.random.default_rng(0)), axis=1).round(6).tolist()
    [2.0, 2.0, 2.0]
    """
    if not 0 < norm < np.inf:
        raise errors.invalid("norm", "a finite number above 0", norm)
    X = rng.standard_normal((errors.positive_integer("n", n), errors.positive_integer("d", d)))
    return X * (norm / np.linalg.norm(X, axis=1, keepdims=True))


def weights_of_norms(norms: Numbers, d: int, rng: np.random.Generator) -> Float[np.ndarray, "*layers d d"]:
    """Draw Gaussian matrices and scale each to its operator norm.

    Parameters
    ----------
    norms
        Operator norms, ≥ 0: one for each matrix, of any shape.
    d
        Width of a state.
    rng
        Where the matrices come from.

    Source: made here for assumptions 5.1 and 5.2 of the residual-aware paper.

    >>> np.linalg.norm(weights_of_norms([0.5, 2.0], 3, np.random.default_rng(0)), 2, axis=(1, 2)).round(6).tolist()
    [0.5, 2.0]
    """
    target = errors.finite_array("norms", norms, ndim=(1, 2))
    if (target < 0).any():
        raise errors.invalid("norms", "numbers ≥ 0", float(target.min()))
    W = rng.standard_normal((*target.shape, errors.positive_integer("d", d), d))
    return W * (target / np.linalg.norm(W, 2, axis=(-2, -1)))[..., None, None]


@dataclass(frozen=True)
class BoundedWeights:
    """Hold weights that meet assumptions A1 and A2 at every depth; make them with :func:`bounded_weights`.

    Parameters
    ----------
    W_q, W_k, W_v
        Query, key and value maps, (T, d, d).
    """

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

    Parameters
    ----------
    T, d
        Layers, and width of a state.
    norm
        Operator norm of every query and key map, ≥ 0: the C of assumption A1.
    condition
        Bound of A2 on ‖W_V,1 … W_V,t‖, at least 1; 1 makes the value maps orthogonal.
    rng
        Where the Gaussian matrices come from.

    Raises
    ------
    ValueError
        For a negative norm, a condition below 1, T or d below 1.

    Source: Wu et al. 2025, assumptions A1 and A2.

    >>> weights = bounded_weights(50, 4, 0.5, 3.0, np.random.default_rng(0))
    >>> bool(value_product_norms(weights.W_v).max() <= 3), bool(np.linalg.norm(weights.W_v, 2, axis=(1, 2)).max() > 1)
    (True, True)
    """
    T, d = errors.positive_integer("T", T), errors.positive_integer("d", d)
    if not 0 <= norm < np.inf:
        raise errors.invalid("norm", "a finite number ≥ 0", norm)
    if not 1 <= condition < np.inf:
        raise errors.invalid("condition", "a finite number ≥ 1", condition)
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

    Parameters
    ----------
    n, pairs, T
        Tokens, pairs of features, layers.
    spread
        Largest angle between a pair of features and the direction that all tokens share, in [0, π/4].
    strength
        Largest factor on the inner product in a logit (the factor √d that the network divides by is taken in), > 0.
    rng
        Where angles, norms and rotations come from.

    Notes
    -----
    Means of vectors of a sector stay in it, and the value maps turn each pair of features of all tokens alike: so what
    holds of the input, angles, and norms up to cos(spread), holds in every layer. W_qk is a multiple of the identity.

    Source: made here for the conditions of Wu et al. 2025, lemmas 4.6 and I.1.

    >>> X, W_qk, W_v = sector_network(3, 2, 5, 0.1, 1.0, np.random.default_rng(0))
    >>> states = run_residual_network(X, W_qk, W_v, np.ones(5), theta=[0.1, 0.2]).states.reshape(5, 3, 2, 2)
    >>> angles = np.angle(states[..., 0] + 1j * states[..., 1])
    >>> bool(np.abs(np.angle(np.exp(1j * (angles - angles[:, :1])))).max() <= 0.2)
    True
    """
    d = 2 * errors.positive_integer("pairs", pairs)
    n, T = errors.positive_integer("n", n), errors.positive_integer("T", T)
    if not 0 <= spread <= np.pi / 4:
        raise errors.invalid("spread", "an angle in [0, π/4]", spread)
    if not 0 < strength < np.inf:
        raise errors.invalid("strength", "a finite number above 0", strength)
    z = rng.uniform(1.0, 1.2, (n, 1)) / np.sqrt(pairs) * np.exp(1j * rng.uniform(-spread, spread, (n, pairs)))
    X = np.stack([z.real, z.imag], axis=-1).reshape(n, d)
    W_qk = np.eye(d) * np.sqrt(d) * rng.uniform(0.8 * strength, strength, (T, 1, 1))
    W_v, angles = np.zeros((T, d, d)), rng.uniform(0, 2 * np.pi, (T, pairs))
    for pair in range(pairs):
        a, b = 2 * pair, 2 * pair + 1
        W_v[:, a, a] = W_v[:, b, b] = np.cos(angles[:, pair])
        W_v[:, a, b], W_v[:, b, a] = np.sin(angles[:, pair]), -np.sin(angles[:, pair])
    return X, W_qk, W_v

"""Networks beside the bounds that their weights give: states from above, attention from below, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from posbias.rollout.rotary import rotated
from studies.theorems.bounded_network import NetworkRun, random_states, run_residual_network, weights_of_norms
from studies.theorems.depth import attention_floor, state_bound


@dataclass(frozen=True)
class Network:
    """Hold a causal attention network with its input.

    Parameters
    ----------
    X
        Input states.
    W_qk, W_v
        Products of query and key maps, and value maps, one for each layer.
    lambda_
        Residual mixing, T values in [0, 1].
    slope
        ALiBi slope.
    theta
        RoPE's angles, d/2 radians per token; None for no rotation.
    """

    X: Float[np.ndarray, "n d"]
    W_qk: Float[np.ndarray, "T d d"]
    W_v: Float[np.ndarray, "T d d"]
    lambda_: Float[np.ndarray, "T"]
    slope: float = 0.0
    theta: Float[np.ndarray, "pairs"] | None = None

    def run(self, logit_factor: float = 1.0) -> NetworkRun:
        """Run the network, content logits multiplied by ``logit_factor``."""
        return run_residual_network(
            self.X, logit_factor * self.W_qk, self.W_v, self.lambda_, self.slope, theta=self.theta
        )

    def bounds(
        self,
        state: Callable[[float, Numbers, Numbers], float] = state_bound,
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
    n: int, d: int, value_norms: Numbers, lambda_: Numbers, rng: np.random.Generator, *, logit_norm: float = 1.0
) -> Network:
    """Draw a network with Gaussian weights of given norms and input states of norm 1.

    >>> net = random_network(3, 2, [1.5], [0.5], np.random.default_rng(0))
    >>> bool(net.run().norms[0] <= net.bounds()[0][1])
    True
    """
    norms, schedule = errors.finite_array("value_norms", value_norms, ndim=(1,)), np.asarray(lambda_, dtype=float)
    W_qk, W_v = weights_of_norms([np.full(norms.size, logit_norm), norms], d, rng)
    return Network(random_states(n, d, 1.0, rng), W_qk, W_v, schedule)


def opposed_network(
    n: int, value_norms: Numbers, lambda_: Numbers, *, logit: float, slope: float = 0.0, theta: float | None = None
) -> Network:
    """Return the network that attains the bounds: the first token points against all others, value maps are a_t I.

    The first token sees itself alone, so that its state is multiplied by 1 + λ_t (a_t - 1). In the first layer the last
    query has the logit -``logit`` for the first key and +``logit`` for all others.

    Parameters
    ----------
    n
        Tokens; with a slope the attention bound is attained for n = 2 only.
    value_norms
        Factors a_t of the value maps, ≥ 0.
    lambda_
        Residual mixing, T values in [0, 1].
    logit
        Largest content logit of the first layer, ≥ 0.
    slope
        ALiBi slope.
    theta
        RoPE's angle per token of the one pair of features; states are turned back by it, so that they meet again.

    Raises
    ------
    ValueError
        For a negative factor or logit, or schedules of different lengths.

    Source: ours.

    >>> opposed_network(2, [1.0], [1.0], logit=0.5 * np.log(3)).run().floors.round(3).tolist()
    [0.25]
    """
    a, eye = errors.finite_array("value_norms", value_norms, ndim=(1,)), np.eye(2)
    if (a < 0).any() or logit < 0:
        raise errors.invalid("value_norms and logit", "numbers ≥ 0", min(float(a.min()), logit))
    schedule = errors.mixing_coefficients("lambda_", lambda_, T=a.size)
    X = np.tile(eye[0], (errors.positive_integer("n", n), 1)) if theta is None else rotated(eye[0], [-theta], n)
    X[0] *= -1
    W_qk = np.tile(logit * np.sqrt(2) * eye, (a.size, 1, 1))
    return Network(X, W_qk, a[:, None, None] * eye, schedule, slope, None if theta is None else np.array([theta]))

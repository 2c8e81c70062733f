"""Hops and the mixing clock: how many attention hops a path takes, and what total mixing alone predicts.

If all layers share one kernel A, then P = Π((1 - λ_t) I + λ_t A) = Σ_k w_k A^k, where w_k is the probability
that k of T independent events with probabilities λ_t happen: the number of attention hops on a path is
Poisson-binomial. Replacing it by the Poisson distribution of the same mean τ = Σλ_t gives exp(τ(A - I)).
"""

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers

UNDERFLOW = 1e-60  # hop probabilities below this are dropped while the distribution is built


def hop_distribution(lambda_: Numbers) -> Float[np.ndarray, "hops"]:
    """Return w_k = P(k attention hops), k = 0, 1, …: Poisson-binomial with the probabilities λ_t.

    Trailing probabilities below 1e-60 are dropped, so that many layers that mix little make few hops.
    :data:`scipy.stats.poisson_binom` gives the same numbers, but all T + 1 of them in T² steps.

    Source: expansion of the rollout product; for equal kernels it is exact.

    >>> hop_distribution([0.5, 0.5]).tolist()
    [0.25, 0.5, 0.25]
    """
    w = np.ones(1)
    for mixing in errors.mixing_coefficients("lambda_", lambda_):
        w = np.append(w * (1 - mixing), 0.0) + np.append(0.0, w * mixing)
        w = w[: int(np.flatnonzero(w > UNDERFLOW)[-1]) + 1]
    return w


def poisson_distribution(tau: float) -> Float[np.ndarray, "hops"]:
    """Return e^{-τ} τ^k / k! for k up to where the rest is below 1e-18.

    >>> poisson_distribution(1.0)[:3].round(4).tolist()
    [0.3679, 0.3679, 0.1839]
    """
    from scipy.stats import poisson

    if not 0 <= tau < np.inf:
        raise errors.invalid("tau", "total mixing ≥ 0", tau)
    hops = 1 if tau == 0 else int(tau + 12 * np.sqrt(tau) + 40)
    return np.asarray(poisson.pmf(np.arange(hops), tau))

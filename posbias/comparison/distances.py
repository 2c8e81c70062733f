"""How far two profiles are apart: Wasserstein distance, total variation, rank correlation."""

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers


def wasserstein_to(p: Float[np.ndarray, "B n"], q: Float[np.ndarray, "n"]) -> Float[np.ndarray, "B"]:
    """Return the normalised W₁(p_b, q) = Σ_k |F_{p_b}(k) - F_q(k)| / (n - 1) for every row of p.

    >>> wasserstein_to(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), np.array([0.0, 0.0, 1.0])).tolist()
    [1.0, 0.0]
    """
    return np.abs(np.cumsum(p - q, axis=-1)[..., :-1]).sum(-1) / max(p.shape[-1] - 1, 1)


def normalised_wasserstein(p: Numbers, q: Numbers) -> float:
    """Return W₁(p, q), in [0, 1], of probability vectors (n,), made to sum to 1, with the metric |i - j| / (n - 1).

    Source: residual-aware paper, appendix C.3.

    >>> normalised_wasserstein([1.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    1.0
    """
    p, q = _pair(p, q)
    return float(wasserstein_to(p[None], q)[0])


def total_variation(p: Numbers, q: Numbers) -> float:
    """Return ½ Σ_j |p_j - q_j|, in [0, 1]: the share of influence that is on other positions.

    It bounds W₁ from above, since nothing has to be moved by more than the whole length.

    >>> total_variation([1.0, 0.0, 0.0], [0.5, 0.0, 0.5])
    0.5
    """
    p, q = _pair(p, q)
    return 0.5 * float(np.abs(p - q).sum())


def spearman(p: Numbers, q: Numbers) -> float:
    """Return Spearman's rank correlation of two profiles, equal up to 12 digits as ties; NaN if one is constant.

    >>> spearman([0.1, 0.2, 0.7], [0.2, 0.3, 0.5])
    1.0
    """
    from scipy.stats import rankdata

    p, q = (np.round(np.log(x + 1e-300), 12) for x in _pair(p, q))  # rounding must not order what is equal
    if (p == p[0]).all() or (q == q[0]).all():
        return float("nan")
    return float(np.corrcoef(rankdata(p), rankdata(q))[0, 1])


def unit(p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return non-negative numbers divided by their sums along the last axis, in 64 bits.

    >>> unit(np.array([1, 3], dtype=np.float32)).tolist()
    [0.25, 0.75]
    """
    p = np.asarray(p, dtype=np.float64)
    return p / p.sum(-1, keepdims=True)


def _pair(p: Numbers, q: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Return two distributions of equal length, each summing to 1."""
    p = errors.distribution("first profile", p, tolerance=1e-6)
    q = errors.distribution("second profile", q, tolerance=1e-6)
    if p.size != q.size:
        raise errors.invalid("profiles", "the same number of positions", f"{p.size} and {q.size}")
    return p / p.sum(), q / q.sum()

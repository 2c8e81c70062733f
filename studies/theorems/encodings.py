"""Positional encodings against the causal mask: how far back influence lies, layer by layer and accumulated.

Distances are x = i - j ≥ 0. A walk of t + 1 layers from i down to j has t stops on the way, so that there are
(t + x choose x) of them; an encoding weighs each. t counts from 0, as in the source: T = t + 1 layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers


def log_walks(t: int, x: Numbers) -> Float[np.ndarray, "..."]:
    """Return log (t + x choose x): the number of causal walks over a distance x in t + 1 layers.

    Parameters
    ----------
    t
        Layers after the first, at least 0.
    x
        Distances, ≥ 0.

    Source: Wu et al. 2025, appendix E.

    >>> np.exp(log_walks(2, [0, 1, 2])).round(6).tolist()
    [1.0, 3.0, 6.0]
    """
    from scipy.special import gammaln

    t = errors.positive_integer("t", t, minimum=0)
    distance = _distances(x)
    return np.asarray(gammaln(t + distance + 1) - gammaln(distance + 1) - gammaln(t + 1))


def decay_constants(slope: int | float, content_range: int | float, *, printed: bool = False) -> tuple[float, float]:
    """Return C_min, C_max with C_min e^(-xm) ≤ A[i, j] ≤ C_max e^(-xm) for a causal decay mask of slope m.

    Parameters
    ----------
    slope
        m > 0, logits per token.
    content_range
        Largest minus smallest content logit, ≥ 0.
    printed
        Whether C_max is the paper's e^range / (1 + e^-m), which holds from the second query on, and with room. The
        first query has A[1, 1] = 1, so that no C_max below 1 bounds it.

    Notes
    -----
    (1 - e^-m) e^-range and max{1, (1 - e^-m) e^range} are the best constants that hold for every n: a key whose logit
    is at one end of the range, with all others at the other end, comes as near to them as one likes.

    Source: Wu et al. 2025, lemma 4.4 and appendix D; C_max ours.

    >>> decay_constants(np.log(2), 0.0), round(decay_constants(np.log(2), 0.0, printed=True)[1], 3)
    ((0.5, 1.0), 0.667)
    """
    m = _positive("slope", slope)
    spread = float(errors.finite_array("content_range", content_range, ndim=(0,)))
    if spread < 0:
        raise errors.invalid("content_range", "a number ≥ 0", spread)
    lower, best = (float(-np.expm1(-m) * np.exp(sign * spread)) for sign in (-1, 1))
    return lower, float(np.exp(spread) / (1 + np.exp(-m))) if printed else max(1.0, best)


def decay_peak(t: Numbers, slope: Numbers) -> Float[np.ndarray, "..."]:
    """Return x* = t / (e^m - 1): where (t + x choose x) e^(-xm) is largest, rounded down.

    The law at x over the law at x - 1 is e^(-m) (t + x) / x, which is at least 1 exactly for x ≤ x*.

    Source: Wu et al. 2025, after theorem 4.5 (there as Stirling's approximation; the rounding makes it exact).

    >>> decay_peak([1, 4], np.log(3)).round(6).tolist()
    [0.5, 2.0]
    """
    depths, m = errors.finite_array("t", t, ndim=(0, 1, 2)), errors.finite_array("slope", slope, ndim=(0, 1, 2))
    if (depths < 0).any():
        raise errors.invalid("t", "numbers ≥ 0", float(depths.min()))
    if (m <= 0).any():
        raise errors.invalid("slope", "numbers above 0", float(m.min()))
    return np.asarray(depths / np.expm1(m))


def gaussian_peak(t: int | float, strength: int | float) -> float:
    """Return the x > 0 with log((t + x) / x) = 2 a x: the peak of (t + x choose x) e^(-a x²) by Stirling.

    Parameters
    ----------
    t
        Layers after the first, > 0.
    strength
        a > 0, for RoPE at d = 2 a constant times θ².

    Source: Wu et al. 2025, after theorem 4.7 and appendix H, with the derivative of a x² put right.

    >>> round(gaussian_peak(3, np.log(2) / 6), 6)  # log(6/3) = 2 a 3
    3.0
    """
    from scipy.optimize import brentq

    t, a = _positive("t", t), _positive("strength", strength)
    high = np.sqrt(t / (2 * a))  # log(1 + t/x) < t/x, so the root is below
    return float(brentq(lambda x: np.log1p(t / x) - 2 * a * x, high * 1e-12, high, xtol=1e-13, rtol=1e-13))


def gaussian_peak_slopes(t: int | float, theta: float) -> tuple[float, float]:
    """Return ∂x/∂t and ∂x/∂θ of the peak for a = θ²: 1 / (2 θ² (x+t) + t/x) and -4 θ x / (2 θ² + t / (x (x+t))).

    Source: derived here; appendix H of Wu et al. 2025 has θ for θ² and -2x for -4θx.

    >>> both = gaussian_peak_slopes(4, 0.1)
    >>> both[0] > 0 > both[1]
    True
    """
    a = _positive("theta", theta) ** 2
    x = gaussian_peak(t, a)
    return 1 / (2 * a * (x + t) + t / x), -4 * theta * x / (2 * a + t / (x * (x + t)))


@dataclass(frozen=True)
class RopeConstants:
    """Hold what bounds RoPE's attention: lower e^(-c S x²) ≤ A[i, j] ≤ upper e^(-c' S x²), S = Σ_l θ_l².

    Parameters
    ----------
    lower, upper
        C_min and C_max.
    c, c_prime
        Strengths of the two Gaussians.
    S
        Sum of the squared angles per token.
    delta
        Largest angle between a query and a key before rotation, over the smallest θ.
    beta
        Smallest share of its vector's norm that a pair of features has, over queries times keys.
    turned
        Largest angle after rotation that the condition allows for, at most π.
    """

    lower: float
    upper: float
    c: float
    c_prime: float
    S: float
    delta: float
    beta: float
    turned: float

    def bounds(self, x: Numbers) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """Return the lower and the upper bound on A[i, i - x] at distances x."""
        square = np.asarray(x, dtype=float) ** 2
        return self.lower * np.exp(-self.c * self.S * square), self.upper * np.exp(-self.c_prime * self.S * square)

    def full_upper(self, x: Numbers) -> Float[np.ndarray, "..."]:
        """Return the upper bound with all nearer keys in the denominator: upper e^(-c' S x²) / Σ_{y≤x} e^(-c S y²).

        The key at distance x is seen by queries that see all distances y ≤ x as well, each with a term of at least
        C e^(-c S y²); :meth:`bounds` has the term of y = 0 alone.

        Parameters
        ----------
        x
            Distances, integers ≥ 0.

        Source: ours.
        """
        distance = np.asarray(x, dtype=int)
        terms = np.cumsum(np.exp(-self.c * self.S * np.arange(distance.max() + 1.0) ** 2))
        return np.asarray(self.bounds(distance)[1] / terms[distance])

    def log_bounds(self, t: int, x: Numbers) -> tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]:
        """Return logs of the bounds on P_T[i, i - x] after T = t + 1 layers, with :func:`log_gaussian_walks`."""
        low = log_gaussian_walks(t, x, self.c * self.S)[0]
        high = log_gaussian_walks(t, x, self.c_prime * self.S)[1]
        return (t + 1) * np.log(self.lower) + low, (t + 1) * np.log(self.upper) + high


def rope_constants(
    q: Float[np.ndarray, "*layers n d"], k: Float[np.ndarray, "*layers n d"], theta: Numbers
) -> RopeConstants:
    """Compute C_min, C_max, c and c' for queries and keys that meet the angle condition, or refuse those that do not.

    With g the products of norms of a pair of features (within [g_min, g_max]), G their sum over pairs, φ the angles
    before rotation and δ'θ₁ a bound on (Σ_l φ_l²)^½ from lemma I.3 (for d = 2, on φ itself): 1 - ψ²/2 ≤ cos ψ ≤
    1 - 2ψ²/π² on |ψ| ≤ π gives, for the logit at distance x,

        G_min - g_max (δ'² θ₁² + S x²) ≤ logit ≤ G_max + (2/π²) g_min δ'² θ₁² - (g_min/π²) S x².

    So c = g_max and c' = g_min / π². The softmax denominator is at least e^(first bound at 0), from the query itself,
    and at most the sum over x of the second.

    Parameters
    ----------
    q, k
        Queries and keys before rotation; any leading axes (layers) are covered together. A softmax temperature goes
        into q.
    theta
        Angles per token, d/2 of them, positive.

    Raises
    ------
    ValueError
        If (δ' + (n-1) θ_max/θ₁) θ₁ > π, a feature pair or an angle per token is not positive, or shapes do not fit.

    Source: Wu et al. 2025, lemmas 4.6, I.1 and I.3. Printed are C_min cos(…) ≤ ⟨q, k⟩ ≤ C_max cos(…), wrong where the
    cosine is negative; the constants here do without.

    >>> one = np.ones((3, 1)) * [[1.0, 0.0]]
    >>> found = rope_constants(one, one, [0.5])
    >>> round(found.c, 3), round(found.c_prime, 3), round(found.turned, 3)
    (1.0, 0.101, 1.0)
    """
    angles = errors.finite_array("theta", theta, ndim=(1,))
    n, d = q.shape[-2:]
    if d != 2 * angles.size:
        raise errors.invalid("theta", f"{d / 2:g} angles, one for each pair of features", angles.size)
    if (angles <= 0).any():
        raise errors.invalid("theta", "angles above 0", float(angles.min()))
    pairs_q, pairs_k = (x.reshape(*x.shape[:-1], d // 2, 2) for x in (q, k))
    norm_q, norm_k = (np.linalg.norm(x, axis=-1) for x in (pairs_q, pairs_k))
    if not (norm_q > 0).all() or not (norm_k > 0).all():
        raise errors.invalid("q, k", "positive norms in every pair of features", "a zero")
    seen = np.tri(n, dtype=bool)
    g = np.einsum("...il,...jl->...ijl", norm_q, norm_k)[..., seen, :]
    whole_q, whole_k = np.linalg.norm(q, axis=-1), np.linalg.norm(k, axis=-1)
    cosine = np.einsum("...id,...jd->...ij", q / whole_q[..., None], k / whole_k[..., None])[..., seen]
    phi = float(np.arccos(np.clip(cosine.min(), -1, 1)))
    beta = float((norm_q / whole_q[..., None]).min() * (norm_k / whole_k[..., None]).min())
    before = phi if d == 2 else np.pi / 2 * phi / np.sqrt(beta)
    turned = before + (n - 1) * float(angles.max())
    if turned > np.pi * (1 + 1e-12):
        raise errors.invalid("theta", f"angles with (δ' + (n - 1) α) θ₁ ≤ π = {np.pi:.4g}", f"{turned:.4g}")
    S, total = float((angles**2).sum()), g.sum(axis=-1)
    small, large = float(g.min()), float(g.max())
    from_below = float(total.min()) - large * before**2
    from_above = float(total.max()) + 2 / np.pi**2 * small * before**2
    c, c_prime = large, small / np.pi**2
    denominator = np.exp(from_above - c_prime * S * np.arange(n) ** 2).sum()
    return RopeConstants(
        lower=float(np.exp(from_below) / denominator),
        upper=float(np.exp(from_above - from_below)),
        c=c,
        c_prime=c_prime,
        S=S,
        delta=phi / float(angles.min()),
        beta=beta,
        turned=turned,
    )


def log_gaussian_walks(
    t: int, x: Numbers, strength: int | float
) -> tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]:
    """Return logs of a lower and an upper bound on Σ over walks of e^(-a Σ h²), h the steps of a walk of length x.

    The T = t + 1 steps of a walk add up to x. So Σ h² ≥ x²/T (Cauchy and Schwarz), and its mean over all walks is
    x (2x + t) / (t + 2); by Jensen the mean of e^(-a Σ h²) is at least e^(-a mean). Both fall like 1/T.

    Parameters
    ----------
    t
        Layers after the first, at least 0.
    x
        Distances, ≥ 0.
    strength
        a > 0: what a single layer loses is e^(-a h²).

    Source: ours. Wu et al. 2025, (16), has Σ h² ≥ x²/2 for any number of steps, which holds for one or two.

    >>> [bound.round(3).tolist() for bound in log_gaussian_walks(1, [2], 0.5)]
    [[-0.568], [0.099]]
    """
    a, distance = _positive("strength", strength), np.atleast_1d(_distances(x))
    walks = log_walks(t, distance)
    return walks - a * distance * (2 * distance + t) / (t + 2), walks - a * distance**2 / (t + 1)


def walk_sums(hops: Float[np.ndarray, "n"], T: int) -> Float[np.ndarray, "depths n"]:
    """Return the T-fold convolutions of ``hops`` at distances 0..n-1, for 1..T layers: rollouts without a first token.

    Parameters
    ----------
    hops
        Weight of a step over each distance 0..n-1, ≥ 0; a distribution if the result is to be one.
    T
        Layers, at least 1.

    >>> walk_sums(np.array([0.5, 0.5, 0.0]), 2).tolist()
    [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25]]
    """
    T = errors.positive_integer("T", T)
    sums = np.empty((T, hops.size))
    sums[0] = hops
    for t in range(1, T):
        sums[t] = np.convolve(sums[t - 1], hops)[: hops.size]
    return sums


def _distances(x: Numbers) -> np.ndarray:
    distance = errors.finite_array("x", x, ndim=(0, 1, 2))
    if (distance < 0).any():
        raise errors.invalid("x", "distances ≥ 0", float(distance.min()))
    return distance


def _positive(field: str, value: int | float) -> float:
    number = float(errors.finite_array(field, value, ndim=(0,)))
    if number <= 0:
        raise errors.invalid(field, "a number above 0", number)
    return number

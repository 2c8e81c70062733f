"""Positional encodings against the causal mask: how far back influence lies, layer by layer and accumulated.

Distances are x = i - j ≥ 0. A walk of t + 1 layers from i down to j has t stops on the way, so that there are
(t + x choose x) of them; an encoding weighs each. t counts from 0, as in the source: T = t + 1 layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.errors import Numbers
from studies.theorems.intervals import distances


def log_walks(t: int, x: Numbers) -> Float[np.ndarray, "..."]:
    """Return log (t + x choose x): the number of causal walks over a distance x in t + 1 layers.

    Source: Wu et al. 2025, appendix E.

    >>> np.exp(log_walks(2, [0, 1, 2])).round(6).tolist()
    [1.0, 3.0, 6.0]
    """
    from scipy.special import gammaln

    distance = np.asarray(x, dtype=float)
    return np.asarray(gammaln(t + distance + 1) - gammaln(distance + 1) - gammaln(t + 1))


def decay_constants(slope: int | float, content_range: int | float, *, printed: bool = False) -> tuple[float, float]:
    """Return C_min, C_max with C_min e^(-xm) ≤ A[i, j] ≤ C_max e^(-xm) for a causal decay mask of slope m.

    ``printed`` asks for the paper's C_max, e^range / (1 + e^-m), which holds from the second query on, and with room:
    the first query has A[1, 1] = 1. (1 - e^-m) e^-range and max{1, (1 - e^-m) e^range} are the best constants that hold
    for every n: a key whose logit is at one end of the range, with all others at the other end, comes as near to them
    as one likes.

    Source: Wu et al. 2025, lemma 4.4 and appendix D; C_max ours.

    >>> decay_constants(np.log(2), 0.0), round(decay_constants(np.log(2), 0.0, printed=True)[1], 3)
    ((0.5, 1.0), 0.667)
    """
    lower, best = (float(-np.expm1(-slope) * np.exp(sign * content_range)) for sign in (-1, 1))
    return lower, float(np.exp(content_range) / (1 + np.exp(-slope))) if printed else max(1.0, best)


def decay_peak(t: Numbers, slope: Numbers) -> Float[np.ndarray, "..."]:
    """Return x* = t / (e^m - 1): where (t + x choose x) e^(-xm) is largest, rounded down.

    The law at x over the law at x - 1 is e^(-m) (t + x) / x, which is at least 1 exactly for x ≤ x*.

    Source: Wu et al. 2025, after theorem 4.5 (there as Stirling's approximation; the rounding makes it exact).

    >>> decay_peak([1, 4], np.log(3)).round(6).tolist()
    [0.5, 2.0]
    """
    return np.asarray(np.asarray(t) / np.expm1(slope))


def gaussian_peak(t: int | float, strength: int | float) -> float:
    """Return the x > 0 with log((t + x) / x) = 2 a x: the peak of (t + x choose x) e^(-a x²) by Stirling.

    Source: Wu et al. 2025, after theorem 4.7 and appendix H, with the derivative of a x² put right.

    >>> round(gaussian_peak(3, np.log(2) / 6), 6)  # log(6/3) = 2 a 3
    3.0
    """
    from scipy.optimize import brentq

    high = np.sqrt(t / (2 * strength))  # log(1 + t/x) < t/x, so the root is below
    return float(brentq(lambda x: np.log1p(t / x) - 2 * strength * x, high * 1e-12, high, xtol=1e-13, rtol=1e-13))


def gaussian_peak_slopes(t: int | float, theta: float) -> tuple[float, float]:
    """Return ∂x/∂t and ∂x/∂θ of the peak for a = θ²: 1 / (2 θ² (x+t) + t/x) and -4 θ x / (2 θ² + t / (x (x+t))).

    Source: derived here; appendix H of Wu et al. 2025 has θ for θ² and -2x for -4θx.

    >>> both = gaussian_peak_slopes(4, 0.1)
    >>> both[0] > 0 > both[1]
    True
    """
    a = theta**2
    x = gaussian_peak(t, a)
    return 1 / (2 * a * (x + t) + t / x), -4 * theta * x / (2 * a + t / (x * (x + t)))


@dataclass(frozen=True)
class RopeConstants:
    """Hold what bounds RoPE's attention: lower e^(-c S x²) ≤ A[i, j] ≤ upper e^(-c' S x²), S = Σ_l θ_l²."""

    lower: float  # C_min
    upper: float  # C_max
    c: float  # Strengths of the two Gaussians
    c_prime: float
    S: float  # Sum of the squared angles per token
    delta: float  # Largest angle between a query and a key before rotation, over the smallest θ
    beta: float  # Smallest share of its vector's norm that a pair of features has, over queries times keys
    turned: float  # Largest angle after rotation that the condition allows for, at most π

    def bounds(self, x: Numbers) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """Return the lower and the upper bound on A[i, i - x] at distances x."""
        square = np.asarray(x, dtype=float) ** 2
        return self.lower * np.exp(-self.c * self.S * square), self.upper * np.exp(-self.c_prime * self.S * square)

    def full_upper(self, x: Numbers) -> Float[np.ndarray, "..."]:
        """Return the upper bound with all nearer keys in the denominator: upper e^(-c' S x²) / Σ_{y≤x} e^(-c S y²).

        The key at distance x is seen by queries that see all distances y ≤ x as well, each with a term of at least
        C e^(-c S y²); :meth:`bounds` has the term of y = 0 alone.

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

    Source: Wu et al. 2025, lemmas 4.6, I.1 and I.3. Printed are C_min cos(…) ≤ ⟨q, k⟩ ≤ C_max cos(…), wrong where the
    cosine is negative; the constants here do without.

    >>> one = np.ones((3, 1)) * [[1.0, 0.0]]
    >>> found = rope_constants(one, one, [0.5])
    >>> round(found.c, 3), round(found.c_prime, 3), round(found.turned, 3)
    (1.0, 0.101, 1.0)
    """
    angles = np.asarray(theta, dtype=float)
    n, d = q.shape[-2:]
    pairs_q, pairs_k = (x.reshape(*x.shape[:-1], d // 2, 2) for x in (q, k))
    norm_q, norm_k = (np.linalg.norm(x, axis=-1) for x in (pairs_q, pairs_k))
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

    Source: ours. Wu et al. 2025, (16), has Σ h² ≥ x²/2 for any number of steps, which holds for one or two.

    >>> [bound.round(3).tolist() for bound in log_gaussian_walks(1, [2], 0.5)]
    [[-0.568], [0.099]]
    """
    walks, x = log_walks(t, x), np.asarray(x, dtype=float)
    return walks - strength * x * (2 * x + t) / (t + 2), walks - strength * x**2 / (t + 1)


def walk_sums(hops: Float[np.ndarray, "n"], T: int) -> Float[np.ndarray, "depths n"]:
    """Return the T-fold convolutions of ``hops`` at distances 0..n-1, for 1..T layers: rollouts without a first token.

    >>> walk_sums(np.array([0.5, 0.5, 0.0]), 2).tolist()
    [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25]]
    """
    sums = np.empty((T, hops.size))
    sums[0] = hops
    for t in range(1, T):
        sums[t] = np.convolve(sums[t - 1], hops)[: hops.size]
    return sums


def numerical_slopes(t: int | float, theta: float, *, h: float = 1e-6) -> tuple[float, float]:
    """Return ∂x*/∂t and ∂x*/∂θ as central differences of the numerically solved peak.

    >>> by_t, by_theta = numerical_slopes(4, 0.1)
    >>> by_t > 0 > by_theta
    True
    """
    by_t = gaussian_peak(t * (1 + h), theta**2) - gaussian_peak(t * (1 - h), theta**2)
    by_theta = gaussian_peak(t, (theta * (1 + h)) ** 2) - gaussian_peak(t, (theta * (1 - h)) ** 2)
    return by_t / (2 * h * t), by_theta / (2 * h * theta)


def printed_slopes(t: int | float, theta: float, *, squared: bool = False) -> tuple[float, float]:
    """Return the derivatives that appendix H prints, 1 / (2 s (x+t) + t/x) and -2x / (2 s + t / (x (x+t))), at x*.

    Source: Wu et al. 2025, appendix H.

    >>> meant, derived = printed_slopes(4, 0.1, squared=True), gaussian_peak_slopes(4, 0.1)
    >>> all(abs(a / b - 1) < 1e-12 for a, b in zip(meant, derived))
    True
    """
    x, s = gaussian_peak(t, theta**2), theta**2 if squared else theta
    by_theta = -2 * x / (2 * s + t / (x * (x + t)))
    return 1 / (2 * s * (x + t) + t / x), by_theta * (2 * theta if squared else 1.0)


def log_decay_law(t: int, x: Numbers, slope: int | float) -> Float[np.ndarray, "..."]:
    """Return log (t + x choose x) - m x.

    Source: Wu et al. 2025, theorem 4.5.

    >>> np.exp(log_decay_law(1, [0, 1], np.log(2))).round(6).tolist()
    [1.0, 1.0]
    """
    return np.asarray(log_walks(t, x) - slope * np.asarray(x, dtype=float))


def log_law_ratios(history: Float[np.ndarray, "T n n"], slope: int | float) -> Float[np.ndarray, "T pairs"]:
    """Return the log of P_T[i, j] over the law, for every depth T = 1, 2, … and every pair j ≤ i.

    Source: Wu et al. 2025, theorem 4.5: T log C_min and T log C_max bound it.

    >>> log_law_ratios(np.array([[[1.0, 0.0], [1 / 3, 2 / 3]]]), np.log(2)).round(3).tolist()
    [[0.0, -0.405, -0.405]]
    """
    x = distances(history.shape[-1])
    seen = x >= 0
    return np.stack([np.log(P[seen]) - log_decay_law(t, x[seen], slope) for t, P in enumerate(history)])


def stirling_error(t: int, slope: int | float) -> float:
    """Return Stirling's log of the binomial at x*, without its square root, minus the true one; 0 where x* ≤ 1.

    Source: Wu et al. 2025, after theorem 4.5.

    >>> stirling_error(1, np.log(3)), round(stirling_error(2, np.log(2)), 3)
    (0.0, 0.981)
    """
    star = float(decay_peak(t, slope))
    if star <= 1:
        return 0.0
    binomial = (t + star) * np.log(t + star) - t * np.log(t) - star * np.log(star)
    return float(binomial - log_walks(t, star))


Rational = Fraction | int
Matrix = Sequence[Sequence[Rational]]


def complete_homogeneous(values: Sequence[Rational], degree: int) -> list[Fraction]:
    """Return h_0, …, h_degree of the values: h_k is the sum of all products of k of them, with repetition.

    Source: Macdonald 1995, Symmetric Functions and Hall Polynomials, I.2; h_k(x_1..x_r) = h_k(x_1..x_{r-1}) + x_r
    h_{k-1}(x_1..x_r).

    >>> [str(h) for h in complete_homogeneous([2, 3], 2)]  # 1, 2 + 3, 2·2 + 2·3 + 3·3
    ['1', '5', '19']
    """
    h = [Fraction(1)] + [Fraction(0)] * degree
    for value in values:
        for k in range(1, degree + 1):
            h[k] += value * h[k - 1]
    return h


def exact_decay_kernel(n: int, q: Rational, keys: Sequence[Rational] | None = None) -> list[list[Fraction]]:
    """Return A[i, j] = b_j q^(i-j) / Z_i for j ≤ i, in rationals; b_j = e^(logit of the key) is 1 unless given.

    >>> exact_decay_kernel(2, Fraction(1, 2))
    [[Fraction(1, 1), Fraction(0, 1)], [Fraction(1, 3), Fraction(2, 3)]]
    """
    b: list[Rational] = [1] * n if keys is None else list(keys)
    rows = []
    for i in range(n):
        row = [b[j] * q ** (i - j) for j in range(i + 1)]
        rows.append([Fraction(x) / sum(row) for x in row] + [Fraction(0)] * (n - len(row)))
    return rows


def exact_product(A: Matrix, B: Matrix) -> list[list[Rational]]:
    """Return the product of two square matrices of rationals.

    >>> exact_product([[1, 0], [2, 3]], [[1, 0], [4, 5]])
    [[1, 0], [14, 15]]
    """
    rows: list[list[Rational]] = []
    for row in A:
        rows.append([])
        for column in zip(*B, strict=True):
            rows[-1].append(sum(a * b for a, b in zip(row, column, strict=True)))
    return rows


def power_row(row: Float[np.ndarray, "m"], own: Float[np.ndarray, "m"], T: int) -> Float[np.ndarray, "T m"]:
    """Return P_T[i, j] = A[i, j] h_{T-1}(A[j, j], …, A[i, i]) for one query i, every key j ≤ i and T = 1, 2, ….

    The sums have positive terms alone, so that nothing cancels: the relative error is at most about
    2 (T + m) roundings. The work is O(T m).

    Source: ours.

    >>> power_row(np.array([1 / 3, 2 / 3]), np.array([1, 2 / 3]), 2).round(4).tolist()
    [[0.3333, 0.6667], [0.5556, 0.4444]]
    """
    h = np.ones((T, row.size))
    for k in range(1, T):
        h[k] = np.cumsum((own * h[k - 1])[::-1])[::-1]
    return row * h


def mixed_power_row(
    row: Float[np.ndarray, "m"], own: Float[np.ndarray, "m"], hops: Float[np.ndarray, "hops"]
) -> Float[np.ndarray, "m"]:
    """Return the same row of a rollout with residuals: Σ_k ω_k A^k[i, ·], with :func:`power_row` for A^k.

    >>> mixed_power_row(np.array([1 / 3, 2 / 3]), np.array([1, 2 / 3]), np.array([0.5, 0.5])).round(4).tolist()
    [0.1667, 0.8333]
    """
    powers = power_row(row, own, max(1, len(hops) - 1))
    mixed = np.asarray(hops[1:]) @ powers[: len(hops) - 1]
    mixed[-1] += hops[0]
    return mixed


def decay_diagonal(n: int, slope: float) -> Float[np.ndarray, "n"]:
    """Return 1/Z_j, Z_j = 1 + q + … + q^(j-1), q = e^-m: the weights of a decay mask on the query itself.

    >>> decay_diagonal(3, np.log(2)).round(4).tolist(), decay_diagonal(3, 0.0).round(4).tolist()
    ([1.0, 0.6667, 0.5714], [1.0, 0.5, 0.3333])
    """
    return 1 / np.cumsum(np.exp(-slope * np.arange(n)))

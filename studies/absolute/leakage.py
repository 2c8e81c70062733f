"""Absolute position in attention logits: variance that query and key positions explain beyond every relative offset.

What one prompt's logits share at the same positions with those of a prompt from another document cannot be content.
Everything is read off Gram matrices between prompts, (…, N, N): estimates, sign-flip tests and bootstrap intervals.
The unit of all three is the document; prompts are units where each is from a document of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias import errors
from posbias.comparison.resampling import resample_weights


def sample_pairs(
    n: int, per_stratum: int = 64, *, reach: int | None = None, first_key: int = 1, seed: int = 0
) -> Int[np.ndarray, "2 m"]:
    """Return pairs (i, j), j ≤ i, with equal numbers from each stratum: an octave of queries and one of offsets.

    Early queries and near keys, few among all pairs, so count as much; of a smaller stratum all pairs are taken. A
    query may see ``reach`` keys, itself included; keys (and queries) before ``first_key`` are left out: the first
    token's logits are those of another token, not of another position.

    >>> sample_pairs(4).tolist()
    [[1, 2, 3, 2, 3, 3], [1, 2, 3, 1, 2, 1]]
    """
    i, j = np.tril_indices(n)
    keep = (j >= first_key) & (i - j < (reach or n))
    i, j = i[keep], j[keep]
    strata = np.floor(np.log2(i + 1)) * 64 + np.floor(np.log2(i - j + 1))
    rng = np.random.default_rng(seed)
    found = []
    for stratum in np.unique(strata):
        inside = np.flatnonzero(strata == stratum)
        found.append(np.sort(rng.choice(inside, min(per_stratum, inside.size), replace=False)))
    order = np.concatenate(found)
    order = order[np.lexsort((i[order], i[order] - j[order]))]
    return np.stack([i[order], j[order]])


@dataclass(frozen=True)
class PositionBasis:
    """Hold orthonormal directions of what absolute position can add to logits at m pairs beyond relative offset.

    ``query`` are functions of the query's position, each offset's mean taken out; ``key`` those of the key's position,
    with offsets' means and ``query`` taken out: the softmax denominator, a function of the query, cannot reach these.
    """

    pairs: Int[np.ndarray, "2 m"]
    query: Float[np.ndarray, "m a"]
    key: Float[np.ndarray, "m b"]

    @property
    def both(self) -> Float[np.ndarray, "m c"]:
        """All of absolute position: α_i + β_j for any α and β."""
        return np.hstack([self.query, self.key])


def position_basis(pairs: Int[np.ndarray, "2 m"]) -> PositionBasis:
    """Return the basis of y_ij = μ_(i-j) + α_i + β_j beyond the saturated baseline μ, one parameter per offset.

    Source: the saturated baseline is that of Ruscio et al. 2026 as a review describes it; α + β is ours.

    >>> basis = position_basis(sample_pairs(16))
    >>> relative = np.cos(basis.pairs[0] - basis.pairs[1])
    >>> bool(np.abs(basis.both.T @ relative).max() < 1e-12)
    True
    """
    i, j = pairs
    query = _orthonormal(_less_offset_means(i[:, None] == np.unique(i), i - j))
    key = _less_offset_means(j[:, None] == np.unique(j), i - j)
    key = _orthonormal(key - query @ (query.T @ key))
    if not query.shape[1]:
        raise errors.invalid("pairs", "offsets that occur with several queries", f"{pairs.shape[1]} pairs without")
    return PositionBasis(pairs, query, key)


def _less_offset_means(columns: Bool[np.ndarray, "m k"], offsets: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m k"]:
    _, group, count = np.unique(offsets, return_inverse=True, return_counts=True)
    sums = np.zeros((count.size, columns.shape[1]))
    np.add.at(sums, group, columns)
    return columns - (sums / count[:, None])[group]


def _orthonormal(columns: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "m r"]:
    """Return an orthonormal basis of the span; offset, query and key effects share a linear trend, so rank < k."""
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    return u[:, s > 1e-9 * math.sqrt(columns.shape[0])]


def gram(
    directions: Float[np.ndarray, "m r"],
    values: Float[np.ndarray, "N *heads m"],
    other: Float[np.ndarray, "N *heads m"] | None = None,
) -> Float[np.ndarray, "*heads N N"]:
    """Return G_pq = ⟨z_p, z'_q⟩ / m, z = Uᵀ y: products of prompts' position effects, in squared units of y per pair.

    U are directions of a :class:`PositionBasis`, and y logits, log-probabilities or log Z.
    """
    z = np.moveaxis(values @ directions, 0, -2)
    w = z if other is None else np.moveaxis(other @ directions, 0, -2)
    return (z @ w.swapaxes(-1, -2)).astype(np.float64) / directions.shape[0]


def explained(
    G: Float[np.ndarray, "*heads N N"], units: Int[np.ndarray, "N"] | None = None
) -> Float[np.ndarray, "*heads"]:
    """Return the mean of G_pq over prompts p, q of different units, an unbiased estimate of ‖Uᵀ E y‖² / m.

    ``units`` are the documents of prompts; None where each prompt has its own. The estimate may be negative. A squared
    norm of a mean over prompts would count each prompt's content once with itself; prompts of different documents share
    position only.

    >>> explained(np.array([[9.0, 1.0], [1.0, 9.0]])).item()
    1.0
    """
    apart = _apart(G, units, 2)
    return np.asarray((G * apart).sum((-1, -2)) / apart.sum())


def permutations_need(permutations: int) -> int:
    """Return how many units N have more than ``permutations`` distinct sign flips: 2^(N-1) > permutations.

    >>> permutations_need(999)
    11
    """
    return 1 + math.ceil(math.log2(permutations + 1))


def permutation_p_values(
    G: Float[np.ndarray, "*heads N N"],
    permutations: int = 999,
    *,
    units: Int[np.ndarray, "N"] | None = None,
    seed: int = 0,
) -> Float[np.ndarray, "*heads"]:
    """Return (1 + #{null ≥ found}) / (permutations + 1) for :func:`explained`, the null by flipping units' signs.

    Without leakage a document's effects z_p are content around 0, and all of them with the other sign are as likely if
    content is symmetric. Shuffling pairs inside a prompt would be no null: a key that attracts many queries of one
    prompt is content, not position.

    >>> permutation_p_values(np.ones((20, 20))).item()
    0.001
    """
    apart = _apart(G, units, permutations_need(permutations))
    names, unit = np.unique(_labels(G, units), return_inverse=True)
    flips = np.random.default_rng(seed).choice([-1.0, 1.0], size=(permutations, names.size))[:, unit]
    null = _quadratic(flips, G, apart)
    found = (G * apart).sum((-1, -2))
    slack = 1e-12 * np.abs(G).sum((-1, -2))
    return np.asarray((1 + (null >= found - slack).sum(0)) / (permutations + 1))


def resampled(
    G: Float[np.ndarray, "*heads N N"],
    resamples: int = 1000,
    *,
    units: Int[np.ndarray, "N"] | None = None,
    seed: int = 0,
) -> Float[np.ndarray, "B *heads"]:
    """Return :func:`explained` of B resamples of the units, their deviations times :func:`deviation_scale`.

    A document drawn twice is never paired with itself. Equal seeds and units draw the same documents, which pairs the
    resamples of several statistics.

    >>> resampled(np.ones((9, 9)), 2).tolist()
    [1.0, 1.0]
    """
    apart = _apart(G, units, 3)
    draws = resample_weights(G.shape[-1] if units is None else units, resamples, seed=seed)
    pairs = ((draws @ apart) * draws).sum(1).reshape(-1, *(1,) * (G.ndim - 2))
    value = explained(G, units)
    # a draw of one unit alone has no pair: no information, and the estimate itself
    plain = np.where(pairs > 0, _quadratic(draws, G, apart) / np.maximum(pairs, 1), value)
    return np.asarray(value + deviation_scale(G, units) * (plain - value))


def deviation_scale(
    G: Float[np.ndarray, "*heads N N"], units: Int[np.ndarray, "N"] | None = None
) -> Float[np.ndarray, "*heads"]:
    """Return by how much resamples of :func:`explained` spread too far: a factor from √(1/3) to 1 for deviations.

    The variance of the estimate has a part A, linear in each unit's deviation, and a part B of products of two units.
    Resampled units give A + 3B: to the linear part of a resample the noise of the estimate itself adds 2B. So where
    nothing leaks, A = 0 and plain intervals are √3 too wide. With a = A + 2B and b = B as the units give them, the
    factor is √((max(a - 2b, 0) + b) / (a + b)).

    Source: Hoeffding's decomposition of a U-statistic; that the plain bootstrap fails for degenerate ones is Arcones
    and Giné 1992. The factor is ours.

    >>> round(float(deviation_scale(np.ones((9, 9)) + np.diag(np.arange(9.0)))), 3)
    1.0
    >>> z = np.random.default_rng(0).normal(size=(40, 400))
    >>> 0.5 < float(deviation_scale(z @ z.T)) < 0.7
    True
    """
    apart = _apart(G, units, 3)
    names, unit = np.unique(_labels(G, units), return_inverse=True)
    members = (unit == np.arange(names.size)[:, None]).astype(np.float64)
    pairs = members @ apart @ members.T
    R = members @ (G * apart) @ members.T - explained(G, units)[..., None, None] * pairs
    linear, products = 4 * np.square(R.sum(-1)).sum(-1), 2 * np.square(R).sum((-1, -2))
    whole = linear + products
    kept = np.maximum(linear - 2 * products, 0) + products
    some = whole > 1e-24 * np.square(G).sum((-1, -2))
    return np.asarray(np.sqrt(np.where(some, kept, 1.0) / np.where(some, whole, 1.0)))


@dataclass(frozen=True)
class Leakage:
    """Hold how much of some numbers' variance absolute position explains, for any heads."""

    gram: Float[np.ndarray, "... N N"]
    spread: Float[np.ndarray, "... N"]  # each prompt's mean square about the mean over prompts and pairs
    units: Int[np.ndarray, "N"] | None = None

    @property
    def variance(self) -> Float[np.ndarray, "*heads"]:
        """Return the explained variance, in squared units."""
        return explained(self.gram, self.units)

    @property
    def share(self) -> Float[np.ndarray, "*heads"]:
        """Return explained over total variance."""
        return np.asarray(self.variance / self.spread.mean(-1))

    def pooled(self, axis: int | tuple[int, ...]) -> Leakage:
        """Return the leakage of several heads together: variances added over leading axes."""
        return Leakage(self.gram.sum(axis), self.spread.sum(axis), self.units)

    def p_values(self, permutations: int = 999, *, seed: int = 0) -> Float[np.ndarray, "*heads"]:
        """Return :func:`permutation_p_values`."""
        return permutation_p_values(self.gram, permutations, units=self.units, seed=seed)

    def resampled_variance(self, resamples: int = 1000, *, seed: int = 0) -> Float[np.ndarray, "B *heads"]:
        """Return the explained variance of B resamples of the units (:func:`resampled`)."""
        return resampled(self.gram, resamples, units=self.units, seed=seed)

    def resampled_share(self, resamples: int = 1000, *, seed: int = 0) -> Float[np.ndarray, "B *heads"]:
        """Return explained over total variance of B resamples of the units."""
        N = self.spread.shape[-1]
        weights = resample_weights(N if self.units is None else self.units, resamples, seed=seed)
        weights /= weights.sum(1, keepdims=True)
        return self.resampled_variance(resamples, seed=seed) / np.moveaxis(self.spread @ weights.T, -1, 0)


def leakage(
    directions: Float[np.ndarray, "m r"],
    values: Float[np.ndarray, "N *heads m"],
    units: Int[np.ndarray, "N"] | None = None,
) -> Leakage:
    """Return the leakage of values y along ``query``, ``key`` or ``both`` of a :class:`PositionBasis`.

    >>> basis = position_basis(sample_pairs(16))
    >>> noise = np.random.default_rng(0).normal(size=(40, basis.pairs.shape[1]))
    >>> bool(leakage(basis.both, noise).share < 0.05 < leakage(basis.both, noise + 0.3 * basis.pairs[1]).share)
    True
    """
    y = values.astype(np.float64)
    spread = np.square(y - y.mean((0, -1), keepdims=True)).mean(-1)
    return Leakage(gram(directions, y), np.moveaxis(spread, 0, -1), units)


@dataclass(frozen=True)
class Components:
    """Hold where the leakage of attention log-probabilities comes from, each by layer and head."""

    total: Leakage  # of log A_ij = logit_ij - log Z_i in the causal pass
    denominators: Leakage  # of log Z_i in the causal pass: the mask's component
    logits: Leakage  # in the causal pass
    cross: Float[np.ndarray, "T H N N"]  # Gram matrices of logits with log Z: what makes variances not add up
    residual: Leakage  # of the logits in the bidirectional pass: the residual stream's component


def _quadratic(
    weights: Float[np.ndarray, "B N"], G: Float[np.ndarray, "*heads N N"], apart: Float[np.ndarray, "N N"]
) -> Float[np.ndarray, "B *heads"]:
    """Return Σ w_p w_q G_pq over the pairs that are apart, for every row of weights."""
    between = (G * apart).reshape(-1, *apart.shape)
    found = np.stack([((weights @ g) * weights).sum(1) for g in between], axis=1)
    return found.reshape(len(weights), *G.shape[:-2])


def _labels(G: Float[np.ndarray, "*heads N N"], units: Int[np.ndarray, "N"] | None) -> Int[np.ndarray, "N"]:
    """Return the unit of each prompt."""
    return np.arange(G.shape[-1]) if units is None else units


def _apart(
    G: Float[np.ndarray, "*heads N N"], units: Int[np.ndarray, "N"] | None, minimum: int
) -> Float[np.ndarray, "N N"]:
    """Return 1 for prompts of different units, 0 else."""
    labels = _labels(G, units)
    there = np.unique(labels).size
    if there < minimum:
        raise errors.invalid("prompts", f"at least {minimum} of different documents for this statistic", there)
    return (labels[:, None] != labels).astype(np.float64)

"""What moves influence to the start or to the end: drift, the lemmas on the order, and rollouts of many small cases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from posbias.rollout import schedules
from posbias.rollout.clock import hop_distribution
from posbias.rollout.influence import influence_history
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.masks import Mask
from posbias.rollout.order import ROUNDING, prefix_masses
from posbias.rollout.profiles import u_shape
from posbias.rollout.structured import structured_kernels


def recency_drift(before: Float[np.ndarray, "... n"], after: Float[np.ndarray, "... n"]) -> float:
    """Return min over cutoffs k of F_k(before) - F_k(after): at least 0 if every prefix mass falls or stays.

    Source: the order of the residual-aware paper, appendix A.1; a *primacy drift* has the arguments exchanged.

    >>> early, late = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    >>> recency_drift(early, late), recency_drift(late, early)
    (0.0, -0.25)
    """
    return float((prefix_masses(before) - prefix_masses(after)).min())


def case_drifts(
    before: Float[np.ndarray, "cases *more"], after: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "cases"]:
    """Return, for each case, the smallest fall of a prefix mass: negative where the drift is not towards recency.

    Source: :func:`recency_drift`, case by case.

    >>> early, late = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    >>> case_drifts(np.stack([early, late]), np.stack([late, early]))
    array([ 0.  , -0.25])
    """
    return (prefix_masses(before) - prefix_masses(after)).reshape(len(before), -1).min(axis=1)


def mean_kernel(
    logits: Float[np.ndarray, "*over n n"], mask: Mask | Bool[np.ndarray, "n n"]
) -> Float[np.ndarray, "n n"]:
    """Return the average attention kernel of one layer over inputs and heads.

    Source: residual-aware paper, section 3 (kernels are averages over a data set).

    >>> from posbias.rollout import masks
    >>> two_inputs = np.array([[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [np.log(3), 0.0]]])
    >>> mean_kernel(two_inputs, masks.causal())
    array([[1.   , 0.   ],
           [0.625, 0.375]])
    """
    kernels = attention_kernel(logits, mask)
    return kernels.reshape(-1, *kernels.shape[-2:]).mean(axis=0)


def sort_stacks(A: Float[np.ndarray, "*over n n"]) -> Float[np.ndarray, "*over n n"]:
    """Return the stochastically monotone kernels whose prefix masses are those of A, sorted at every cutoff.

    For every cutoff k the n prefix masses of a kernel are handed out anew, the largest to row 1. Sorting the columns
    of an array keeps its rows in order, so that each row stays a distribution; a causal or sliding-window mask is kept
    as well. A monotone kernel is returned as it is: every monotone kernel can come out, which is what a random test
    wants.

    >>> sort_stacks(np.array([[[0.25, 0.75], [1.0, 0.0]]]))
    array([[[1.  , 0.  ],
            [0.25, 0.75]]])
    """
    masses = prefix_masses(A)
    masses = -np.sort(-masses / masses[..., -1:], axis=-2)
    return np.diff(masses, axis=-1, prepend=0.0)


def case_rollouts(
    A: Float[np.ndarray, "cases T n n"], lambdas: Float[np.ndarray, "schedules layers"]
) -> Float[np.ndarray, "cases depths n n"]:
    """Return P_t = R_t ⋯ R_1 of every case for t = 0 to T: all rows, at every depth.

    Source: residual-aware paper, section 3; :func:`posbias.rollout.influence.rollout_matrix` for many cases.

    >>> case_rollouts(np.array([[[[1.0, 0.0], [0.5, 0.5]]]]), np.array([[0.4]]))[0, 1]
    array([[1. , 0. ],
           [0.2, 0.8]])
    """
    P = np.empty((A.shape[0], A.shape[1] + 1, *A.shape[2:]))
    P[:, 0] = np.eye(A.shape[-1])
    for t in range(A.shape[1]):
        mixing = lambdas[:, t, None, None]
        P[:, t + 1] = (1 - mixing) * P[:, t] + mixing * (A[:, t] @ P[:, t])
    return P


def rollout_history(
    A: Float[np.ndarray, "T n n"], lambdas: Float[np.ndarray, "layers"]
) -> Float[np.ndarray, "depths n n"]:
    """Return :func:`case_rollouts` of one case.

    >>> A = np.array([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    >>> rollout_history(A, np.ones(2))[:, 1].tolist()
    [[0.0, 1.0], [0.5, 0.5], [0.75, 0.25]]
    """
    return case_rollouts(A[None], lambdas[None])[0]


def is_monotone(K: Float[np.ndarray, "n n"], *, tolerance: float = ROUNDING) -> bool:
    """Say whether K is stochastically monotone: prefix masses fall from each row to the next.

    >>> is_monotone(np.array([[1.0, 0.0], [0.5, 0.5]]))
    True
    """
    return bool((np.diff(prefix_masses(K), axis=0) <= tolerance).all())


def last_rows(
    A: Float[np.ndarray, "*over T n n"], lambdas: Float[np.ndarray, "schedules layers"]
) -> Float[np.ndarray, "schedules n"]:
    """Return the influence profile of every case.

    Source: residual-aware paper, section 3; :func:`posbias.rollout.influence.influence_profile` for many cases.

    >>> last_rows(np.array([[[1.0, 0.0], [0.5, 0.5]]]), np.array([[0.4], [1.0]]))
    array([[0.2, 0.8],
           [0.5, 0.5]])
    """
    row = np.zeros((len(lambdas), 1, A.shape[-1]))
    row[..., -1] = 1.0
    for t in reversed(range(A.shape[-3])):
        mixing = lambdas[:, t, None, None]
        row = (1 - mixing) * row + mixing * (row @ A[..., t, :, :])
    return row[:, 0]


def add_diagonal(
    A: Float[np.ndarray, "*over n n"], d: float | Float[np.ndarray, "*over"]
) -> Float[np.ndarray, "*over n n"]:
    """Return the kernel whose logits are those of A plus d on the diagonal.

    Source: residual-aware paper, Proposition 4.5.

    >>> add_diagonal(np.array([[1.0, 0.0], [0.5, 0.5]]), np.log(3))
    array([[1.  , 0.  ],
           [0.25, 0.75]])
    """
    weights = A * np.exp(np.asarray(d)[..., None, None] * np.eye(A.shape[-1]))
    return weights / weights.sum(axis=-1, keepdims=True)


HYPOTHESES = {
    "A monotone": ("A.2", "A.3", "A.5"),
    "μ ⪯ ν": ("A.2",),
    "λ ≤ 1": ("A.3",),
    "rows ordered": ("A.4",),
    "f decreasing": ("A.5",),
}
"""What can be dropped, and which lemmas need it."""

SCALE = 4.0
"""Standard deviation of the random logits: large enough for rows that put nearly all weight on one key."""


@dataclass(frozen=True)
class LemmaCases:
    """Hold what the lemmas speak of, many cases at once."""

    A: Float[np.ndarray, "cases n n"]  # Stochastically monotone kernels
    earlier: Float[np.ndarray, "cases n n"]  # Kernels each of whose rows is at most as recent as that of A
    mu: Float[np.ndarray, "cases n"]
    nu: Float[np.ndarray, "cases n"]  # more recent than mu
    lambda_: Float[np.ndarray, "cases"]  # Residual mixing, in [0, 1]
    f: Float[np.ndarray, "cases n"]  # Decreasing functions of position


def random_cases(cases: int, n: int, mask: Mask, rng: np.random.Generator, dropped: str | None = None) -> LemmaCases:
    """Draw cases that meet the hypotheses of all four lemmas, or all but one.

    Gaussian logits go through the masked softmax, and prefix masses are then sorted at every cutoff. In every other
    case μ and ν are the point masses on two neighbouring positions, where order is lost most easily.

    >>> from posbias.rollout import masks
    >>> drawn = random_cases(3, 4, masks.causal(), np.random.default_rng(0))
    >>> drawn.A.shape, bool((case_drifts(drawn.mu, drawn.nu) >= -ROUNDING).all())
    ((3, 4, 4), True)
    """
    A, other = attention_kernel(rng.normal(scale=SCALE, size=(2, cases, n, n)), mask)
    if dropped != "A monotone":
        A = sort_stacks(A)
    larger = np.maximum(prefix_masses(A), prefix_masses(other))
    earlier = np.diff(larger, axis=-1, prepend=0.0)
    if dropped == "rows ordered":
        row = rng.integers(n, size=cases), np.arange(cases)
        earlier[row[1], row[0]] = other[row[1], row[0]]
    pair = prefix_masses(rng.dirichlet(np.full(n, 0.3), size=(cases, 2)))
    if dropped != "μ ⪯ ν":
        pair = -np.sort(-pair, axis=1)
        at = rng.integers(n - 1, size=cases // 2)
        pair[: cases // 2] = np.arange(n) >= np.stack([at, at + 1], axis=1)[..., None]
    mu, nu = np.diff(pair, axis=-1, prepend=0.0).transpose(1, 0, 2)
    f = rng.normal(size=(cases, n))
    if dropped != "f decreasing":
        f = -np.sort(-f, axis=1)
    lambda_ = rng.uniform(size=cases) + (dropped == "λ ≤ 1")
    return LemmaCases(A, earlier / earlier.sum(axis=-1, keepdims=True), mu, nu, lambda_, f)


def lemmas_hold(drawn: LemmaCases) -> dict[str, Bool[np.ndarray, "cases"]]:
    """Say in which cases the conclusions of lemmas A.2 to A.5 hold, whether or not these meet the hypotheses.

    Source: residual-aware paper, appendix A.1.

    >>> from posbias.rollout import masks
    >>> held = lemmas_hold(random_cases(100, 4, masks.causal(), np.random.default_rng(0)))
    >>> {lemma: bool(where.all()) for lemma, where in held.items()}
    {'A.2': True, 'A.3': True, 'A.4': True, 'A.5': True}
    """
    mixing = drawn.lambda_[:, None, None]
    R = (1 - mixing) * np.eye(drawn.A.shape[-1]) + mixing * drawn.A
    moved_mu, moved_nu, from_earlier = (
        np.einsum("ci,cij->cj", p, K) for p, K in ((drawn.mu, drawn.A), (drawn.nu, drawn.A), (drawn.mu, drawn.earlier))
    )
    stochastic = (R.min(axis=(1, 2)) >= 0) & (np.abs(R.sum(axis=2) - 1).max(axis=1) <= ROUNDING)
    means = np.einsum("cij,cj->ci", drawn.A, drawn.f)
    return {
        "A.2": case_drifts(moved_mu, moved_nu) >= -ROUNDING,
        "A.3": (case_drifts(R[:, :-1], R[:, 1:]) >= -ROUNDING) & stochastic,
        "A.4": case_drifts(from_earlier, moved_mu) >= -ROUNDING,
        "A.5": (np.diff(means, axis=1) <= ROUNDING).all(axis=1),
    }


def trough_map(
    n: int, T: int, tau: Float[np.ndarray, "taus"], slopes: Float[np.ndarray, "S H"]
) -> tuple[Float[np.ndarray, "S taus"], Float[np.ndarray, "S taus"]]:
    """Return depth and location of the trough for every pair of slopes and total mixing.

    All layers share a kernel, so that the last rows of its powers are computed once for each row of slopes, and only
    their weights, the distribution of the number of hops, change with the mixing.

    Source: ours; depth and location are those of :func:`posbias.rollout.profiles.u_shape`. Where the trough ends in
    the limit of many tokens is known: :func:`studies.clock.trough.critical_mixing`.

    >>> depth, location = trough_map(64, 12, np.array([1.2]), np.array([[0.5, 0.25, 0.125, 0.0625]]))
    >>> depth.shape, bool(depth[0, 0] > 0)
    ((1, 1), True)
    """
    weights = np.zeros((len(tau), T + 1))
    for row, total in zip(weights, tau, strict=True):
        omega = hop_distribution(schedules.constant(T, total / T))
        row[: omega.size] = omega
    depth, location = np.empty((2, len(slopes), len(tau)))
    for line, own in enumerate(slopes):
        powers = influence_history(structured_kernels(T, slope=own), np.ones(T), n)
        shapes = [u_shape(omega @ powers) for omega in weights]
        depth[line] = [shape.depth for shape in shapes]
        location[line] = [shape.location for shape in shapes]
    return depth, location


def value_influence(
    A: Float[np.ndarray, "T H n n"], W: Float[np.ndarray, "layers heads d d"], *, row: int = -1
) -> Float[np.ndarray, "n"]:
    """Return ‖∂x_row / ∂x_j‖_F, summing to 1, of the network x_i ← x_i + Σ_h Σ_j A^h[i, j] W^h x_j.

    Source: ours, for the multi-head extension of the residual-aware paper (appendix B).

    >>> A = np.array([[[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]]]])
    >>> value_influence(A, np.ones((1, 2, 1, 1)))
    array([0.5, 0.5])
    """
    (T, H, n), d = A.shape[:3], W.shape[-1]
    G = np.zeros((n, d, d))
    G[row] = np.eye(d)
    for t in reversed(range(T)):
        G = G + sum(np.tensordot(A[t, h], G, axes=(0, 0)) @ W[t, h] for h in range(H))
    norms = np.linalg.norm(G, axis=(1, 2))
    return norms / norms.sum()

"""Lemmas A.2 to A.5 of the residual-aware paper, as statements that random cases can contradict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from posbias import errors
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.masks import Mask
from posbias.rollout.order import ROUNDING, prefix_masses
from studies.theorems.case_rollouts import sort_stacks
from studies.theorems.drift import case_drifts

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
    """Hold what the lemmas speak of, many cases at once.

    Parameters
    ----------
    A
        Stochastically monotone kernels.
    earlier
        Kernels each of whose rows is at most as recent as that of A.
    mu, nu
        Distributions, nu the more recent one.
    lambda_
        Residual mixing, in [0, 1].
    f
        Decreasing functions of position.
    """

    A: Float[np.ndarray, "cases n n"]
    earlier: Float[np.ndarray, "cases n n"]
    mu: Float[np.ndarray, "cases n"]
    nu: Float[np.ndarray, "cases n"]
    lambda_: Float[np.ndarray, "cases"]
    f: Float[np.ndarray, "cases n"]


def random_cases(cases: int, n: int, mask: Mask, rng: np.random.Generator, dropped: str | None = None) -> LemmaCases:
    """Draw cases that meet the hypotheses of all four lemmas, or all but one.

    Gaussian logits go through the masked softmax, and prefix masses are then sorted at every cutoff. In every other
    case μ and ν are the point masses on two neighbouring positions, where order is lost most easily.

    Parameters
    ----------
    cases
        How many.
    n
        Tokens, at least 2.
    mask
        Allowed keys.
    rng
        Where logits, distributions, mixing and functions come from.
    dropped
        A key of :data:`HYPOTHESES`: what the cases need not meet.

    Raises
    ------
    ValueError
        If ``dropped`` is none of the hypotheses.

    >>> from posbias.rollout import masks
    >>> drawn = random_cases(3, 4, masks.causal(), np.random.default_rng(0))
    >>> drawn.A.shape, bool((case_drifts(drawn.mu, drawn.nu) >= -ROUNDING).all())
    ((3, 4, 4), True)
    """
    if dropped is not None and dropped not in HYPOTHESES:
        raise errors.invalid("dropped", ", ".join(HYPOTHESES), dropped)
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

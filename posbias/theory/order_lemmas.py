"""Lemmas A.2 to A.5 of the residual-aware paper, as statements that a random case can contradict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.rollout.kernels import attention_kernel, residual_kernel
from posbias.rollout.masks import Mask
from posbias.rollout.order import ROUNDING, dominates, is_monotone, monotone_rearrangement, prefix_masses


@dataclass(frozen=True)
class LemmaCase:
    """Hold what the lemmas speak of.

    Parameters
    ----------
    A
        A stochastically monotone kernel.
    earlier
        A kernel each of whose rows is at most as recent as that of A.
    mu, nu
        Distributions, nu the more recent one.
    lambda_
        Residual mixing, in [0, 1].
    f
        An increasing function of position.
    """

    A: Float[np.ndarray, "n n"]
    earlier: Float[np.ndarray, "n n"]
    mu: Float[np.ndarray, "n"]
    nu: Float[np.ndarray, "n"]
    lambda_: float
    f: Float[np.ndarray, "n"]


def random_case(n: int, mask: Mask, rng: np.random.Generator) -> LemmaCase:
    """Draw a case that meets the hypotheses of all four lemmas.

    Gaussian logits go through the masked softmax, and prefix masses are then sorted at every cutoff.

    Parameters
    ----------
    n
        Tokens, at least 2.
    mask
        Allowed keys.
    rng
        Where logits, distributions, mixing and function come from.

    >>> from posbias.rollout import masks
    >>> case = random_case(4, masks.causal(), np.random.default_rng(0))
    >>> is_monotone(case.A), dominates(case.nu, case.mu)
    (True, True)
    """
    A, other = attention_kernel(rng.normal(scale=2, size=(2, n, n)), mask)
    A = monotone_rearrangement(A)
    larger = np.maximum(prefix_masses(A), prefix_masses(other))
    earlier = np.diff(larger, axis=1, prepend=0.0)
    mu, nu = monotone_rearrangement(rng.dirichlet(np.full(n, 0.3), size=n))[[0, -1]]
    lambda_ = float(rng.uniform())
    f = np.sort(rng.normal(size=n))
    return LemmaCase(A, earlier / earlier.sum(axis=1, keepdims=True), mu, nu, lambda_, f)


def lemmas_hold(case: LemmaCase) -> dict[str, bool]:
    """Say which conclusions of lemmas A.2 to A.5 hold for a case, whether or not it meets the hypotheses.

    Source: residual-aware paper, appendix A.1.

    >>> from posbias.rollout import masks
    >>> lemmas_hold(random_case(4, masks.causal(), np.random.default_rng(0)))
    {'A.2': True, 'A.3': True, 'A.4': True, 'A.5': True}
    """
    A, mu, nu = case.A, case.mu, case.nu
    return {
        "A.2": dominates(nu @ A, mu @ A),
        "A.3": is_monotone(residual_kernel(A, case.lambda_)),
        "A.4": dominates(mu @ A, mu @ case.earlier),
        "A.5": bool((np.diff(A @ -case.f) <= ROUNDING).all()),
    }

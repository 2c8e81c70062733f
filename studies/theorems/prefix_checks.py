"""Checks of what Wu et al. say of prefix masks: what tokens of the prefix keep, and later ones lose."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from posbias.rollout import masks
from studies.checks import Check
from studies.theorems import graphs
from studies.theorems.forces import rollout_history
from studies.theorems.mask_checks import forgetting, forgetting_sharp, held, larger, never_exceeded
from studies.theorems.masks import PREFIXES, TRIALS, Bound, Cases, Example, N, T, worst_prefixes

Kernels = Float[np.ndarray, "T n n"]
Weights = Callable[[Kernels], Float[np.ndarray, "n"]]


def least_weight(A: Kernels) -> Float[np.ndarray, "n"]:
    """Return the least weight that any query of the first layer gives to each key."""
    return np.asarray(A[0].min(axis=0))


def largest_weight(A: Kernels) -> Float[np.ndarray, "n"]:
    """Return the largest weight that any query of the first layer gives to each key."""
    return np.asarray(A[0].max(axis=0))


def kept_between(kernels: Kernels, K: int, least: Weights = least_weight, most: Weights = largest_weight) -> bool:
    """Say whether prefix tokens keep what is between two bounds, at any depth and query."""
    P = rollout_history(kernels, np.ones(len(kernels)))[1:, :, :K]
    enough = P.min(axis=(0, 1)) >= least(kernels)[:K] - 1e-12
    return bool((enough & (P.max(axis=(0, 1)) <= most(kernels)[:K] + 1e-12)).all())


def least_kept(n: int, u: float, factor: float = 1.0) -> bool:
    """Say whether ε times a factor is below what the worst case leaves to prefix tokens."""
    e, graph = u / n, masks.prefix(n - 2).matrix(n)
    least = graphs.extreme_influence(graph, e, 24, "smallest")[:, :, : n - 2]
    return bool((least >= factor * e - 1e-12).all())


def ratio_step(A: Kernels, K: int, upto: Callable[[int, int], int]) -> bool:
    """Say whether ratios of prefix columns stay above their least ratio in layer 1, over so many of its rows."""
    P = rollout_history(A, np.ones(len(A)))[2:, :, :K]
    of_rollouts = P[..., :, None] / P[..., None, :]
    first = A[0][:, :K, None] / A[0][:, None, :K]
    for i in range(A.shape[1]):
        if (of_rollouts[:, i] < first[: upto(i + 1, K)].min(axis=0) - 1e-12).any():
            return False
    return True


def statement_check(example: Example, cases: Cases) -> Check:
    """Return the check of Theorem 4.3 as printed."""
    pairs = list(zip(cases.sizes, cases.near, strict=True))
    worst = [worst_prefixes(n, u) for n, u in pairs]
    every = [example.large(f"prefix {K}", K, K + 1) for K in PREFIXES] + sum(worst, [])
    wrong: dict[str, Bound] = {
        "j - K + 1": lambda T, n, K, e, j: forgetting(T, n, K, e, j, j - K + 1),
        "ε 2% larger": larger(1.02, forgetting),
    }  # fmt: skip
    return Check(
        "WU-T4.3", "statement", "Theorem 4.3: every prefix token keeps a share.",
        never_exceeded(every, forgetting, T) and all(least_kept(*x) for x in pairs),
        "off the prefix no key keeps more than (1-ε)(1-(j-K)ε)^(T-1), each token of the prefix keeps at least ε, in "
        f"random networks of {N} tokens and {T} layers with K = {', '.join(map(str, PREFIXES))} and in the worst cases "
        f"of {len(every) - len(PREFIXES)} prefixes",
        "a later key keeps more than the bound, or a prefix token less than ε",
        held(worst, **wrong) | {"a κ 2% above ε": [least_kept(*x, 1.02) for x in pairs]},
        "a prefix token keeps less than its bound, or a later one more", {"kind": "proved"},
    )  # fmt: skip


def shares_kept(example: Example, K: int) -> tuple[Float[np.ndarray, "K"], ...]:
    """Return of each prefix token its least weight in layer 1, its final share and its largest weight in layer 1."""
    name = f"prefix {K}"
    A = example.runs[name].kernels
    return least_weight(A)[:K], example.history[name][-1, -1, :K], largest_weight(A)[:K]


def constants_check(example: Example, cases: Cases) -> Check:
    """Return the check of our constants."""
    K, drawn = PREFIXES[-1], cases.prefixes
    worst = [worst_prefixes(n, u) for n, u in zip(cases.sizes, cases.near, strict=True)]
    every = [example.large(f"prefix {K}", K, K + 1) for K in PREFIXES] + sum(worst, [])
    networks = [(example.runs[f"prefix {K}"].kernels, K) for K in PREFIXES]
    wrong: dict[str, Bound] = {
        "j for j - 1": lambda T, n, K, e, j: forgetting_sharp(T, n, K, e, j + 1),
        "ε 0.1% larger": larger(1.001, forgetting_sharp),
    }  # fmt: skip
    ranges: dict[str, tuple[Weights, Weights]] = {
        "least of the second layer": (lambda A: least_weight(A[1:]), largest_weight),
        "least 2% larger": (lambda A: 1.02 * least_weight(A), largest_weight),
        "largest of the second layer": (least_weight, lambda A: largest_weight(A[1:])),
        "largest 2% smaller": (least_weight, lambda A: 0.98 * largest_weight(A)),
    }
    broken = {}
    for what, bounds in ranges.items():
        broken[what] = [kept_between(*x, *bounds) for x in drawn]
    low, share, high = shares_kept(example, K)
    return Check(
        "WU-T4.3", "our constants", "Ours: the first layer bounds the share of each prefix token.",
        never_exceeded(every, forgetting_sharp, T) and all(kept_between(*x) for x in networks + drawn),
        f"off the prefix the bound is (1-(j-1)ε)^T, sharper than the printed one. At K = {K} each token of the prefix "
        f"keeps {share.min():.3f} to {share.max():.3f}, between min_l A_1[l, k] ≥ {low.min():.3f} and max_l A_1[l, k] "
        f"≤ {high.max():.3f}, which hold at every depth",
        "a later key keeps more than (1-(j-1)ε)^T, or a prefix token less than its least or more than its largest "
        "weight in layer 1",
        held(worst, **wrong) | broken, "a token keeps more or less than its bounds allow", {"kind": "proved"},
    )  # fmt: skip


def proof_check(cases: Cases) -> Check:
    """Return the check of the printed proof."""
    printed = [ratio_step(*x, min) for x in cases.prefixes]
    return Check(
        "WU-T4.3", "printed proof", "The printed proof of 4.3 is complete.", all(printed),
        "the printed bound on ratios of prefix columns, with the minimum over l ≤ min(i, K), fails for "
        f"{printed.count(False)} of {TRIALS} random prefix kernels; with the minimum over l ≤ max(i, K) for "
        f"{sum(not ratio_step(*x, max) for x in cases.prefixes)}",
        "a ratio of two prefix columns is below the least one of layer 1",
        {
            "the minimum over one token less than max(i, K)": [
                ratio_step(*x, lambda i, K: max(i, K) - 1) for x in cases.prefixes
            ]
        },
        "the minimum must run to max(i, K), like the sums before it", {"in_part": True},
    )  # fmt: skip


def prefix_checks(example: Example, cases: Cases) -> list[Check]:
    """Return the checks of Theorem 4.3."""
    return [statement_check(example, cases), constants_check(example, cases), proof_check(cases)]

"""Checks of the last two forces: position logits and self-preference."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.rollout import masks, schedules
from posbias.rollout.influence import influence_profile
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import alibi_slopes, position_logits
from posbias.rollout.order import dominates
from posbias.rollout.structured import structured_kernels
from studies.checks import Check
from studies.theorems.drifts import HEADS, MIXING, SLOPE, TINY, Draws, Drifts, Families, N, T
from studies.theorems.force_checks import ALL_TO_FIRST, PROVED, induction_check
from studies.theorems.forces import add_diagonal, case_drifts, case_rollouts, last_rows, mean_kernel, recency_drift

INPUTS, SCALES = 16, (0, 0.25, 1.0, 4.0)
"""Random inputs of a mean kernel; factors of ALiBi's slopes."""
CONTENT = np.array(
    [
        [[0, 0, 0], [-8, 8, 0], [20, 0, 0]],
        [[0, 0, 0], [0, 0, 0], [-20, 4, 4]],
    ]
)
"""Position logits move weight from token 2 to 3 in layer 2, and from there content sends it to token 1."""


def two_kernels(
    key: np.ndarray, pair: np.ndarray, rise: np.ndarray, query: float, dip: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return kernels without and with position logits that rise by steps, one of which may fall."""
    rise[..., rise.shape[-1] // 2] *= -dip if dip else 1
    content = np.sqrt(1 - query) * key + np.sqrt(query) * pair
    plain = attention_kernel(content, masks.causal())
    return plain, attention_kernel(content + rise.cumsum(axis=-1), masks.causal())


def with_logits(draws: Draws, n: int, query: float = 0.0, dip: float = 0.0) -> Drifts:
    """Check Proposition 4.4 on random cases: rows and profiles."""
    key = draws.rng.normal(scale=4, size=(draws.cases, 3, 1, n))
    pair = draws.rng.normal(scale=4, size=(draws.cases, 3, n, n))
    rise = draws.rng.exponential(size=(draws.cases, 3, n, n))
    A0, A = two_kernels(key, pair, rise, query, dip)
    lambdas = draws.mixing()
    profiles = case_drifts(last_rows(A0, lambdas), last_rows(A, lambdas))
    return np.minimum(case_drifts(A0, A), profiles)


def logits_step(draws: Draws, n: int, query: float = 0.0, dip: float = 0.0) -> Drifts:
    """Check one step: from tokens in order to rows without and with position logits."""
    key, pair = draws.rng.normal(scale=4, size=(2, draws.cases, n, n))
    rise = draws.rng.exponential(size=(draws.cases, n, n))
    A0, A = two_kernels(key[:, :1], pair, rise, query, dip)
    x = draws.mixing()[:, :1, None]
    R0, R = ((1 - x) * np.eye(n) + x * kernel for kernel in (A0, A))
    return np.minimum(case_drifts(R0[:, :-1], R[:, 1:]), case_drifts(R0, R))


def swept_drift(draws: Draws) -> float:
    """Return the smallest drift as ALiBi's slopes grow, of rows and of profiles, with random content of the key."""
    bias = alibi_slopes(HEADS)[:, None, None] * position_logits(N, 1.0)
    content = draws.rng.normal(scale=2, size=(T, INPUTS, 1, 1, N))
    swept = []
    for scale in SCALES:
        layers = [mean_kernel(layer + scale * bias, masks.causal()) for layer in content]
        swept.append(np.stack(layers))
    profiles = [influence_profile(A, schedules.constant(T, MIXING)) for A in swept]
    return min(*map(recency_drift, swept, swept[1:]), *map(recency_drift, profiles, profiles[1:]))


def counterexamples_hold() -> bool:
    """Say whether logits that grow with distance, that rise and fall, or meet no monotone kernel lose the order."""
    distance, half = position_logits(12, 1.0), [0.5] * 4  # four layers with λ = 1/2
    trials = {"away": -0.5 * distance, "slow": np.cos(0.8 * distance), "plain": 0 * distance}
    p = {name: influence_profile(attention_kernel(b, masks.causal()), half) for name, b in trials.items()}
    slow = dominates(p["slow"], p["plain"]) or dominates(p["plain"], p["slow"])
    kernels = [attention_kernel(CONTENT + b, masks.causal()) for b in (0.0, position_logits(3, 1.0))]
    alone, with_b = (influence_profile(A, [1, 1]) for A in kernels)
    return not dominates(p["away"], p["plain"]) and not dominates(with_b, alone) and not slow


def position_check(draws: Draws) -> Check:
    """Return the check of Proposition 4.4."""
    small, swept = draws.drifts(with_logits), swept_drift(draws)
    power = {
        "content of query and key": draws.passes(with_logits, query=1.0),
        "a fifth of the content by the query": draws.passes(with_logits, query=0.2),
        "one logit falls by a tenth of a step": draws.passes(with_logits, dip=0.1),
    }
    return Check(
        "RA-P4.4", "statement", "Proposition 4.4, position logits.",
        bool((small >= TINY).all() and swept >= TINY and counterexamples_hold()),
        f"every cutoff is in order in {small.size} random cases with content of the key (4 "
        f"to 6 tokens, 3 layers) and for {', '.join(f'{s:g}' for s in SCALES)} × ALiBi's "
        f"slopes (mean over {INPUTS} inputs, {T} layers, n={N}); false if neither kernel "
        "is monotone",
        "a prefix mass of a row or profile grows with the slope by over 1e-12",
        power, "a prefix mass grows with the slope", PROVED,
    )  # fmt: skip


def position_proof_check(draws: Draws) -> Check:
    """Return the check that the printed proof of Proposition 4.4 names all that it uses."""
    with_both, named = draws.drifts(logits_step), draws.drifts(logits_step, query=1.0)
    power = {
        "a fifth of the content by the query": draws.passes(logits_step, query=0.2),
        "one logit falls by half a step": draws.passes(logits_step, dip=0.5),
    }
    return induction_check("4.4", with_both, named, power)


def signed_drifts(A: np.ndarray, d: np.ndarray, lambdas: np.ndarray) -> Drifts:
    """Return the smallest drift: to the end for d, to the start for -d, in any row."""
    stacks = [add_diagonal(A, sign * d) for sign in (-1, 0, 1)]
    less, plain, more = (case_rollouts(K, lambdas)[:, -1] for K in stacks)
    return np.minimum(case_drifts(plain, more), case_drifts(less, plain))


def with_diagonal(draws: Draws, n: int, flip: float = 0.0, **broken: Any) -> Drifts:
    """Check Proposition 4.5 on random cases."""
    d = draws.rng.exponential(2, size=(draws.cases, 3))
    d[:, 1] *= -flip if flip else 1
    return signed_drifts(draws.kernels(n, **broken), d, draws.mixing())


def mean_drift(draws: Draws, d: Float[np.ndarray, "T"]) -> float:
    """Return the smallest drift of kernels averaged over random inputs."""
    keys = draws.rng.normal(scale=2, size=(T, INPUTS, 1, N)) + position_logits(N, SLOPE)
    profiles = []
    for sign in (-1, 0, 1):
        pairs = zip(keys, d, strict=True)
        A = [mean_kernel(layer + sign * size * np.eye(N), masks.causal()) for layer, size in pairs]
        profiles.append(influence_profile(np.stack(A), schedules.constant(T, MIXING)))
    less, base, more = profiles
    return min(recency_drift(less, base), recency_drift(base, more))


def mixed_signs() -> Float[np.ndarray, "3"]:
    """Return how prefix masses of three tokens change with a negative diagonal in layer 1 and a positive in 2."""
    U = structured_kernels(1).dense(0, 3)
    mixed = np.stack([add_diagonal(U, -2), add_diagonal(U, 2)])
    return np.cumsum(influence_profile(mixed, [1, 1]) - influence_profile(U, [1, 1]))


def loses_without_mask() -> bool:
    """Say whether a positive diagonal keeps mass on token 1 where every token sees all others."""
    everyone = np.full((3, 3), 1 / 3)
    pairs = [np.stack([A, ALL_TO_FIRST]) for A in (everyone, add_diagonal(everyone, 2))]
    plain, own = (influence_profile(A, [1, 1])[0] for A in pairs)
    return bool(own > plain)


def diagonal_check(draws: Draws, families: Families) -> Check:
    """Return the check of Proposition 4.5."""
    small, d = draws.drifts(with_diagonal), draws.rng.exponential(2, size=(1, T))
    schedule = draws.rng.uniform(size=(1, T))
    signed = {name: signed_drifts(A[None], d, schedule)[0] for name, A in families.stacks.items()}
    signed["mean over inputs"] = mean_drift(draws, d[0])
    crossing = mixed_signs()
    counter = crossing[0] < 0 < crossing[1] and loses_without_mask()
    power = {
        "kernels not monotone": draws.passes(with_diagonal, unsorted=1.0),
        "a tenth of every kernel not monotone": draws.passes(with_diagonal, unsorted=0.1),
        "one key after the query allowed": draws.passes(with_diagonal, ahead=1),
        "layer 2 of the other sign, a hundredth": draws.passes(with_diagonal, flip=0.01),
    }
    return Check(
        "RA-P4.5", "", "Proposition 4.5, self-preference.",
        bool((small >= TINY).all() and min(signed.values()) >= TINY and counter),
        "every row becomes more recent for d ≥ 0 and less recent for d ≤ 0 in "
        f"{small.size} random cases (4 to 6 tokens, 3 layers), {len(families.stacks)} families "
        f"(n={N}, {T} layers) and the mean over {INPUTS} inputs; with mixed signs prefix "
        f"masses change by {crossing[0]:+.3f} and {crossing[1]:+.3f}",
        "a prefix mass moves against the sign of the diagonal by over 1e-12",
        power, "a prefix mass moves against the sign of the diagonal", PROVED,
    )  # fmt: skip

"""Checks of the lemmas on the order of profiles, and of the first two forces: mask and residual."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.rollout import masks
from posbias.rollout.influence import influence_history, influence_profile
from posbias.rollout.order import dominates
from studies.checks import Check
from studies.theorems.drifts import SMALL, TINY, Draws, Drifts, Families, N, T
from studies.theorems.forces import (
    HYPOTHESES,
    case_drifts,
    case_rollouts,
    is_monotone,
    last_rows,
    lemmas_hold,
    random_cases,
)

MASKS = dict(zip(SMALL, (masks.causal(), masks.sliding_window(3), masks.full()), strict=True))
PROVED = {"kind": "proved"}
TO_FIRST = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 0]])
TO_SECOND = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
CROSSED = np.stack([TO_FIRST, TO_SECOND])
"""Token 3 looks at token 1 in layer 1, and in layer 2 at token 2, which looked at itself: not monotone."""
TO_LAST = np.tile([0.0, 0, 1], (3, 1))
ALL_TO_FIRST = np.tile([1.0, 0, 0], (3, 1))
STEP = "a step that meets the hypotheses of the lemma named ends in wrong order"
NAMED = "the steps name A.4 alone and need A.2, and with it Assumption 4.1, too"


def lemmas(draws: Draws, n: int, only: tuple[str, ...] = ("A.2", "A.3", "A.4", "A.5"), dropped: Any = None) -> Drifts:
    """Return 0 where the lemmas hold, -1 elsewhere; half the pairs are neighbours."""
    held = lemmas_hold(random_cases(draws.cases, n, MASKS[n], draws.rng, dropped))
    return np.all([held[lemma] for lemma in only], axis=0) - 1.0


def dropped_hypotheses() -> dict[str, bool]:
    """Say of each lemma without a hypothesis, on two or three tokens, whether its conclusion still holds."""
    swap, flat = np.array([[0.0, 1.0], [1.0, 0.0]]), np.full((2, 2), 0.5)
    first, last = np.eye(2)
    overshoot = (1 - 2) * np.eye(2) + 2 * flat  # λ = 2, still row-stochastic
    return {
        "A.2, A not monotone": dominates(last @ swap, first @ swap),
        "A.3, A not monotone": is_monotone(0.1 * np.eye(2) + 0.9 * swap),
        "A.3, λ = 2": overshoot.min() >= 0 and is_monotone(overshoot),
        "A.4, one row out of order": dominates(last @ swap, last @ np.eye(2)),
        "A.5, A not monotone": bool((np.diff(swap @ first) <= 0).all()),
        "A.5, A = I, f not decreasing": bool((np.diff([0.0, 1.0, 0.0]) <= 0).all()),
    }


def lemma_check(draws: Draws) -> Check:
    """Return the check of lemmas A.2 to A.5."""
    held, dropped = draws.drifts(lemmas), dropped_hypotheses()
    power = {
        f"{lemma} without: {what}": draws.passes(lemmas, only=(lemma,), dropped=what)
        for what, needed in HYPOTHESES.items()
        for lemma in needed
    }
    return Check(
        "RA-A.2-A.5", "", "Lemmas A.2 to A.5.", bool((held >= TINY).all()) and not any(dropped.values()),
        f"all four lemmas hold in {(held >= TINY).sum()} of {held.size} random cases of 4 "
        f"to 6 tokens (causal mask, window of 3, no mask); each of {len(dropped)} dropped "
        "hypotheses has a counterexample",
        "a conclusion fails in a case that meets the hypotheses, by a prefix "
        "mass off by more than 1e-12, or a counterexample fails",
        power, "a lemma fails in a random case that meets its hypotheses", PROVED,
    )  # fmt: skip


def depth_drifts(A: Float[np.ndarray, "cases T n n"], lambdas: Float[np.ndarray, "cases T"]) -> Drifts:
    """Return the smallest rise of a prefix mass with depth, over all rows, by case."""
    P = case_rollouts(A, lambdas)
    return case_drifts(P[:, 1:], P[:, :-1])


def deeper(draws: Draws, n: int, **broken: Any) -> Drifts:
    """Check Proposition 4.2 on random cases."""
    return depth_drifts(draws.kernels(n, **broken), draws.mixing())


def deeper_alike(draws: Draws, n: int) -> Drifts:
    """Check that the mask alone is enough if all layers share a kernel, monotone or not."""
    return depth_drifts(np.repeat(draws.kernels(n, 1.0)[:, :1], 3, axis=1), draws.mixing())


def deeper_last_row(draws: Draws, n: int) -> Drifts:
    """Check the last row of random cases without a mask."""
    P = case_rollouts(draws.kernels(n, ahead=n), draws.mixing())[:, :, -1]
    return case_drifts(P[:, 1:], P[:, :-1])


def mask_check(draws: Draws, families: Families) -> tuple[Check, float]:
    """Return the check of Proposition 4.2, and the share of cases without monotone kernels that break it."""
    small, schedule = draws.drifts(deeper), draws.rng.uniform(size=(1, T))
    growth = {name: depth_drifts(A[None], schedule)[0] for name, A in families.stacks.items()}
    assert min(draws.drifts(deeper_alike).min(), draws.drifts(deeper_last_row).min()) >= TINY
    power = {
        "kernels not monotone": draws.passes(deeper, unsorted=1.0),
        "a tenth of every kernel not monotone": draws.passes(deeper, unsorted=0.1),
        "one key after the query allowed": draws.passes(deeper, ahead=1),
    }
    lost = float((draws.drifts(deeper, unsorted=1.0) < TINY).mean())
    history = influence_history(CROSSED, [1, 1])
    row_1 = influence_history(TO_LAST, [0.5, 0.5], row=0)
    counter = history[2, 0] < history[1, 0] and row_1[1, 0] < row_1[0, 0]
    check = Check(
        "RA-P4.2", "", "Proposition 4.2, mask.",
        bool((small >= TINY).all() and min(growth.values()) >= TINY and counter),
        f"no prefix mass of any row falls with depth in {small.size} random cases (4 to 6 "
        f"tokens, 3 layers) and {len(growth)} families (uniform, decay, ALiBi, window, "
        f"random monotone; n={N}, {T} layers); without monotone kernels {lost:.0%} of the "
        "cases break it",
        "a prefix mass of a row falls from one depth to the next by over 1e-12",
        power, "a prefix mass falls with depth although the kernels are monotone", PROVED,
    )  # fmt: skip
    return check, lost


def less_mixing(draws: Draws, n: int, more: float = 0.0, **broken: Any) -> Drifts:
    """Check Proposition 4.3 on random cases."""
    A, large = draws.kernels(n, **broken), draws.mixing()
    layer = draws.rng.integers(3, size=(draws.cases, 1)) == np.arange(3)
    less = np.where(layer, large * draws.rng.uniform(size=large.shape), large)
    less = np.where(np.roll(layer, 1, axis=1), np.minimum((1 + more) * less, 1), less)
    return case_drifts(last_rows(A, large), last_rows(A, less))


def residual_check(draws: Draws, families: Families) -> Check:
    """Return the check of Proposition 4.3."""
    least = {"random cases": draws.drifts(less_mixing).min()}
    monotone = families.stacks["random, monotone"]
    last = np.concatenate([monotone[:-1], families.unsorted[-1:]])
    stacks = families.stacks | {"last layer not monotone": last}
    for name, A in stacks.items():
        large = draws.rng.uniform(size=(draws.cases, T))
        less = large * draws.rng.uniform(size=large.shape)
        least[name] = case_drifts(last_rows(A, large), last_rows(A, less)).min()
    unmasked = np.stack([TO_LAST, ALL_TO_FIRST])
    unordered = [influence_profile(CROSSED, [1, x])[0] for x in (1, 0)]
    ahead = [influence_profile(unmasked, [x, 1])[0] for x in (1, 0)]
    counter = unordered[0] < unordered[1] and ahead[0] < ahead[1]
    power = {
        "kernels not monotone": draws.passes(less_mixing, unsorted=1.0),
        "a tenth of every kernel not monotone": draws.passes(less_mixing, unsorted=0.1),
        "one key after the query allowed": draws.passes(less_mixing, ahead=1),
        "another layer mixes 1% more": draws.passes(less_mixing, more=0.01),
    }
    return Check(
        "RA-P4.3", "statement", "Proposition 4.3, residual.", bool(min(least.values()) >= TINY and counter),
        f"smaller λ give less prefix mass at every cutoff in {3 * draws.cases} random cases "
        f"(4 to 6 tokens, 3 layers) and {draws.cases} pairs of schedules in each of "
        f"{len(stacks)} families (n={N}, {T} layers); false without either hypothesis",
        "a prefix mass is larger under the smaller schedule by over 1e-12",
        power, "a prefix mass is larger under the smaller schedule", PROVED,
    )  # fmt: skip


def mixing_step(draws: Draws, n: int, excess: float = 0.0, **broken: Any) -> Drifts:
    """Check one step of the induction: from tokens in order to rows in order."""
    A, large = draws.kernels(n, **broken)[:, 0], draws.mixing()[:, :1, None]
    less = np.minimum((1 + excess) * large * draws.rng.uniform(size=large.shape), 1)
    R, R_less = ((1 - x) * np.eye(n) + x * A for x in (large, less))
    return np.minimum(case_drifts(R[:, :-1], R_less[:, 1:]), case_drifts(R, R_less))


def residual_proof_check(draws: Draws) -> Check:
    """Return the check that the printed proof of Proposition 4.3 names all that it uses."""
    with_both, named = draws.drifts(mixing_step), draws.drifts(mixing_step, unsorted=1.0)
    broken: dict[str, dict[str, float]] = {
        "a tenth of every kernel not monotone": {"unsorted": 0.1},
        "one key after the query allowed": {"ahead": 1},
        "monotone kernels, mixing up to 10% more: rows unordered": {"excess": 0.1},
    }
    power = {what: draws.passes(mixing_step, **how) for what, how in broken.items()}
    return induction_check("4.3", with_both, named, power)


def induction_check(number: str, with_both: Drifts, named: Drifts, power: dict[str, list[bool]]) -> Check:
    """Return the check of one step of a printed induction, with the hypotheses that it names."""
    return Check(
        f"RA-P{number}", "printed proof", f"The printed proof of Proposition {number} names all that it uses.",
        bool((named >= TINY).all()),
        "a step of the induction takes two rows in order to two rows; if kernel rows are "
        "ordered, which is all that the named lemma A.4 asks for, "
        f"{(named < TINY).mean():.0%} of {named.size} random steps end in the wrong order; "
        "if kernels are also monotone (Assumption 4.1, used by A.2), "
        f"{(with_both < TINY).mean():.0%}",
        STEP, power, NAMED, {"in_part": True},
    )  # fmt: skip

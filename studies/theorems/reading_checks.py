"""Checks of the theorems on the law of reading, each with what is broken beside it, and what they say of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize

from studies.checks import Check
from studies.theorems import reading as theorem

GAMMAS, NUMBERS, NEAR = (0.05, 0.3, 0.77, 1.5, 4.0), (3, 4, 5, 8, 16, 40), 1e-5
GRID = [(x, P) for x in GAMMAS for P in NUMBERS]
CASES = ((0.77, 1.4, 1.0), (0.3, 0.2, 0.5), (1.5, -1.0, 2.0))
Order = Callable[[Float[np.ndarray, "P"]], Int[np.ndarray, "P"]]


def right(x: float, P: int, first: float, last: float | None = None) -> Float[np.ndarray, "P"]:
    """Return the accuracy by place, from the whole matrix."""
    return theorem.reading_matrix(x, theorem.end_pulls(P, first, last)).diagonal()


def decides(bound: float, x: float, P: int) -> bool:
    """Say whether the middle is lost above a bound and not below it."""
    above, below = (theorem.is_middle_lost(right(x, P, bound + y)) for y in (NEAR, -NEAR))
    return bool(above and not below)


def tends(x: float, P: int) -> bool:
    """Say whether the accuracies between the ends are within the remainder of γ / w."""
    limit, rest = theorem.share_limit(x, P, 1.0, -0.5)
    inner = right(x, P, 1.0, -0.5)[1:-1]
    return bool((np.abs(inner - limit) <= inner * rest + 1e-12).all())


def levels(x: float, limit: float) -> bool:
    """Say whether the middle of a long list is at its limit."""
    P = 2 * int(40 / x) + 1
    return bool(abs(right(x, P, 1.0)[P // 2] / limit - 1) < 1e-9)


def is_best(x: float, first: float, last: float, order: Order) -> bool:
    """Say whether no order of six documents has more right answers."""
    by_place, rates = right(x, 6, first, last), 0.5 ** np.arange(6)
    most, _ = theorem.best_places(6, 6, lambda p: theorem.right_answers(p, rates, by_place))
    return bool(theorem.right_answers(list(order(by_place)), rates, by_place) >= most - 1e-9)


def reversed_order(by_place: Float[np.ndarray, "P"]) -> Int[np.ndarray, "P"]:
    """Return the best order from its end."""
    return theorem.best_order(by_place)[::-1]


def all_parts() -> dict[str, tuple[list[bool], list[bool], str, str]]:
    """Return by part which cases hold, which hold if something is broken, what that is, and what would fail."""
    limits = [tends(x, P) for x, P in GRID] + [levels(x, np.tanh(x / 2)) for x in GAMMAS]
    return {
        "middle": (
            [decides(theorem.least_pull(x, P), x, P) for x, P in GRID],
            [decides(theorem.least_pull(x, P) / 2, x, P) for x, P in GRID],
            "half the bound",
            "the matrix decides otherwise within 1e-5 of the bound",
        ),
        "limits": (
            limits,
            [levels(x, np.tanh(x / 4)) for x in GAMMAS],
            "γ/2 in place of γ",
            "an accuracy is further from its limit than the remainder",
        ),
        "order": (
            [is_best(*case, theorem.best_order) for case in CASES],
            [is_best(*case, reversed_order) for case in CASES],
            "the order reversed",
            "one of 720 orders has more right answers, by over 1e-9",
        ),
    }


def theorem_numbers(counts: Float[np.ndarray, "C 8 8"]) -> dict[str, Any]:
    """Return the accuracy at the seventh place: that of one γ and two pulls, fitted to all sets, and that seen."""
    answers = counts.sum(0)

    def surprise(parameters: Float[np.ndarray, "3"]) -> float:
        gamma, first, last = parameters
        law = theorem.reading_matrix(gamma, theorem.end_pulls(8, first, last))
        return float(-(answers * np.log(law)).sum())

    gamma, first, last = minimize(surprise, [0.7, 1.0, 1.0]).x
    expected = theorem.reading_matrix(gamma, theorem.end_pulls(8, first, last)).diagonal()
    seen = answers.diagonal() / answers.sum(1)
    return {"theorem_expected_7": expected[6], "theorem_seen_7": seen[6]}


def theorem_checks() -> list[Check]:
    """Return a check of each part."""
    said = {
        "middle": "A blurred pointer alone loses the middle.",
        "limits": "Far from the ends accuracy has the limits given.",
        "order": "The best order follows accuracy by place.",
    }
    found = []
    for part, (held, broken, what, fails_if) in all_parts().items():
        figure = f"{sum(held)} of {len(held)} cases"
        fields = ("L-theorem", part, said[part], all(held), figure, fails_if, {what: broken})
        found.append(Check(*fields, "a case fails", {"kind": "proved"}))
    return found

"""The forces: what their checks let pass, and what they notice."""

import numpy as np
import pytest

from studies.theorems import force_checks, logit_checks, u_shapes
from studies.theorems.drifts import Draws


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        (force_checks.deeper, {"unsorted": 1.0}),
        (force_checks.less_mixing, {"ahead": 1}),
        (logit_checks.with_logits, {"query": 1.0}),
        (logit_checks.with_diagonal, {"unsorted": 1.0}),
    ],
)
def test_an_order_holds_with_its_hypotheses_alone(check, broken):
    draws = Draws(np.random.default_rng(1), cases=100, runs=2)
    assert draws.passes(check) == [True, True]
    assert draws.passes(check, **broken) == [False, False]


def test_a_shared_kernel_and_a_last_row_need_less():
    draws = Draws(np.random.default_rng(2), cases=100, runs=1)
    assert draws.passes(force_checks.deeper_alike) == draws.passes(force_checks.deeper_last_row) == [True]


def test_each_hypothesis_has_a_counterexample():
    assert not any(force_checks.dropped_hypotheses().values())
    assert logit_checks.counterexamples_hold() and logit_checks.loses_without_mask()


def test_mixed_signs_by_hand():
    """Oracle: uniform attention among three tokens, two layers, row by row."""
    first = np.array([[1, 0, 0], [1, np.exp(-2), 0], [1, 1, np.exp(-2)]])
    last = np.array([1, 1, np.exp(2)])
    p = last / last.sum() @ (first / first.sum(1, keepdims=True))
    plain = np.array([1, 1, 1]) / 3 @ (np.tril(np.ones((3, 3))) / [[1], [2], [3]])
    assert np.allclose(logit_checks.mixed_signs(), np.cumsum(p - plain))


def test_a_u_needs_each_force():
    found = u_shapes.profiles()
    assert u_shapes.only_together(found)
    assert not u_shapes.only_together(found | {u_shapes.ALL: u_shapes.bumps(0.03)})
    assert not u_shapes.only_together(found | {"no mask": found[u_shapes.ALL]})

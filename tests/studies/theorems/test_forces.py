"""The forces: what their checks let pass, and what they notice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posbias import attention_kernel, influence_history, masks, stochastic_monotonicity
from posbias.rollout.order import prefix_masses
from studies.theorems import force_checks, forces, logit_checks, u_shapes
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


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 10_000))
def test_every_row_at_every_depth(n, T, seed):
    rng = np.random.default_rng(seed)
    A, lambdas, row = rng.dirichlet(np.ones(n), size=(T, n)), rng.uniform(size=T), int(rng.integers(n))
    history = influence_history(A, lambdas, row=row)
    assert np.abs(forces.rollout_history(A, lambdas)[:, row] - history).max() < 1e-12


@given(arrays(np.float64, (5, 5), elements=st.floats(0.01, 1)))
def test_monotone_is_without_a_violated_triple(K):
    for kernel in (K / K.sum(axis=1, keepdims=True), forces.sort_stacks(K)):
        assert forces.is_monotone(kernel) == (stochastic_monotonicity(kernel).violated == 0)


@given(st.integers(1, 8), st.sampled_from(["full", "causal", "window"]), st.integers(0, 2**32 - 1))
def test_rearrangement_is_monotone_keeps_the_mask_and_its_fixed_points(n, kind, seed):
    mask = {"full": masks.full(), "causal": masks.causal(), "window": masks.sliding_window(3)}[kind]
    K = attention_kernel(np.random.default_rng(seed).normal(scale=2, size=(n, n)), mask)
    M = forces.sort_stacks(K)
    assert forces.is_monotone(M, tolerance=1e-14) and (M >= 0).all()
    assert np.abs(M.sum(axis=1) - 1).max() < 1e-14
    assert not M[~mask.matrix(n)].any()
    assert np.abs(np.sort(prefix_masses(M), axis=0) - np.sort(prefix_masses(K), axis=0)).max() < 1e-14
    assert np.abs(forces.sort_stacks(M) - M).max() < 1e-14

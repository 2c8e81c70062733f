from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import (
    attention_kernel,
    dominates,
    influence_profile,
    is_monotone,
    residual_kernel,
    rollout_matrix,
    structured_kernels,
)
from posbias.rollout import masks, schedules
from studies.theorems import forces


def test_the_map_is_the_trough_of_each_profile():
    from posbias import u_shape

    slopes, tau = np.array([[0.1, 0.5], [1.0, 2.0]]), np.array([0.3, 2.0])
    depth, location = forces.trough_map(20, 4, tau, slopes)
    for line, own in enumerate(slopes):
        for column, total in enumerate(tau):
            p = influence_profile(structured_kernels(4, slope=own), schedules.constant(4, total / 4), 20)
            shape = u_shape(p)
            assert depth[line, column] == pytest.approx(shape.depth)
            assert location[line, column] == shape.location


def random_stacks(seed, cases=3, T=4, n=5):
    rng = np.random.default_rng(seed)
    return attention_kernel(rng.normal(size=(cases, T, n, n)), masks.causal()), rng.uniform(size=(cases, T))


@given(st.integers(0, 1000))
def test_every_case_is_the_rollout_of_its_own_kernels(seed):
    A, lambdas = random_stacks(seed)
    P, rows = forces.case_rollouts(A, lambdas), forces.last_rows(A, lambdas)
    assert (P[:, 0] == np.eye(5)).all()
    for case, mixing in enumerate(lambdas):
        for t in range(1, 5):
            assert np.allclose(P[case, t], rollout_matrix(A[case, :t], mixing[:t], 5), atol=1e-14)
        assert np.allclose(rows[case], influence_profile(A[case], mixing), atol=1e-14)


@given(st.integers(0, 1000))
def test_the_drift_of_all_cases_is_the_least_of_the_cases(seed):
    before, after = np.random.default_rng(seed).dirichlet(np.ones(4), size=(2, 6, 3))
    drifts = forces.case_drifts(before, after)
    assert drifts.tolist() == [forces.recency_drift(*pair) for pair in zip(before, after, strict=True)]


SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])
SHAPES = [masks.causal(), masks.sliding_window(2), masks.full()]


@pytest.mark.parametrize("mask", SHAPES)
def test_cases_meet_the_hypotheses_that_are_not_dropped(mask, seed=0):
    for dropped in (None, *forces.HYPOTHESES):
        drawn = forces.random_cases(4, 4, mask, np.random.default_rng(seed), dropped)
        assert dropped == "A monotone" or all(map(is_monotone, drawn.A))
        assert dropped == "μ ⪯ ν" or all(map(dominates, drawn.nu, drawn.mu))
        assert dropped == "λ ≤ 1" or drawn.lambda_.max() <= 1
        assert dropped == "rows ordered" or all(map(dominates, drawn.A.reshape(-1, 4), drawn.earlier.reshape(-1, 4)))
        assert dropped == "f decreasing" or (np.diff(drawn.f) <= 0).all()


@pytest.mark.parametrize("dropped", forces.HYPOTHESES)
def test_a_dropped_hypothesis_is_noticed_by_the_lemmas_that_need_it_and_by_no_other(dropped):
    rng = np.random.default_rng(0)
    held = forces.lemmas_hold(forces.random_cases(300, 4, masks.full(), rng, dropped))
    if dropped == "λ ≤ 1":
        assert forces.random_cases(300, 4, masks.full(), rng, dropped).lambda_.min() >= 1
    assert {lemma for lemma, where in held.items() if not where.all()} == set(forces.HYPOTHESES[dropped])


def test_each_lemma_by_hand_on_two_tokens():
    drawn = forces.random_cases(2, 2, masks.full(), np.random.default_rng(0))
    first, last = np.tile([1.0, 0.0], (2, 1)), np.tile([0.0, 1.0], (2, 1))
    swapped = replace(drawn, A=np.stack([SWAP, SWAP]), mu=first, nu=last, lambda_=np.array([0.9, 0.5]), f=first)
    held = forces.lemmas_hold(replace(swapped, earlier=np.stack([np.eye(2), SWAP])))
    assert {lemma: where.tolist() for lemma, where in held.items()} == {
        "A.2": [False, False],
        "A.3": [False, True],  # with λ = 1/2 the swap becomes monotone
        "A.4": [True, True],  # e_1 I = (1, 0) is less recent than e_1 SWAP = (0, 1)
        "A.5": [False, False],
    }
    assert not is_monotone(residual_kernel(SWAP, 0.9)) and is_monotone(residual_kernel(SWAP, 0.5))


def test_a_diagonal_can_be_taken_back_and_is_of_each_case():
    A = attention_kernel(np.arange(9.0).reshape(3, 3) % 5, masks.causal())
    assert np.allclose(forces.add_diagonal(forces.add_diagonal(A, 1.5), -1.5), A)
    stack = forces.add_diagonal(np.stack([A, A]), np.array([1.5, -1.0]))
    assert np.array_equal(stack, [forces.add_diagonal(A, 1.5), forces.add_diagonal(A, -1.0)])


@given(st.integers(0, 1000), st.floats(-4, 4))
def test_the_rule_says_when_a_diagonal_breaks_monotonicity(seed, d):
    c = np.random.default_rng(seed).normal(size=6)
    A = attention_kernel(np.tile(c, (6, 1)), masks.causal())
    assert is_monotone(forces.add_diagonal(A, d), tolerance=1e-14) == forces.diagonal_keeps_order(c, d)


def random_heads(seed, T=3, H=2, n=4):
    rng = np.random.default_rng(seed)
    return attention_kernel(rng.normal(scale=2, size=(T, H, n, n)), masks.causal()), rng


def jacobian_norms(A, W):
    """Multiply the layers' operators on all states at once."""
    (T, H, n, _), d = A.shape, W.shape[-1]
    P = np.eye(n * d)
    for t in range(T):
        P = (np.eye(n * d) + sum(np.kron(A[t, h], W[t, h]) for h in range(H))) @ P
    blocks = P.reshape(n, d, n, d)[-1].transpose(1, 0, 2)
    norms = np.linalg.norm(blocks, axis=(1, 2))
    return norms / norms.sum()


@given(st.integers(0, 1000))
def test_influence_is_the_norm_of_the_networks_jacobian(seed):
    A, rng = random_heads(seed)
    W = rng.normal(size=(3, 2, 3, 3))
    assert np.allclose(forces.value_influence(A, W), jacobian_norms(A, W), atol=1e-12)

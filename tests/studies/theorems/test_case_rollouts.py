import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, influence_profile, monotone_rearrangement, rollout_matrix
from posbias.rollout import masks
from studies.theorems.case_rollouts import case_rollouts, last_rows, sort_stacks
from studies.theorems.drift import case_drifts, recency_drift


def random_stacks(seed, cases=3, T=4, n=5):
    rng = np.random.default_rng(seed)
    return attention_kernel(rng.normal(size=(cases, T, n, n)), masks.causal()), rng.uniform(size=(cases, T))


@given(st.integers(0, 1000))
def test_every_case_is_the_rollout_of_its_own_kernels(seed):
    A, lambdas = random_stacks(seed)
    P, rows = case_rollouts(A, lambdas), last_rows(A, lambdas)
    assert (P[:, 0] == np.eye(5)).all()
    for case, mixing in enumerate(lambdas):
        for t in range(1, 5):
            assert np.allclose(P[case, t], rollout_matrix(A[case, :t], mixing[:t], 5), atol=1e-14)
        assert np.allclose(rows[case], influence_profile(A[case], mixing), atol=1e-14)


def test_one_stack_serves_all_schedules():
    A, lambdas = random_stacks(0)
    assert np.allclose(last_rows(A[0], lambdas), last_rows(np.stack([A[0]] * 3), lambdas))


def test_two_layers_by_hand():
    A = np.array([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 0.5]]]])
    # R_1 row 2 is (1/2, 1/2); R_2 row 2 is (1/4, 3/4): 1/4 + 3/8 and 3/8
    assert np.allclose(last_rows(A, np.array([[0.5, 0.5]])), [[0.625, 0.375]])


@given(st.integers(0, 1000))
def test_every_kernel_is_sorted_on_its_own(seed):
    A, _ = random_stacks(seed)
    for case in range(3):
        for t in range(4):
            assert np.allclose(sort_stacks(A)[case, t], monotone_rearrangement(A[case, t]), atol=1e-15)


@given(st.integers(0, 1000))
def test_the_drift_of_all_cases_is_the_least_of_the_cases(seed):
    before, after = np.random.default_rng(seed).dirichlet(np.ones(4), size=(2, 6, 3))
    drifts = case_drifts(before, after)
    assert drifts.tolist() == [recency_drift(*pair) for pair in zip(before, after, strict=True)]


def test_bad_input_is_refused():
    A, lambdas = random_stacks(0)
    with pytest.raises(ValueError, match=r"lambdas: expected 3 × 4 values in \[0, 1\]"):
        case_rollouts(A, 2 * lambdas + 0.1)
    with pytest.raises(ValueError, match="lambdas: expected 3 × 4"):
        last_rows(A, lambdas[:, :2])
    with pytest.raises(ValueError, match="A: expected rows that sum to 1"):
        sort_stacks(2 * A)
    with pytest.raises(ValueError, match="before, after: expected profiles of one shape"):
        case_drifts(np.ones((2, 3)), np.ones((2, 4)))

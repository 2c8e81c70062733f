import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import (
    attention_kernel,
    dominates,
    influence_profile,
    is_monotone,
    rollout_matrix,
)
from posbias.rollout import masks
from studies.theorems import forces


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

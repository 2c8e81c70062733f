import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel
from posbias.rollout import masks
from studies.theorems.depth import masses_off_first
from studies.theorems.dichotomy import masses_of_moves, stage_bound, stay_weights
from studies.theorems.extremal_kernels import stairs


def by_all_divisions(stays, token):
    """Oracle: every division of the layers into stages, for one token and all layers."""
    if token == 0:
        return float(np.prod(stays[:, 0]))
    T = len(stays)
    sums = [by_all_divisions(stays[:s], token - 1) + np.prod(stays[s:, token]) if s else np.inf for s in range(T + 1)]
    return min(1.0, float(np.prod(stays[:, token])) + token, *sums)


def random_rollout(seed, n=5, T=7):
    rng = np.random.default_rng(seed)
    A = attention_kernel(4 * rng.normal(size=(T, n, n)), masks.causal())
    return A, rng.uniform(0, 1, T)


@given(st.integers(0, 300))
def test_the_mass_off_the_first_token_is_between_the_diagonal_and_the_stages(seed):
    A, lambda_ = random_rollout(seed)
    stays, masses = stay_weights(A, lambda_), masses_off_first(A, lambda_)
    assert (np.cumprod(stays, axis=0) <= masses + 1e-12).all()
    assert (masses <= stage_bound(stays) + 1e-12).all()


@given(st.integers(0, 100))
def test_stages_are_the_least_of_all_divisions(seed):
    stays = np.random.default_rng(seed).uniform(0, 1, (5, 3)) ** 3
    bound = stage_bound(stays)
    for T in range(1, 6):
        for token in range(3):
            assert bound[T - 1, token] == pytest.approx(min(1, by_all_divisions(stays[:T], token)))


def test_stages_by_hand():
    """Token 3 may only start once token 2 has given way: one division of two layers is 0.1 + 0.2, the other 1."""
    assert stage_bound(np.array([[0.1, 0.5], [0.9, 0.2]]))[-1].tolist() == pytest.approx([0.09, 0.3])
    assert stage_bound(np.array([[0.0, 1.0], [1.0, 0.0]])).tolist() == [[0, 1], [0, 0]]


def test_many_rollouts_at_once_are_those_of_the_kernels():
    rng, T, cases = np.random.default_rng(0), 6, 4
    jumps = np.tril(rng.uniform(0, 0.4, (cases, 3, 3)), -1)
    leaves = rng.uniform(0, 1, (T, cases, 3))
    masses = masses_of_moves(leaves, jumps)
    for case in range(cases):
        A = np.zeros((T, 4, 4))
        A[:, 0, 0] = 1
        A[:, 1:, 1:] = leaves[:, case, :, None] * jumps[case] + np.eye(3) * (1 - leaves[:, case])[:, :, None]
        A[:, 1:, 0] = 1 - A[:, 1:, 1:].sum(axis=2)
        assert np.allclose(masses[case], masses_off_first(A, np.ones(T))[-1])


def test_a_vanishing_factor_is_not_enough():
    """Token 3 hands everything to token 2 in layer 1 and rests: nothing is its own, and nothing the first token's."""
    A = np.stack([stairs(1.0, 3)] + [np.diag([1.0, 0, 1]) + np.eye(3)[[1]].T @ np.eye(3)[[0]]] * 20)
    masses = masses_off_first(A, np.ones(21))
    assert stay_weights(A, np.ones(21)).prod(axis=0).tolist() == [0, 0]
    assert masses[-1].tolist() == [0, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: stay_weights(np.eye(2)[None], [2.0]),
        lambda: stage_bound(np.array([[1.5]])),
        lambda: masses_of_moves(np.full((1, 1, 1), 1.5), np.zeros((1, 1, 1))),
        lambda: masses_of_moves(np.full((1, 1, 1), 0.5), np.ones((1, 1, 1))),
        lambda: masses_of_moves(np.full((1, 1, 2), 0.5), np.full((1, 2, 2), -1.0)),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="expected .* received"):
        call()

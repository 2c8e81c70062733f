import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, residual_kernel, rollout_matrix
from posbias.rollout import masks, schedules
from studies.theorems.depth import (
    attention_floor,
    direct,
    log_collapse_bound,
    log_mass_off_first,
    log_survival_bound,
    masses_of_moves,
    masses_off_first,
    sharp_attention_floor,
    stage_bound,
    stairs,
    state_bound,
    stay_weights,
)

SCHEDULES = st.lists(st.floats(0, 0.99), min_size=1, max_size=12)


def causal_kernel(n, seed):
    return attention_kernel(np.random.default_rng(seed).normal(size=(n, n)), masks.causal())


@given(SCHEDULES, st.integers(0, 50))
def test_every_token_keeps_at_least_the_bound(lambda_, seed):
    A = causal_kernel(4, seed)
    bound = log_survival_bound(lambda_)
    assert np.allclose(np.exp(bound), np.cumprod(1 - np.array(lambda_)))
    assert (np.diag(rollout_matrix(A, lambda_)) >= np.exp(bound[-1]) - 1e-12).all()


def test_survival_by_hand_and_in_the_limit():
    """Π (1 - 1/(4t²)) = 2/π (Wallis); a layer without a residual leaves nothing to bound."""
    assert np.exp(log_survival_bound(schedules.power_decay(200_000, 0.25, 2.0))[-1]) == pytest.approx(
        2 / np.pi, rel=1e-5
    )
    assert log_survival_bound([0.5, 1.0])[-1] == -np.inf


@given(SCHEDULES, st.integers(0, 50))
def test_mass_off_the_first_token_equals_the_product_and_stays_below_the_bound(lambda_, seed):
    A = causal_kernel(5, seed)
    for row in range(1, 5):
        logs = log_mass_off_first(A, lambda_, row=row)
        P = np.eye(5)
        for t, x in enumerate(lambda_):
            P = residual_kernel(A, x) @ P
            assert np.exp(logs[t]) == pytest.approx(P[row, 1:].sum(), rel=1e-9)
        assert (logs <= log_collapse_bound(lambda_, float(A[1:, 0].min())) + 1e-12).all()


def test_masses_far_below_the_smallest_double():
    A = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert log_mass_off_first(A, np.ones(10_000))[-1] == pytest.approx(10_000 * np.log(0.5), rel=1e-12)
    assert log_mass_off_first(A, np.ones(3), row=0).tolist() == [-np.inf] * 3


def test_collapse_bound_by_hand():
    assert np.exp(log_collapse_bound([1.0, 0.5], 0.5)).tolist() == pytest.approx([0.5, 0.375])
    assert (log_collapse_bound([0.3, 0.7], 0.2) <= -0.2 * np.cumsum([0.3, 0.7])).all()


def test_state_bound_by_hand_and_never_below_the_start():
    assert state_bound(3.0, [2.0, 0.1], [0.5, 0.9]) == pytest.approx(4.5)
    assert state_bound(3.0, [0.5], [1.0]) == 3.0


def test_attention_floor_by_hand():
    assert attention_floor(5, np.log(2.0), np.log(3.0)) == pytest.approx(1 / 60)


def test_the_sharp_floor_of_one_key_and_of_huge_logits():
    assert sharp_attention_floor(1, 5.0) == 1.0 and sharp_attention_floor(3, 1e4) == 0.0


@pytest.mark.parametrize(("n", "range_"), [(2, 1.0), (5, 2.5), (9, 0.0)])
def test_the_sharp_floor_is_attained_and_a_little_above_the_printed_one(n, range_):
    lowest = np.zeros(n)
    lowest[0] = -range_
    weight = float(np.exp(lowest[0]) / np.exp(lowest).sum())
    assert sharp_attention_floor(n, range_ / 2) == pytest.approx(weight, rel=1e-12)
    assert sharp_attention_floor(n, 0.25 * range_, 0.5 * range_) == pytest.approx(weight, rel=1e-12)
    assert attention_floor(n, range_ / 2) <= weight <= attention_floor(n, range_ / 2) * n / (n - 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 50))
def test_masses_of_all_rows_are_those_of_the_product(lambda_, seed):
    rng = np.random.default_rng(seed)
    A = attention_kernel(rng.normal(size=(len(lambda_), 5, 5)), masks.causal())
    history = masses_off_first(A, lambda_)
    for t in range(len(lambda_)):
        assert np.allclose(history[t], 1 - rollout_matrix(A[: t + 1], lambda_[: t + 1])[1:, 0])


@given(SCHEDULES, st.integers(0, 50))
def test_no_kernel_collapses_more_slowly_than_the_extremal_ones(lambda_, seed):
    A = causal_kernel(5, seed)
    values = log_mass_off_first(A, lambda_)
    slowest = log_mass_off_first(stairs(1 - float(np.diag(A)[1:].max()), 5), lambda_)
    assert (values <= slowest + 1e-12).all()
    straight = direct(float(A[1:, 0].min()), 5)
    assert np.allclose(log_mass_off_first(straight, lambda_), log_collapse_bound(lambda_, straight[1, 0]))


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

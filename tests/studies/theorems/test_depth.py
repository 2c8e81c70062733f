import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, residual_kernel
from posbias.rollout import masks
from studies.theorems import depth

SCHEDULES = st.lists(st.floats(0, 0.99), min_size=1, max_size=12)


def causal_kernel(n, seed):
    return attention_kernel(np.random.default_rng(seed).normal(size=(n, n)), masks.causal())


@given(SCHEDULES, st.integers(0, 50))
def test_mass_off_the_first_token_equals_the_product_and_stays_below_the_bound(lambda_, seed):
    A = causal_kernel(5, seed)
    for row in range(1, 5):
        logs = depth.log_mass_off_first(A, lambda_, row=row)
        P = np.eye(5)
        for t, x in enumerate(lambda_):
            P = residual_kernel(A, x) @ P
            assert np.exp(logs[t]) == pytest.approx(P[row, 1:].sum(), rel=1e-9)
        assert (logs <= depth.log_collapse_bound(lambda_, float(A[1:, 0].min())) + 1e-12).all()


@pytest.mark.parametrize(("n", "range_"), [(2, 1.0), (5, 2.5), (9, 0.0)])
def test_the_sharp_floor_is_attained_and_a_little_above_the_printed_one(n, range_):
    lowest = np.zeros(n)
    lowest[0] = -range_
    weight = float(np.exp(lowest[0]) / np.exp(lowest).sum())
    assert depth.sharp_attention_floor(n, range_ / 2) == pytest.approx(weight, rel=1e-12)
    assert depth.sharp_attention_floor(n, 0.25 * range_, 0.5 * range_) == pytest.approx(weight, rel=1e-12)
    assert depth.attention_floor(n, range_ / 2) <= weight <= depth.attention_floor(n, range_ / 2) * n / (n - 1)


def by_all_divisions(stays, token):
    """Oracle: every division of the layers into stages, for one token and all layers."""
    if token == 0:
        return float(np.prod(stays[:, 0]))
    T = len(stays)
    sums = [by_all_divisions(stays[:s], token - 1) + np.prod(stays[s:, token]) if s else np.inf for s in range(T + 1)]
    return min(1.0, float(np.prod(stays[:, token])) + token, *sums)


@given(st.integers(0, 100))
def test_stages_are_the_least_of_all_divisions(seed):
    stays = np.random.default_rng(seed).uniform(0, 1, (5, 3)) ** 3
    bound = depth.stage_bound(stays)
    for T in range(1, 6):
        for token in range(3):
            assert bound[T - 1, token] == pytest.approx(min(1, by_all_divisions(stays[:T], token)))

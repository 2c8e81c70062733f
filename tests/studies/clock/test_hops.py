"""Rows of powers and their mixtures, and the limit of uniform attention: against what is written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import influence_profile, structured_kernels
from posbias.rollout.clock import hop_distribution, poisson_distribution
from studies.clock import hops

ONE = structured_kernels(1, slope=[0.3, 0.05], diagonal=[0.5, -0.2], H=2)
schedules = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_rows_are_powers():
    A = ONE.dense(0, 6)
    for k, row in enumerate(hops.hop_rows(ONE, 4, 6)):
        np.testing.assert_allclose(row, np.linalg.matrix_power(A, k)[-1], atol=1e-14)


@given(schedules)
def test_mixture_of_a_schedule_is_its_rollout(lambdas):
    rows = hops.hop_rows(ONE, len(lambdas), 6)
    kernels = structured_kernels(len(lambdas), slope=[0.3, 0.05], diagonal=[0.5, -0.2], H=2)
    mixed = hops.mix_hops(rows, hop_distribution(lambdas))
    np.testing.assert_allclose(mixed, influence_profile(kernels, lambdas, 6), atol=1e-13)


@given(schedules, st.integers(0, 8))
def test_error_of_weights_is_within_its_bound(lambdas, exact):
    exact = min(exact, len(lambdas))
    weights, bound = hops.partly_exact_hops(lambdas, exact)
    assert weights.sum() == pytest.approx(1)
    own = hop_distribution(lambdas)
    both = np.zeros((2, max(own.size, weights.size)))
    both[0, : own.size], both[1, : weights.size] = own, weights
    assert 0.5 * np.abs(both[0] - both[1]).sum() <= bound + 1e-12
    assert weights @ np.arange(weights.size) == pytest.approx(sum(lambdas))  # the total is kept


def test_mean_kernel_is_the_mean_of_the_matrices():
    kernels = structured_kernels(2, slope=[[0.3, 0.1], [0.2, 0.4]], diagonal=[[1.0, -1.0]], H=2)
    mean = hops.mean_kernel(kernels, [0.2, 0.6]).dense(0, 5)
    np.testing.assert_allclose(mean, 0.25 * kernels.dense(0, 5) + 0.75 * kernels.dense(1, 5), atol=1e-14)


ONE_HOP, TWO_HOPS = np.array([0.0, 1.0]), np.array([0.0, 0.0, 1.0])


def test_one_and_two_hops_by_hand():
    x = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(hops.limit_distribution(x, ONE_HOP), x)  # one uniform number
    np.testing.assert_allclose(hops.limit_distribution(x, TWO_HOPS), x * (1 - np.log(x)))  # product of two


def test_distance_of_the_clock_is_the_formula(n=16):
    tau, weights = 3.0, poisson_distribution(3.0)
    p = hops.mix_hops(hops.hop_rows(structured_kernels(1), weights.size, n), weights)
    assert hops.wasserstein_to_limit(p, weights) == pytest.approx(-np.expm1(-tau / 2) / n, rel=1e-8)

"""Rows of powers and their mixtures, against rollouts that are written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import influence_profile, structured_kernels
from posbias.comparison.distances import total_variation
from posbias.rollout.clock import clock_profile, hop_distribution, poisson_distribution
from studies.clock.hop_mixtures import hop_rows, mean_kernel, mix_hops, partly_exact_hops

ONE = structured_kernels(1, slope=[0.3, 0.05], diagonal=[0.5, -0.2], H=2)
schedules = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_rows_are_powers():
    A = ONE.dense(0, 6)
    for k, row in enumerate(hop_rows(ONE, 4, 6)):
        np.testing.assert_allclose(row, np.linalg.matrix_power(A, k)[-1], atol=1e-14)


@given(schedules)
def test_mixture_of_a_schedule_is_its_rollout(lambdas):
    rows = hop_rows(ONE, len(lambdas), 6)
    kernels = structured_kernels(len(lambdas), slope=[0.3, 0.05], diagonal=[0.5, -0.2], H=2)
    mixed = mix_hops(rows, hop_distribution(lambdas))
    np.testing.assert_allclose(mixed, influence_profile(kernels, lambdas, 6), atol=1e-13)


def test_mixture_of_poisson_weights_is_the_clock():
    clock = mix_hops(hop_rows(ONE, 60, 6), poisson_distribution(1.7))
    np.testing.assert_allclose(clock, clock_profile(ONE.dense(0, 6), 1.7), atol=1e-13)


@given(schedules, st.integers(0, 8))
def test_error_of_weights_is_within_its_bound(lambdas, exact):
    exact = min(exact, len(lambdas))
    weights, bound = partly_exact_hops(lambdas, exact)
    assert weights.sum() == pytest.approx(1)
    own = hop_distribution(lambdas)
    both = np.zeros((2, max(own.size, weights.size)))
    both[0, : own.size], both[1, : weights.size] = own, weights
    assert 0.5 * np.abs(both[0] - both[1]).sum() <= bound + 1e-12
    assert weights @ np.arange(weights.size) == pytest.approx(sum(lambdas))  # the total is kept


def test_largest_are_the_exact_ones():
    weights, bound = partly_exact_hops([0.1, 1.0, 0.2], 1)
    assert weights[0] == 0 and bound < partly_exact_hops([0.1, 1.0, 0.2], 0)[1]
    with pytest.raises(ValueError, match="exact: expected 0 to 3 layers, received 4"):
        partly_exact_hops([0.1, 1.0, 0.2], 4)


def test_mean_kernel_is_the_mean_of_the_matrices():
    kernels = structured_kernels(2, slope=[[0.3, 0.1], [0.2, 0.4]], diagonal=[[1.0, -1.0]], H=2)
    mean = mean_kernel(kernels, [0.2, 0.6]).dense(0, 5)
    np.testing.assert_allclose(mean, 0.25 * kernels.dense(0, 5) + 0.75 * kernels.dense(1, 5), atol=1e-14)


def test_refused():
    differ = structured_kernels(2, slope=[[0.3], [0.2]])
    with pytest.raises(ValueError, match="kernels: expected one kernel for all layers, received 2 layers"):
        hop_rows(differ, 3, 4)
    with pytest.raises(ValueError, match="lambda_: expected 2 values, not all 0"):
        mean_kernel(differ, [0.1])
    with pytest.raises(ValueError, match="lambda_: expected 2 values, not all 0"):
        mean_kernel(differ, [0.0, 0.0])


def test_total_variation_bounds_the_distance_of_mixtures():
    assert total_variation([1.0, 0.0], [0.0, 1.0]) == 1.0 and total_variation([0.5, 0.5], [0.5, 0.5]) == 0.0

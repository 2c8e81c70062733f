"""Rows of powers and their mixtures, and the limit of uniform attention: against what is written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from posbias import influence_profile, structured_kernels
from posbias.rollout.clock import clock_profile, hop_distribution, poisson_distribution, uniform_clock_density
from studies.clock.hops import (
    hop_rows,
    limit_distribution,
    limit_integral,
    mean_kernel,
    mix_hops,
    partly_exact_hops,
    wasserstein_to_limit,
)

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


def test_mean_kernel_is_the_mean_of_the_matrices():
    kernels = structured_kernels(2, slope=[[0.3, 0.1], [0.2, 0.4]], diagonal=[[1.0, -1.0]], H=2)
    mean = mean_kernel(kernels, [0.2, 0.6]).dense(0, 5)
    np.testing.assert_allclose(mean, 0.25 * kernels.dense(0, 5) + 0.75 * kernels.dense(1, 5), atol=1e-14)


ONE_HOP, TWO_HOPS = np.array([0.0, 1.0]), np.array([0.0, 0.0, 1.0])


def test_one_and_two_hops_by_hand():
    x = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(limit_distribution(x, ONE_HOP), x)  # one uniform number
    np.testing.assert_allclose(limit_distribution(x, TWO_HOPS), x * (1 - np.log(x)))  # product of two


def test_distribution_is_the_integral_of_the_density():
    a, b, tau = 0.2, 0.7, 2.5
    low, high = limit_distribution(np.array([a, b]), poisson_distribution(tau))
    mass = quad(lambda x: float(uniform_clock_density(np.array([x]), tau)[0]), a, b)[0]
    assert high - low == pytest.approx(mass, abs=1e-10)


def test_integral_is_that_of_the_distribution():
    weights = poisson_distribution(1.3)
    found = limit_integral(np.array([0.6]), weights)[0]
    assert found == pytest.approx(quad(lambda x: limit_distribution(np.array([x]), weights)[0], 0, 0.6)[0], abs=1e-9)


@pytest.mark.parametrize("n", [8, 64])
def test_distance_of_the_clock_is_the_formula(n):
    tau, weights = 3.0, poisson_distribution(3.0)
    p = mix_hops(hop_rows(structured_kernels(1), weights.size, n), weights)
    assert wasserstein_to_limit(p, weights) == pytest.approx(-np.expm1(-tau / 2) / n, rel=1e-8)

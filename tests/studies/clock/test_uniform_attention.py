"""The limit of uniform attention: against its density, against simulation's formula for W1, and by hand."""

import numpy as np
import pytest
from scipy.integrate import quad

from posbias import structured_kernels
from posbias.rollout.clock import poisson_distribution, uniform_clock_density
from studies.clock.hop_mixtures import hop_rows, mix_hops
from studies.clock.uniform_attention import limit_distribution, limit_integral, wasserstein_to_limit

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


@pytest.mark.parametrize("x", [0.0, -0.5, 1.5])
def test_positions_outside_are_refused(x):
    with pytest.raises(ValueError, match="x: expected relative positions above 0 and up to 1"):
        limit_distribution(np.array([x]), ONE_HOP)

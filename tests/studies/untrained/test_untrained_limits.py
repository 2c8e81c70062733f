"""Limits of the law of untrained networks against the law at finite n, closed forms by hand, and series written out."""

import numpy as np
import pytest

from posbias import structured_kernels
from posbias.rollout.clock import hop_distribution, poisson_distribution
from posbias.rollout.influence import influence_profile
from posbias.rollout.untrained import untrained_profile
from studies.untrained.limits import (
    critical_total,
    hops_to_first,
    last_share,
    last_share_bounds,
    log_first_bound,
    log_first_over_last,
    square_density,
    square_minima,
)

SQUARES = np.array([0.3, 0.5, 0.2, 0.9, 0.4])  # c_t²
OMEGA = hop_distribution(SQUARES / (1 + SQUARES))


def law(n, ell):
    return untrained_profile(structured_kernels(5, slope=ell / n or None), np.sqrt(SQUARES), n)


@pytest.mark.parametrize("c", [0.0, 0.7, 6.0])
def test_the_law_tends_to_its_density_at_rate_one_over_n(c):
    off = []
    for n in (256, 1024):
        p, inner = law(n, c), slice(n // 10, -1)
        density = square_density(np.arange(1, n + 1) / n, OMEGA, c) / np.sqrt(OMEGA[0])
        off.append(np.abs(n * p / p[-1] / density - 1)[inner].max())
    assert off[0] < 0.03 and off[0] / off[1] == pytest.approx(4, rel=0.15)


def test_minima_are_where_the_density_turns():
    for c, s, count in ((0.5, 0.5, 1), (4.0, 4.0, 1), (12.0, 8.0, 2), (20.0, 16.0, 2)):
        omega = poisson_distribution(s)
        x = np.linspace(1e-3, 1, 20_001)
        y = square_density(x, omega, c)
        turns = 1 + np.flatnonzero((y[1:-1] < y[:-2]) & (y[1:-1] < y[2:]))
        found = square_minima(c, omega)
        assert len(found) == count
        np.testing.assert_allclose([trough.location for trough in found], x[turns], atol=1e-4)
        np.testing.assert_allclose([trough.depth for trough in found], 1 - y[turns] / y[-1], rtol=1e-4, atol=1e-6)


def test_first_over_last_is_that_of_the_profiles():
    n, kernels = 20, structured_kernels(5)
    p = untrained_profile(kernels, np.sqrt(SQUARES), n)
    assert log_first_over_last(n, OMEGA, 2) == pytest.approx(2 * np.log(p[0] / p[-1]), rel=1e-10)
    lambdas = SQUARES / (1 + SQUARES)
    p = influence_profile(kernels, lambdas, n)
    assert log_first_over_last(n, OMEGA, 1) == pytest.approx(np.log(p[0] / p[-1]), rel=1e-10)


def test_the_total_at_which_the_first_token_wins_grows_like_the_logarithm():
    assert critical_total(2, 1) == pytest.approx(2 * np.log(2))
    for power, rate in ((1, 1 / 4), (2, 8 / 27)):
        totals = [critical_total(n, power) for n in (2**12, 2**16)]
        assert (totals[1] - totals[0]) / np.log(2**4) == pytest.approx(rate, rel=0.15)
        for n, total in zip((2**12, 2**16), totals, strict=True):
            assert log_first_over_last(n, poisson_distribution(1.01 * total), power) > 0
            assert log_first_over_last(n, poisson_distribution(0.99 * total), power) < 0


def test_the_share_of_the_last_token_is_between_its_bounds():
    for s in (0.1, 1.0, 5.0, 20.0):
        omega = poisson_distribution(s)
        low, high = last_share_bounds(omega)
        assert low < last_share(omega) < high
        assert high == pytest.approx(1 / (1 + np.sqrt(np.expm1(s))), rel=1e-6)


@pytest.mark.parametrize("power", [1, 2])
def test_no_schedule_exceeds_the_bound_on_the_first_token(power):
    rng = np.random.default_rng(0)
    for _ in range(20):
        odds = rng.exponential(rng.uniform(0.1, 2), rng.integers(1, 12))
        n, omega = int(rng.integers(2, 300)), hop_distribution(odds / (1 + odds))
        first = np.log(omega @ hops_to_first(n, odds.size) ** power) - np.log(omega[0])
        assert all(first <= log_first_bound(n, odds.sum(), power, z) + 1e-12 for z in np.linspace(0.05, 0.95, 19))

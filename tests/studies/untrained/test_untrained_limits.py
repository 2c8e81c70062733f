"""Bounds on the law of untrained networks hold; the chapter notices what else is wrong."""

import numpy as np
import pytest

from posbias.rollout.clock import hop_distribution, poisson_distribution
from studies.untrained.limits import hops_to_first, last_share, last_share_bounds, log_first_bound


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

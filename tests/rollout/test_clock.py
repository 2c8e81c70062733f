from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.rollout.clock import hop_distribution, poisson_distribution

SCHEDULES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def hops_ref(lambda_):
    """Every outcome of T coins, one at a time."""
    w = np.zeros(len(lambda_) + 1)
    for coins in product((0, 1), repeat=len(lambda_)):
        w[sum(coins)] += np.prod([x if coin else 1 - x for coin, x in zip(coins, lambda_, strict=True)])
    return w


@given(SCHEDULES)
def test_hops_equal_the_enumeration(lambda_):
    found, expected = hop_distribution(lambda_), hops_ref(lambda_)
    assert np.allclose(np.pad(found, (0, expected.size - found.size)), expected, atol=1e-15)
    assert found.sum() == pytest.approx(1)
    assert found @ np.arange(found.size) == pytest.approx(sum(lambda_))


def test_ten_thousand_small_steps_stay_short():
    w = hop_distribution(np.full(10_000, 1e-3))
    assert w.size < 100 and w.sum() == pytest.approx(1) and w[0] == pytest.approx(np.exp(-10), rel=1e-2)


@pytest.mark.parametrize("tau", [1e-6, 30.0, 5000.0])
def test_poisson_by_its_ratios(tau):
    """w_k / w_(k-1) = τ / k, in a range that holds all but 1e-18."""
    w = poisson_distribution(tau)
    k = np.flatnonzero(w[1:] > 1e-300) + 1
    assert k.size and np.allclose(w[k] / w[k - 1], tau / k, rtol=1e-9)
    assert w.sum() == pytest.approx(1, abs=1e-11) and w[-1] < 1e-18
    assert poisson_distribution(0.0).tolist() == [1.0]

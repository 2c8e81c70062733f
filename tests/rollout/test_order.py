import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posbias import dominates, stochastic_monotonicity


def violations_ref(K):
    """Every triple (i < i', k), one at a time."""
    n, gaps = len(K), []
    for i in range(n):
        for later in range(i + 1, n):
            for k in range(n - 1):
                gaps.append(K[later, : k + 1].sum() - K[i, : k + 1].sum())
    return np.array(gaps)


@given(arrays(np.float64, (5, 5), elements=st.floats(0.01, 1)))
def test_statistics_equal_the_slow_ones(K):
    K = K / K.sum(axis=1, keepdims=True)
    gaps, found = violations_ref(K), stochastic_monotonicity(K)
    over = gaps[gaps > 1e-12]
    assert found.violated == pytest.approx(over.size / gaps.size)
    assert found.shortfall == pytest.approx(over.sum() / gaps.size)
    assert found.mean_gap == pytest.approx(over.mean() if over.size else 0)
    assert found.largest == pytest.approx(over.max() if over.size else 0)


def test_one_token_has_nothing_to_violate():
    assert stochastic_monotonicity(np.ones((1, 1))).violated == 0


def test_dominance_by_hand():
    early, late, crossing = np.array([0.6, 0.2, 0.2]), np.array([0.2, 0.2, 0.6]), np.array([0.3, 0.6, 0.1])
    assert dominates(late, early) and not dominates(early, late) and dominates(early, early)
    assert not dominates(crossing, early) and not dominates(early, crossing)
    rounded = late + [1e-15, -1e-15, 0]
    assert dominates(rounded, late)

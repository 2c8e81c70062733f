import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posbias import attention_kernel, dominates, is_monotone, masks, monotone_rearrangement, stochastic_monotonicity
from posbias.rollout.order import prefix_masses


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
    assert is_monotone(K) == (over.size == 0)


def test_one_token_has_nothing_to_violate():
    assert stochastic_monotonicity(np.ones((1, 1))).violated == 0


def test_dominance_by_hand():
    early, late, crossing = np.array([0.6, 0.2, 0.2]), np.array([0.2, 0.2, 0.6]), np.array([0.3, 0.6, 0.1])
    assert dominates(late, early) and not dominates(early, late) and dominates(early, early)
    assert not dominates(crossing, early) and not dominates(early, crossing)
    rounded = late + [1e-15, -1e-15, 0]
    assert dominates(rounded, late) and not dominates(rounded, late, tolerance=0)


@given(st.integers(1, 8), st.sampled_from(["full", "causal", "window"]), st.integers(0, 2**32 - 1))
def test_rearrangement_is_monotone_keeps_the_mask_and_its_fixed_points(n, kind, seed):
    mask = {"full": masks.full(), "causal": masks.causal(), "window": masks.sliding_window(3)}[kind]
    K = attention_kernel(np.random.default_rng(seed).normal(scale=2, size=(n, n)), mask)
    M = monotone_rearrangement(K)
    assert is_monotone(M, tolerance=1e-14) and (M >= 0).all()
    assert np.abs(M.sum(axis=1) - 1).max() < 1e-14
    assert not M[~mask.matrix(n)].any()
    assert np.abs(np.sort(prefix_masses(M), axis=0) - np.sort(prefix_masses(K), axis=0)).max() < 1e-14
    assert np.abs(monotone_rearrangement(M) - M).max() < 1e-14

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel
from posbias.rollout import masks
from posbias.rollout.influence import rollout_history
from posbias.rollout.logits import rope_logits
from studies.theorems import intervals


@given(st.floats(-20, 20), st.floats(0, 8))
def test_the_range_of_the_cosine_against_a_fine_grid(a, width):
    low, high = intervals.cosine_range(a, a + width)
    values = np.cos(np.linspace(a, a + width, 4001))
    assert low == pytest.approx(values.min(), abs=1e-5) and high == pytest.approx(values.max(), abs=1e-5)
    assert low <= values.min() + 1e-12 and high >= values.max() - 1e-12


def between(low, high, rng, n, corners=False):
    """Draw a causal kernel whose logits lie between low and high at their distance, or at the ends of the intervals."""
    share = rng.random((n, n))
    share = share.round() if corners else share
    x = np.abs(intervals.distances(n))
    return attention_kernel(low[x] + share * (high - low)[x], masks.causal())


@given(st.integers(2, 6), st.integers(0, 10_000))
def test_attention_lies_between_its_bounds_and_attains_them(n, seed):
    rng = np.random.default_rng(seed)
    low = rng.normal(size=n) * 3
    high = low + rng.exponential(size=n)
    least, most = intervals.attention_intervals(low, high)
    for corners in (False, True):
        A = between(low, high, rng, n, corners)
        assert (least <= A * (1 + 1e-9)).all() and (A <= most * (1 + 1e-9)).all()
    i, j = n - 1, int(rng.integers(n))
    x = np.arange(n)[::-1]  # distances of the last query's keys
    for sign, bound in ((1, most), (-1, least)):
        own, others = (high, low) if sign > 0 else (low, high)
        logits = others[x].copy()
        logits[j] = own[x[j]]
        assert bound[i, j] == pytest.approx(np.exp(logits[j]) / np.exp(logits).sum(), rel=1e-9)
    assert (most[1:] < 1).all()


@pytest.mark.parametrize("pairs", [1, 3])
def test_a_layer_of_queries_and_keys_attains_the_upper_bound(pairs):
    rng, n = np.random.default_rng(pairs), 6
    theta, phi = rng.uniform(0.1, 0.5, pairs), rng.uniform(0, 0.4, pairs)
    smallest = rng.uniform(0.5, 1, pairs)
    largest = smallest * rng.uniform(1, 1.5, pairs)
    low, high = intervals.rope_logit_intervals(n, theta, smallest, largest, phi)
    most = intervals.attention_intervals(low, high)[1]
    for key in range(n):
        logits = rope_logits(*intervals.extreme_layer(n, theta, smallest, largest, phi, key), theta)
        assert attention_kernel(logits, masks.causal())[-1, key] == pytest.approx(most[-1, key], rel=1e-9)


@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 10_000))
def test_rollouts_lie_between_their_bounds(n, T, seed):
    rng = np.random.default_rng(seed)
    low = rng.normal(size=(T, n))
    high = low + rng.exponential(size=(T, n))
    bounds = [intervals.attention_intervals(*both) for both in zip(low, high, strict=True)]
    least, most = intervals.interval_rollouts(*(np.stack(x) for x in zip(*bounds, strict=True)))
    kernels = np.stack([between(*both, rng, n, corners=True) for both in zip(low, high, strict=True)])
    P = rollout_history(kernels, np.ones(T))[1:]
    assert (least <= P * (1 + 1e-9) + 1e-15).all() and (P <= most * (1 + 1e-9) + 1e-15).all()
    assert (most <= 1 + 1e-9).all()


def test_logits_of_two_tokens_by_hand():
    one = np.ones(1)
    low, high = intervals.rope_logit_intervals(2, np.pi / 2 * one, one, 2 * one, 0.5 * one)
    assert low == pytest.approx([np.cos(0.5), 2 * np.cos(np.pi / 2 + 0.5)])  # the larger norm where cos < 0
    assert high == pytest.approx([2, 2 * np.cos(np.pi / 2 - 0.5)])

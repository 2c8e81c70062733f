"""Bounds of theorems: that they hold, and that what attains them does. Their chapters notice what else is wrong."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, rollout_matrix
from posbias.rollout import masks
from studies.theorems import depth, encodings, graphs, intervals
from studies.theorems.forces import rollout_history

SIZES = st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, n)))
GRAPHS = st.sampled_from([masks.causal(), masks.sliding_window(2), masks.prefix(2), masks.full()])


@given(SIZES, st.floats(0.01, 0.4))
def test_the_jump_bound_is_attained(size, epsilon):
    n, w = size
    A = (1 - epsilon) * np.eye(n)
    A[np.arange(n), np.maximum(np.arange(n) - (w - 1), 0)] += epsilon
    P = rollout_matrix(A, np.ones(6))
    for j in range(2, n + 1):
        assert P[-1, j - 1 :].sum() == pytest.approx(np.exp(graphs.log_jump_bound(6, n, w, epsilon, j)[-1]), rel=1e-9)


@given(GRAPHS, st.floats(0.01, 0.19), st.integers(0, 4), st.sampled_from(["largest", "smallest"]))
def test_the_extremes_are_attained(mask, epsilon, key, which):
    """Oracle: kernels built row by row, then multiplied by the library."""
    allowed, kernels = mask.matrix(5), []
    column = np.eye(5)[:, key]
    for _ in range(4):
        A = epsilon * allowed
        for i in range(5):
            among = np.flatnonzero(allowed[i])
            pick = among[(np.argmax if which == "largest" else np.argmin)(column[among])]
            A[i, pick] += 1 - A[i].sum()
        kernels.append(A)
        column = A @ column
    P = rollout_history(np.stack(kernels), np.ones(4))[-1]
    assert np.allclose(P[:, key], graphs.extreme_influence(allowed, epsilon, 4, which)[-1, :, key])


@pytest.mark.parametrize(("n", "range_"), [(2, 1.0), (5, 2.5), (9, 0.0)])
def test_the_sharp_floor_is_attained_and_a_little_above_the_printed_one(n, range_):
    lowest = np.zeros(n)
    lowest[0] = -range_
    weight = float(np.exp(lowest[0]) / np.exp(lowest).sum())
    assert depth.sharp_attention_floor(n, range_ / 2) == pytest.approx(weight, rel=1e-12)
    assert depth.sharp_attention_floor(n, 0.25 * range_, 0.5 * range_) == pytest.approx(weight, rel=1e-12)
    assert depth.attention_floor(n, range_ / 2) <= weight <= depth.attention_floor(n, range_ / 2) * n / (n - 1)


def by_all_divisions(stays, token):
    """Oracle: every division of the layers into stages, for one token and all layers."""
    if token == 0:
        return float(np.prod(stays[:, 0]))
    T = len(stays)
    sums = [by_all_divisions(stays[:s], token - 1) + np.prod(stays[s:, token]) if s else np.inf for s in range(T + 1)]
    return min(1.0, float(np.prod(stays[:, token])) + token, *sums)


@given(st.integers(0, 100))
def test_stages_are_the_least_of_all_divisions(seed):
    stays = np.random.default_rng(seed).uniform(0, 1, (5, 3)) ** 3
    bound = depth.stage_bound(stays)
    for T in range(1, 6):
        for token in range(3):
            assert bound[T - 1, token] == pytest.approx(min(1, by_all_divisions(stays[:T], token)))


def walks(t, x):
    """All causal walks over a distance x in t + 1 layers, as the lists of their steps."""
    stops = combinations_with_replacement(range(x + 1), t)
    return [np.diff([0, *between, x]) for between in stops]


@given(st.integers(0, 4), st.integers(0, 6), st.floats(0.01, 1))
def test_gaussian_sums_over_walks_lie_between_their_bounds(t, x, a):
    total = np.log(sum(np.exp(-a * (h**2).sum()) for h in walks(t, x)))
    lower, upper = encodings.log_gaussian_walks(t, [x], a)
    assert lower[0] - 1e-9 <= total <= upper[0] + 1e-9
    if x % (t + 1) == 0:  # equal steps are a walk: alone it is the upper bound but for the count
        shortest = min((h**2).sum() for h in walks(t, x))
        assert upper[0] == pytest.approx(np.log(len(walks(t, x))) - a * shortest)
    mean = np.mean([(h**2).sum() for h in walks(t, x)])
    assert mean == pytest.approx(x * (2 * x + t) / (t + 2))


@pytest.mark.parametrize(("slope", "spread"), [(0.25, 0.0), (0.25, 1.0), (0.5, 2.0), (1.0, 0.3)])
def test_no_better_constants_hold_for_every_length(slope, spread):
    """One key at an end of the range, all others at the other end, for the last query of many tokens."""
    n = 120
    x = np.arange(n)[::-1]
    found = {}
    for sign in (1, -1):
        logits = -slope * x + sign * spread * np.eye(n)
        rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        found[sign] = np.diag(rows) * np.exp(slope * x)
    lower, upper = encodings.decay_constants(slope, spread)
    assert found[-1].min() == pytest.approx(lower, rel=1e-6)
    assert max(found[1].max(), 1.0) == pytest.approx(upper, rel=1e-6)
    assert upper <= max(1, encodings.decay_constants(slope, spread, printed=True)[1])


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

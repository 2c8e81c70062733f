from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.theorems import encodings
from studies.theorems.networks import run_residual_network, sector_network


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


@given(st.integers(1, 4), st.integers(2, 12), st.floats(0, 0.2), st.floats(0.1, 4), st.integers(0, 1000))
def test_rope_bounds_hold_in_every_layer_of_a_network(pairs, n, spread, strength, seed):
    rng, T = np.random.default_rng(seed), 4
    theta = np.pi * 0.4 / (n - 1) * rng.uniform(0.2, 1, pairs)
    X, W_qk, W_v = sector_network(n, pairs, T, spread / 2 / np.sqrt(pairs), strength, rng)
    run = run_residual_network(X, W_qk, W_v, np.ones(T), theta=theta)
    found = encodings.rope_constants(run.states @ W_qk / np.sqrt(2 * pairs), run.states, theta)
    x, seen = np.subtract.outer(np.arange(n), np.arange(n)), np.tri(n, dtype=bool)
    gauss = found.S * x[seen] ** 2
    for A in run.kernels:
        assert (A[seen] <= found.full_upper(x[seen]) * (1 + 1e-9)).all()
        assert (A[seen] >= found.lower * np.exp(-found.c * gauss) * (1 - 1e-9)).all()
        assert (A[seen] <= found.upper * np.exp(-found.c_prime * gauss) * (1 + 1e-9)).all()
    assert found.turned <= np.pi and found.c_prime <= found.c


def test_bounds_of_a_rope_network_by_hand():
    one = np.ones((3, 1)) * [[1.0, 0.0]]
    found = encodings.rope_constants(one, one, [0.5])
    low, high = found.bounds([0, 2])
    assert low == pytest.approx([found.lower, found.lower * np.exp(-1)])
    assert high == pytest.approx([found.upper, found.upper * np.exp(-1 / np.pi**2)])
    turned = np.ones((3, 1)) * [[np.cos(0.2), np.sin(0.2)]]  # an angle before rotation: upper is above 1
    found = encodings.rope_constants(one, turned, [0.5])
    assert found.upper > 1.04
    both = found.log_bounds(2, [2])
    assert both[0] == pytest.approx(3 * np.log(found.lower) + encodings.log_gaussian_walks(2, [2], 0.25)[0])
    assert both[1] == pytest.approx(3 * np.log(found.upper) + encodings.log_gaussian_walks(2, [2], 0.25 / np.pi**2)[1])


@given(st.lists(st.fractions(0, 3, max_denominator=9), min_size=1, max_size=5), st.integers(0, 5))
def test_the_polynomials_are_sums_over_multisets(values, degree):
    def product(chosen):
        return np.prod([Fraction(1), *chosen])

    expected = [sum(map(product, combinations_with_replacement(values, k))) for k in range(degree + 1)]
    assert encodings.complete_homogeneous(values, degree) == expected


@given(
    st.integers(1, 6),
    st.integers(1, 5),
    st.fractions(Fraction(1, 20), 1, max_denominator=20),
    st.lists(st.fractions(Fraction(1, 9), 4, max_denominator=9), min_size=6, max_size=6),
)
def test_the_closed_form_is_exact_in_rationals(n, T, q, keys):
    A = encodings.exact_decay_kernel(n, q, keys[:n])
    own, P = [A[j][j] for j in range(n)], A
    for t in range(T):
        for i in range(n):
            for j in range(i + 1):
                assert P[i][j] == A[i][j] * encodings.complete_homogeneous(own[j : i + 1], t)[t]
        P = encodings.exact_product(A, P)


@pytest.mark.parametrize(("k", "theta"), [(1, 1.1), (-1, 0.1)])  # 3 · 1.1 is beyond π; an angle π before rotation
def test_rope_constants_are_refused_beyond_their_condition(k, theta):
    one = np.array([[1.0, 0.0]] * 4)
    with pytest.raises(ValueError, match="theta: expected angles with"):
        encodings.rope_constants(one, k * one, [theta])


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

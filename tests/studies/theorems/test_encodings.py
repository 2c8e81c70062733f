from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, position_logits, rollout_matrix
from posbias.rollout import masks
from posbias.rollout.clock import hop_distribution
from posbias.rollout.influence import rollout_history
from studies.theorems import encodings
from studies.theorems.networks import run_residual_network, sector_network


def walks(t, x):
    """All causal walks over a distance x in t + 1 layers, as the lists of their steps."""
    stops = combinations_with_replacement(range(x + 1), t)
    return [np.diff([0, *between, x]) for between in stops]


@given(st.integers(0, 5), st.integers(0, 6))
def test_walks_are_counted_right(t, x):
    assert np.exp(encodings.log_walks(t, x)) == pytest.approx(len(walks(t, x)))


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


@given(st.integers(0, 60), st.floats(0.03, 4))
def test_the_peak_of_the_decay_law_is_its_formula_rounded_down(t, slope):
    peak = float(encodings.decay_peak(t, slope))
    law = encodings.log_walks(t, np.arange(int(peak) + 50)) - slope * np.arange(int(peak) + 50)
    best = law.max()
    assert law[int(peak)] == pytest.approx(best, abs=1e-9)


def test_walk_sums_are_the_rollout_of_a_shifted_kernel():
    hops, n = np.array([0.5, 0.3, 0.2]), 9
    A = sum(np.diag(np.full(n - x, h), -x) for x, h in enumerate(hops))
    A[:, 0] += 1 - A.sum(axis=1)  # what would fall off the start stays on the first token
    P = rollout_matrix(A, np.ones(3))
    assert encodings.walk_sums(np.pad(hops, (0, n - 3)), 3)[-1][: n - 1] == pytest.approx(P[-1, ::-1][: n - 1])


@given(st.floats(0.5, 60), st.floats(1e-3, 2))
def test_the_gaussian_peak_solves_its_equation(t, theta):
    x = encodings.gaussian_peak(t, theta**2)
    assert np.log((t + x) / x) == pytest.approx(2 * theta**2 * x, rel=1e-9)


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


def test_ratios_to_the_law_lie_between_the_constants():
    T, n, slope = 5, 9, 0.4
    content = np.random.default_rng(0).uniform(0, 0.5, (T, n, n))
    A = attention_kernel(content + position_logits(n, slope), masks.causal())
    ratios = encodings.log_law_ratios(rollout_history(A, np.ones(T))[1:], slope)
    low, high = np.log(encodings.decay_constants(slope, 0.5))
    depth = np.arange(1, T + 1)[:, None]
    assert ratios.shape == (T, n * (n + 1) // 2)
    assert (depth * low <= ratios + 1e-12).all() and (ratios <= depth * high + 1e-12).all()
    P = rollout_matrix(A, np.ones(T))
    assert ratios[-1, -2] == pytest.approx(np.log(P[-1, -2]) - float(encodings.log_decay_law(T - 1, 1, slope)))


@given(st.integers(1, 60), st.floats(0.05, 2.0))
def test_the_rounded_peak_is_exact_and_the_continuous_one_half_off(t, slope):
    star = t / np.expm1(slope)
    errors = encodings.peak_errors(t, slope)
    if abs(star - round(star)) > 1e-6:  # where x* is an integer two neighbours have the peak
        assert errors.rounded == 0
    assert (errors.continuous == 0) == (star <= 1) and 0 <= errors.continuous < 0.6


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
    own = [A[j][j] for j in range(n)]
    for t, P in enumerate(encodings.exact_powers(A, T)):
        for i in range(n):
            for j in range(i + 1):
                assert P[i][j] == A[i][j] * encodings.complete_homogeneous(own[j : i + 1], t)[t]


@given(st.integers(1, 30), st.integers(1, 20), st.floats(0, 3))
def test_rows_of_powers_against_the_product(n, T, slope):
    A = attention_kernel(position_logits(n, slope), masks.causal())
    assert encodings.decay_diagonal(n, slope) == pytest.approx(np.diag(A))
    found = encodings.power_row(A[-1], np.diag(A), T)
    expected = rollout_history(np.broadcast_to(A, (T, n, n)), np.ones(T))[1:, -1]
    assert found == pytest.approx(expected, rel=1e-12, abs=0)


def test_a_row_with_residuals_is_that_of_the_rollout():
    n, lambdas = 12, np.array([0.1, 0.7, 0.4])
    A = attention_kernel(position_logits(n, 0.2), masks.causal())
    found = encodings.mixed_power_row(A[-1], np.diag(A), hop_distribution(lambdas))
    assert found == pytest.approx(rollout_matrix(np.broadcast_to(A, (3, n, n)), lambdas)[-1], rel=1e-12)
    assert encodings.mixed_power_row(A[-1], np.diag(A), np.ones(1)).tolist() == np.eye(n)[-1].tolist()


@pytest.mark.parametrize(("k", "theta"), [(1, 1.1), (-1, 0.1)])  # 3 · 1.1 is beyond π; an angle π before rotation
def test_rope_constants_are_refused_beyond_their_condition(k, theta):
    one = np.array([[1.0, 0.0]] * 4)
    with pytest.raises(ValueError, match="theta: expected angles with"):
        encodings.rope_constants(one, k * one, [theta])


@given(st.floats(1, 60), st.floats(0.01, 1))
def test_printed_derivatives_are_right_with_the_square_only(t, theta):
    derived, numerical = encodings.gaussian_peak_slopes(t, theta), encodings.numerical_slopes(t, theta)
    assert derived == pytest.approx(numerical, rel=1e-5)
    assert encodings.printed_slopes(t, theta, squared=True) == pytest.approx(derived)
    assert theta > 0.5 or encodings.printed_slopes(t, theta) != pytest.approx(derived, rel=0.05)

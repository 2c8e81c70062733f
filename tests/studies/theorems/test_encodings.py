from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nbinom

from posbias import attention_kernel, position_logits, rollout_matrix
from posbias.rollout import masks
from posbias.rollout.logits import rope_logits
from studies.theorems.bounded_network import run_residual_network, sector_network
from studies.theorems.encodings import (
    decay_constants,
    decay_peak,
    gaussian_peak,
    gaussian_peak_slopes,
    log_gaussian_walks,
    log_walks,
    rope_constants,
    walk_sums,
)


def walks(t, x):
    """All causal walks over a distance x in t + 1 layers, as the lists of their steps."""
    stops = combinations_with_replacement(range(x + 1), t)
    return [np.diff([0, *between, x]) for between in stops]


@given(st.integers(0, 5), st.integers(0, 6))
def test_walks_are_counted_right(t, x):
    assert np.exp(log_walks(t, x)) == pytest.approx(len(walks(t, x)))


@given(st.integers(0, 4), st.integers(0, 6), st.floats(0.01, 1))
def test_gaussian_sums_over_walks_lie_between_their_bounds(t, x, a):
    total = np.log(sum(np.exp(-a * (h**2).sum()) for h in walks(t, x)))
    lower, upper = log_gaussian_walks(t, [x], a)
    assert lower[0] - 1e-9 <= total <= upper[0] + 1e-9
    mean = np.mean([(h**2).sum() for h in walks(t, x)])
    assert mean == pytest.approx(x * (2 * x + t) / (t + 2))


def test_the_printed_step_of_theorem_4_7_fails_for_three_equal_steps():
    """(16) needs Σ h² ≥ x²/2: true for one step or two, false from three on."""
    for t, x in [(0, 4), (1, 4)]:
        assert min((h**2).sum() for h in walks(t, x)) >= x**2 / 2
    assert min((h**2).sum() for h in walks(2, 6)) == 12 < 18


@given(st.floats(0.01, 3), st.floats(0, 3), st.integers(2, 20), st.integers(0, 1000))
def test_lemma_4_4_with_the_larger_constant(slope, spread, n, seed):
    content = np.random.default_rng(seed).uniform(0, spread, (n, n))
    A = attention_kernel(content + position_logits(n, slope), masks.causal())
    scaled = (A * np.exp(-position_logits(n, slope)))[np.tri(n, dtype=bool)]
    lower, upper = decay_constants(slope, spread)
    assert lower * (1 - 1e-9) <= scaled.min() and scaled.max() <= upper * (1 + 1e-9)
    later = (A * np.exp(-position_logits(n, slope)))[1:][np.tri(n, dtype=bool)[1:]]
    assert later.max() <= decay_constants(slope, spread, printed=True)[1] * (1 + 1e-9)


def test_the_printed_constant_does_not_bound_the_first_token():
    A = attention_kernel(position_logits(2, np.log(2)), masks.causal())
    assert np.allclose(A, [[1, 0], [1 / 3, 2 / 3]])
    printed = decay_constants(np.log(2), 0.0, printed=True)[1]
    assert printed == pytest.approx(2 / 3) and printed < A[0, 0]


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
    lower, upper = decay_constants(slope, spread)
    assert found[-1].min() == pytest.approx(lower, rel=1e-6)
    assert max(found[1].max(), 1.0) == pytest.approx(upper, rel=1e-6)
    assert upper <= max(1, decay_constants(slope, spread, printed=True)[1])


@given(st.integers(0, 60), st.floats(0.03, 4))
def test_the_peak_of_the_decay_law_is_its_formula_rounded_down(t, slope):
    peak = float(decay_peak(t, slope))
    law = log_walks(t, np.arange(int(peak) + 50)) - slope * np.arange(int(peak) + 50)
    best = law.max()
    assert law[int(peak)] == pytest.approx(best, abs=1e-9)
    assert decay_peak([1, 2], [slope, slope])[1] >= decay_peak([1, 2], [slope, slope])[0]


@given(st.integers(1, 12), st.floats(0.1, 2))
def test_without_a_first_token_the_rollout_is_a_negative_binomial(T, slope):
    hops = -np.expm1(-slope) * np.exp(-slope * np.arange(40))
    assert walk_sums(hops, T)[-1] == pytest.approx(nbinom.pmf(np.arange(40), T, -np.expm1(-slope)), rel=1e-8, abs=1e-15)


def test_walk_sums_are_the_rollout_of_a_shifted_kernel():
    hops, n = np.array([0.5, 0.3, 0.2]), 9
    A = sum(np.diag(np.full(n - x, h), -x) for x, h in enumerate(hops))
    A[:, 0] += 1 - A.sum(axis=1)  # what would fall off the start stays on the first token
    P = rollout_matrix(A, np.ones(3))
    assert walk_sums(np.pad(hops, (0, n - 3)), 3)[-1][: n - 1] == pytest.approx(P[-1, ::-1][: n - 1])


@given(st.floats(0.5, 60), st.floats(1e-3, 2))
def test_gaussian_peak_and_its_slopes_against_differences(t, theta):
    x = gaussian_peak(t, theta**2)
    assert np.log((t + x) / x) == pytest.approx(2 * theta**2 * x, rel=1e-9)
    by_t, by_theta = gaussian_peak_slopes(t, theta)
    h = 1e-5
    assert by_t == pytest.approx(
        (gaussian_peak(t * (1 + h), theta**2) - gaussian_peak(t * (1 - h), theta**2)) / (2 * h * t), rel=1e-4
    )
    around = [gaussian_peak(t, (theta * (1 + s * h)) ** 2) for s in (1, -1)]
    assert by_theta == pytest.approx((around[0] - around[1]) / (2 * h * theta), rel=1e-4)


@given(st.integers(1, 4), st.integers(2, 12), st.floats(0, 0.2), st.floats(0.1, 4), st.integers(0, 1000))
def test_rope_bounds_hold_in_every_layer_of_a_network(pairs, n, spread, strength, seed):
    rng, T = np.random.default_rng(seed), 4
    theta = np.pi * 0.4 / (n - 1) * rng.uniform(0.2, 1, pairs)
    X, W_qk, W_v = sector_network(n, pairs, T, spread / 2 / np.sqrt(pairs), strength, rng)
    run = run_residual_network(X, W_qk, W_v, np.ones(T), theta=theta)
    found = rope_constants(run.states @ W_qk / np.sqrt(2 * pairs), run.states, theta)
    x, seen = np.subtract.outer(np.arange(n), np.arange(n)), np.tri(n, dtype=bool)
    gauss = found.S * x[seen] ** 2
    for A in run.kernels:
        assert (A[seen] <= found.full_upper(x[seen]) * (1 + 1e-9)).all()
        assert (A[seen] >= found.lower * np.exp(-found.c * gauss) * (1 - 1e-9)).all()
        assert (A[seen] <= found.upper * np.exp(-found.c_prime * gauss) * (1 + 1e-9)).all()
    assert found.turned <= np.pi and found.c_prime <= found.c


def test_rope_constants_by_hand():
    """Two tokens, equal unit queries and keys, θ = 1/2: g = 1, φ = 0."""
    one = np.array([[1.0, 0.0]] * 2)
    found = rope_constants(one, one, [0.5])
    assert (found.c, found.S, found.delta, found.turned) == pytest.approx((1, 0.25, 0, 0.5))
    assert found.upper == pytest.approx(1)
    assert found.lower == pytest.approx(1 / (1 + np.exp(-0.25 / np.pi**2)))
    assert found.full_upper([0, 1]) == pytest.approx([1, np.exp(-0.25 / np.pi**2) / (1 + np.exp(-0.25))])
    assert attention_kernel(rope_logits(one, one, [0.5]), masks.causal())[1, 0] >= found.lower * np.exp(-0.25)


@given(st.integers(1, 5), st.integers(0, 2000))
def test_lemma_i_3_angles_of_pairs(pairs, seed):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(pairs, 2))
    k = q + rng.uniform(0, 1) * rng.normal(size=(pairs, 2))
    norms = [np.linalg.norm(x, axis=1) for x in (q, k)]
    betas = [norm.min() / np.linalg.norm(x) for norm, x in zip(norms, (q, k), strict=True)]
    phi = np.arccos(np.clip((q * k).sum() / np.linalg.norm(q) / np.linalg.norm(k), -1, 1))
    each = np.arccos(np.clip((q * k).sum(axis=1) / norms[0] / norms[1], -1, 1))
    assert np.sqrt((each**2).sum()) <= np.pi / 2 * phi / np.sqrt(betas[0] * betas[1]) + 1e-6


ONE = np.array([[1.0, 0.0]] * 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: log_walks(-1, [1]),
        lambda: log_walks(1, [-1]),
        lambda: decay_constants(0.0, 1.0),
        lambda: decay_constants(1.0, -1.0),
        lambda: decay_peak(3, 0.0),
        lambda: decay_peak(-1, 1.0),
        lambda: gaussian_peak(0, 1.0),
        lambda: gaussian_peak(1, 0.0),
        lambda: log_gaussian_walks(1, [1], 0.0),
        lambda: walk_sums(np.ones(2), 0),
        lambda: rope_constants(ONE, ONE, [1.1]),  # 3 · 1.1 is beyond π
        lambda: rope_constants(ONE, -ONE, [0.1]),  # angle π before rotation
        lambda: rope_constants(ONE, ONE, [0.1, 0.1]),
        lambda: rope_constants(ONE, ONE, [0.0]),
        lambda: rope_constants(ONE, 0 * ONE, [0.1]),
        lambda: sector_network(3, 1, 2, 1.0, 1.0, np.random.default_rng(0)),
        lambda: sector_network(3, 1, 2, 0.1, 0.0, np.random.default_rng(0)),
        lambda: sector_network(3, 0, 2, 0.1, 1.0, np.random.default_rng(0)),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="expected .* received"):
        call()

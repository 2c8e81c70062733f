import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, position_logits, rollout_matrix
from posbias.rollout import masks
from posbias.rollout.influence import rollout_history
from studies.theorems.by_distance import distances, envelope
from studies.theorems.critical_distance import numerical_slopes, printed_slopes
from studies.theorems.decay_law import log_decay_law, log_law_ratios, peak_errors
from studies.theorems.encodings import decay_constants, gaussian_peak_slopes, log_gaussian_walks, rope_constants
from studies.theorems.pair_angles import pair_angles


@given(st.integers(2, 6), st.integers(0, 100))
def test_the_envelope_holds_every_weight_and_is_attained(n, seed):
    kernels = attention_kernel(np.random.default_rng(seed).normal(size=(3, n, n)), masks.causal())
    x = distances(n)
    for first in (0, n // 2):
        low, high = envelope(kernels, first_query=first)
        for k in range(n):
            at = (x == k) & (np.arange(n)[:, None] >= first)
            assert (low[k], high[k]) == (kernels[:, at].min(), kernels[:, at].max())
    with pytest.raises(ValueError, match="first_query: expected a position"):
        envelope(kernels, first_query=n)


def test_ratios_to_the_law_lie_between_the_constants():
    T, n, slope = 5, 9, 0.4
    content = np.random.default_rng(0).uniform(0, 0.5, (T, n, n))
    A = attention_kernel(content + position_logits(n, slope), masks.causal())
    ratios = log_law_ratios(rollout_history(A, np.ones(T))[1:], slope)
    low, high = np.log(decay_constants(slope, 0.5))
    depth = np.arange(1, T + 1)[:, None]
    assert ratios.shape == (T, n * (n + 1) // 2)
    assert (depth * low <= ratios + 1e-12).all() and (ratios <= depth * high + 1e-12).all()
    P = rollout_matrix(A, np.ones(T))
    assert ratios[-1, -2] == pytest.approx(np.log(P[-1, -2]) - float(log_decay_law(T - 1, 1, slope)))


@given(st.integers(1, 60), st.floats(0.05, 2.0))
def test_the_rounded_peak_is_exact_and_the_continuous_one_half_off(t, slope):
    star = t / np.expm1(slope)
    errors = peak_errors(t, slope)
    if abs(star - round(star)) > 1e-6:  # where x* is an integer two neighbours have the peak
        assert errors.rounded == 0
    assert (errors.continuous == 0) == (star <= 1) and 0 <= errors.continuous < 0.6


@given(st.floats(1, 60), st.floats(0.01, 1))
def test_printed_derivatives_are_right_with_the_square_only(t, theta):
    derived, numerical = gaussian_peak_slopes(t, theta), numerical_slopes(t, theta)
    assert derived == pytest.approx(numerical, rel=1e-5)
    assert printed_slopes(t, theta, squared=True) == pytest.approx(derived)
    assert theta > 0.5 or printed_slopes(t, theta) != pytest.approx(derived, rel=0.05)


@given(st.integers(1, 5), st.integers(0, 1000))
def test_angles_of_pairs_stay_below_their_bound(pairs, seed):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(20, pairs, 2))
    each, bound = pair_angles(q, q + rng.uniform() * rng.normal(size=q.shape))
    assert (each <= bound + 1e-6).all()


def test_bounds_of_a_rope_network_by_hand():
    one = np.ones((3, 1)) * [[1.0, 0.0]]
    found = rope_constants(one, one, [0.5])
    low, high = found.bounds([0, 2])
    assert low == pytest.approx([found.lower, found.lower * np.exp(-1)])
    assert high == pytest.approx([found.upper, found.upper * np.exp(-1 / np.pi**2)])
    turned = np.ones((3, 1)) * [[np.cos(0.2), np.sin(0.2)]]  # an angle before rotation: upper is above 1
    found = rope_constants(one, turned, [0.5])
    assert found.upper > 1.04
    both = found.log_bounds(2, [2])
    assert both[0] == pytest.approx(3 * np.log(found.lower) + log_gaussian_walks(2, [2], 0.25)[0])
    assert both[1] == pytest.approx(3 * np.log(found.upper) + log_gaussian_walks(2, [2], 0.25 / np.pi**2)[1])

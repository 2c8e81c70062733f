"""The lemmas and propositions of the finite-depth theory on random kernels, and what fails without a hypothesis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import (
    attention_kernel,
    content_logits,
    dominates,
    influence_history,
    influence_profile,
    is_monotone,
    masks,
    monotone_rearrangement,
    position_logits,
    prefix_masses,
)

N = 6
MASKS = [masks.causal(), masks.sliding_window(3)]
SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)
SIGNS = st.sampled_from([1.0, -1.0])
TO_FIRST = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 0]])  # 3 looks at 1, 2 at itself
TO_SECOND = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])  # 3 looks at 2


def monotone_kernels(rng, T, mask=None):
    mask = mask or MASKS[rng.integers(2)]
    kernels = attention_kernel(rng.normal(scale=2, size=(T, N, N)), mask)
    return np.stack([monotone_rearrangement(A) for A in kernels])


@given(SEEDS, st.integers(1, 8))
def test_p42_prefix_masses_grow_with_depth(rng, T):
    history = influence_history(monotone_kernels(rng, T), rng.uniform(size=T))
    assert (np.diff(prefix_masses(history), axis=0) >= -1e-12).all()


def test_p42_needs_monotone_kernels():
    history = influence_history(np.stack([TO_FIRST, TO_SECOND]), [1.0, 1.0])
    assert history[:, 0].tolist() == [0, 1, 0] and not is_monotone(TO_FIRST)


@given(SEEDS, st.integers(1, 8))
def test_p43_less_mixing_is_more_recent(rng, T):
    kernels, more = monotone_kernels(rng, T), rng.uniform(size=T)
    assert dominates(influence_profile(kernels, more * rng.uniform(size=T)), influence_profile(kernels, more))


def test_p43_needs_monotone_kernels_and_the_mask():
    crossed = np.stack([TO_FIRST, TO_SECOND])
    assert not dominates(influence_profile(crossed, [1.0, 0.0]), influence_profile(crossed, [1.0, 1.0]))
    to_last, to_first = np.tile([0.0, 0, 1], (3, 1)), np.tile([1.0, 0, 0], (3, 1))
    unmasked = np.stack([to_last, to_first])
    assert is_monotone(to_last) and is_monotone(to_first)
    assert not dominates(influence_profile(unmasked, [0.0, 1.0]), influence_profile(unmasked, [1.0, 1.0]))


@given(SEEDS, st.integers(1, 6), st.floats(0.01, 5))
def test_p44_recency_favouring_logits_are_more_recent(rng, T, slope):
    """Content of the key alone makes monotone causal kernels, whatever it is, so that the hypothesis is met."""
    keys = np.broadcast_to(rng.normal(scale=2, size=(T, 1, N)), (T, N, N))
    plain, tilted = (attention_kernel(keys + s * position_logits(N, 1.0), masks.causal()) for s in (0.0, slope))
    assert all(is_monotone(A, tolerance=1e-11) for A in plain)
    lambda_ = rng.uniform(size=T)
    assert dominates(influence_profile(tilted, lambda_), influence_profile(plain, lambda_))


def test_p44_needs_recency_favouring_logits_and_a_monotone_kernel():
    distance = position_logits(N, 1.0)
    plain, away = (attention_kernel(s * distance, masks.causal()) for s in (0.0, -0.5))
    assert not dominates(influence_profile(away, [0.5]), influence_profile(plain, [0.5]))
    content = np.array([[[0, 0, 0], [-8, 8, 0], [20, 0, 0]], [[0, 0, 0], [0, 0, 0], [-20, 4, 4]]], dtype=float)
    kernels = [attention_kernel(content + s * position_logits(3, 1.0), masks.causal()) for s in (0.0, 1.0)]
    without, tilted = (influence_profile(A, [1.0, 1.0]) for A in kernels)
    assert not dominates(tilted, without) and not is_monotone(kernels[0][0]) and not is_monotone(kernels[1][0])


@given(SEEDS, st.integers(1, 6), SIGNS, st.floats(0, 2))
def test_p45_the_diagonal_pulls_by_its_sign(rng, T, sign, slope):
    mask, d, lambda_ = MASKS[rng.integers(2)], rng.exponential(3, size=T), rng.uniform(size=T)
    position = position_logits(N, slope)
    baseline = attention_kernel(np.broadcast_to(position, (T, N, N)), mask)
    content = np.stack([position + content_logits(N, float(rng.normal()), sign * x) for x in d])
    with_content = influence_profile(attention_kernel(content, mask), lambda_)
    pair = [influence_profile(baseline, lambda_), with_content]
    earlier, later = pair if sign > 0 else pair[::-1]
    assert dominates(later, earlier)


def test_p45_claims_nothing_for_mixed_signs():
    kernels = [attention_kernel(content_logits(3, 0.0, d), masks.causal()) for d in (-2.0, 2.0)]
    mixed = influence_profile(np.stack(kernels), [1.0, 1.0])
    plain = influence_profile(np.stack([attention_kernel(np.zeros((3, 3)), masks.causal())] * 2), [1.0, 1.0])
    assert not dominates(mixed, plain) and not dominates(plain, mixed)


@pytest.mark.parametrize("d", [-1000.0, -3.0, 0.0, 2.0, 1000.0])
def test_diagonal_content_keeps_alibi_monotone(d):
    assert is_monotone(attention_kernel(position_logits(N, 0.3) + content_logits(N, 0.0, d), masks.causal()))

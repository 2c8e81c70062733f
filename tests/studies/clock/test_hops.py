"""Weights of hops that are exact for a few layers: their error is within its bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from posbias import influence_profile
from posbias.rollout.clock import hop_distribution
from studies.clock import hops

schedules = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(schedules, st.integers(0, 8))
def test_error_of_weights_is_within_its_bound(lambdas, exact):
    exact = min(exact, len(lambdas))
    weights, bound = hops.partly_exact_hops(lambdas, exact)
    assert weights.sum() == pytest.approx(1)
    own = hop_distribution(lambdas)
    both = np.zeros((2, max(own.size, weights.size)))
    both[0, : own.size], both[1, : weights.size] = own, weights
    assert 0.5 * np.abs(both[0] - both[1]).sum() <= bound + 1e-12
    assert weights @ np.arange(weights.size) == pytest.approx(sum(lambdas))  # the total is kept


@given(schedules, st.integers(0, 100))
def test_the_bound_holds_for_any_shared_kernel(lambda_, seed):
    A = np.tril(np.random.default_rng(seed).random((5, 5)) + 0.01)
    A = A / A.sum(axis=1, keepdims=True)
    distance = np.abs(influence_profile(A, lambda_) - expm(sum(lambda_) * (A - np.eye(5)))[-1]).sum() / 2
    assert distance <= hops.clock_error_bound(lambda_) + 1e-12

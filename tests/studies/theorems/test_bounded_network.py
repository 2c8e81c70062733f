import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, position_logits, rollout_matrix
from posbias.rollout import masks, schedules
from posbias.rollout.logits import rope_logits
from studies.theorems.bounded_network import (
    bounded_weights,
    random_states,
    run_residual_network,
    value_product_norms,
    weights_of_norms,
)
from studies.theorems.depth import attention_floor, state_bound


@pytest.mark.parametrize("slope", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_lemma_5_4_on_a_random_network(seed, slope):
    rng, (n, d, T) = np.random.default_rng(seed), (7, 5, 20)
    X, W_qk, W_v = rng.normal(size=(n, d)), rng.normal(size=(T, d, d)) / d, rng.normal(size=(T, d, d)) / 2
    lambda_ = schedules.power_decay(T, 0.9, 1.0)
    run = run_residual_network(X, W_qk, W_v, lambda_, slope)
    norms = np.linalg.norm(W_v, 2, axis=(1, 2))
    x0 = float(np.linalg.norm(X, axis=1).max())
    for t in range(T):
        assert run.norms[t] <= state_bound(x0, norms[: t + 1], lambda_[: t + 1]) * (1 + 1e-12)
        before = state_bound(x0, norms[:t], lambda_[:t]) if t else x0
        content = before**2 * np.linalg.norm(W_qk[t], 2) / np.sqrt(d)
        assert run.floors[t] >= attention_floor(n, content, slope * (n - 1))


def test_one_layer_of_the_network_by_hand():
    X = np.array([[1.0], [3.0]])
    run = run_residual_network(X, np.zeros((1, 1, 1)), np.full((1, 1, 1), 2.0), [0.5])
    assert run.kernels[0].tolist() == [[1, 0], [0.5, 0.5]]
    assert run.norms[0] == pytest.approx(0.5 * 3 + 0.5 * 2 * 2) and run.floors[0] == 0.5
    biased = run_residual_network(X, np.zeros((1, 1, 1)), np.ones((1, 1, 1)), [0.5], slope=1.0)
    assert np.allclose(biased.kernels[0], attention_kernel(position_logits(2, 1.0), masks.causal()))


@pytest.mark.parametrize("mask", [masks.causal(), masks.sliding_window(3), masks.prefix(2), masks.full()])
def test_without_residual_the_states_are_the_rollout_times_the_value_maps(mask):
    """Equation 4 of Wu et al.: X after T layers is P X_0 W_1 … W_T."""
    rng, (n, d, T) = np.random.default_rng(3), (5, 4, 6)
    weights, X = bounded_weights(T, d, 1.0, 2.0, rng), rng.normal(size=(n, d))
    run = run_residual_network(X, weights.W_qk, weights.W_v, np.ones(T), mask=mask)
    P = rollout_matrix(run.kernels[:-1], np.ones(T - 1))
    assert np.allclose(run.states[-1], P @ X @ np.linalg.multi_dot(weights.W_v[:-1]))
    assert (run.kernels[:, ~mask.matrix(n)] == 0).all() and (run.states[0] == X).all()
    same = run_residual_network(X, weights.W_qk, weights.W_v, np.ones(T), mask=mask.matrix(n))
    assert (same.kernels == run.kernels).all()


@given(st.integers(1, 40), st.integers(1, 6), st.floats(0, 3), st.floats(1, 5), st.integers(0, 100))
def test_bounded_weights_meet_both_assumptions(T, d, norm, condition, seed):
    weights = bounded_weights(T, d, norm, condition, np.random.default_rng(seed))
    for W in (weights.W_q, weights.W_k):
        assert np.linalg.norm(W, 2, axis=(1, 2)) == pytest.approx(norm)
    assert (value_product_norms(weights.W_v) <= condition * (1 + 1e-9)).all()


def test_bounded_weights_in_one_dimension_and_product_norms_by_hand():
    weights = bounded_weights(2, 1, 0.5, 3.0, np.random.default_rng(0))
    assert abs(weights.W_qk).ravel().tolist() == pytest.approx([0.25, 0.25])
    assert abs(weights.W_v).ravel().tolist() == pytest.approx([1, 1])
    assert value_product_norms(np.array([[[0.0, 2.0], [0.0, 0.0]]] * 2)).tolist() == [2, 0]


def test_rope_turns_queries_and_keys_by_the_printed_matrix():
    rng, theta, n = np.random.default_rng(0), [0.3, 1.1], 4
    q, k = rng.normal(size=(2, n, 4))
    for i in range(n):
        for j in range(n):
            R = np.zeros((4, 4))
            for pair, angle in enumerate(theta):
                c, s = np.cos((i - j) * angle), np.sin((i - j) * angle)
                R[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[c, s], [-s, c]]
            assert rope_logits(q, k, theta)[i, j] == pytest.approx(q[i] @ R @ k[j])
    assert np.allclose(rope_logits(q, k, [0.0, 0.0]), q @ k.T)


def test_the_network_with_rope():
    rng, T = np.random.default_rng(1), 2
    X, W_qk, W_v = rng.normal(size=(3, 2)), rng.normal(size=(T, 2, 2)), rng.normal(size=(T, 2, 2))
    run = run_residual_network(X, W_qk, W_v, np.ones(T), theta=[0.2])
    first = attention_kernel(rope_logits(X @ W_qk[0], X, [0.2]) / np.sqrt(2), masks.causal())
    assert np.allclose(run.kernels[0], first)
    still = run_residual_network(X, W_qk, W_v, np.ones(T), theta=[0.0])
    assert np.allclose(still.kernels, run_residual_network(X, W_qk, W_v, np.ones(T)).kernels)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounded_weights(0, 2, 1.0, 1.0, np.random.default_rng(0)),
        lambda: bounded_weights(2, 2, -1.0, 1.0, np.random.default_rng(0)),
        lambda: bounded_weights(2, 2, 1.0, 0.5, np.random.default_rng(0)),
        lambda: rope_logits(np.ones((2, 3)), np.ones((2, 3)), [0.1]),
        lambda: rope_logits(np.ones((2, 4)), np.ones((2, 4)), [0.1]),
        lambda: run_residual_network(np.ones((2, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 1)), [2.0]),
        lambda: attention_kernel(np.zeros((2, 2)), np.array([[True, False], [False, False]])),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="expected .* received"):
        call()


def test_drawn_weights_and_states_have_the_norms_asked_for():
    rng = np.random.default_rng(3)
    W = weights_of_norms([[1.0, 0.5, 0.0], [2.0, 3.0, 0.1]], 4, rng)
    assert W.shape == (2, 3, 4, 4)
    assert np.allclose(np.linalg.norm(W, 2, axis=(-2, -1)), [[1.0, 0.5, 0.0], [2.0, 3.0, 0.1]])
    assert np.allclose(np.linalg.norm(random_states(5, 3, 0.7, rng), axis=1), 0.7)
    with pytest.raises(ValueError, match="norms: expected numbers"):
        weights_of_norms([-1.0], 3, rng)
    with pytest.raises(ValueError, match="norm: expected a finite number"):
        random_states(5, 3, 0.0, rng)

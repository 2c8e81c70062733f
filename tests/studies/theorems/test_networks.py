import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, position_logits, rollout_matrix
from posbias.rollout import masks, schedules
from posbias.rollout.logits import rope_logits
from studies.theorems.depth import attention_floor, sharp_attention_floor, state_bound
from studies.theorems.networks import (
    Network,
    bounded_weights,
    opposed_network,
    output_derivative,
    path_sum,
    product_of_averages,
    random_network,
    random_states,
    run_heads,
    run_residual_network,
    value_derivative,
    value_product_norms,
    weights_of_norms,
)


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


def test_the_network_with_rope():
    rng, T = np.random.default_rng(1), 2
    X, W_qk, W_v = rng.normal(size=(3, 2)), rng.normal(size=(T, 2, 2)), rng.normal(size=(T, 2, 2))
    run = run_residual_network(X, W_qk, W_v, np.ones(T), theta=[0.2])
    first = attention_kernel(rope_logits(X @ W_qk[0], X, [0.2]) / np.sqrt(2), masks.causal())
    assert np.allclose(run.kernels[0], first)
    still = run_residual_network(X, W_qk, W_v, np.ones(T), theta=[0.0])
    assert np.allclose(still.kernels, run_residual_network(X, W_qk, W_v, np.ones(T)).kernels)


def test_drawn_weights_and_states_have_the_norms_asked_for():
    rng = np.random.default_rng(3)
    W = weights_of_norms([[1.0, 0.5, 0.0], [2.0, 3.0, 0.1]], 4, rng)
    assert W.shape == (2, 3, 4, 4)
    assert np.allclose(np.linalg.norm(W, 2, axis=(-2, -1)), [[1.0, 0.5, 0.0], [2.0, 3.0, 0.1]])
    assert np.allclose(np.linalg.norm(random_states(5, 3, 0.7, rng), axis=1), 0.7)


@given(st.integers(0, 200), st.floats(0, 1), st.sampled_from([None, [0.3, 1.1]]))
def test_a_random_network_stays_within_its_bounds(seed, slope, theta):
    rng = np.random.default_rng(seed)
    drawn = random_network(5, 4, rng.uniform(0.5, 2, 6), rng.uniform(0, 1, 6), rng, logit_norm=3.0)
    theta = None if theta is None else np.array(theta)
    net = Network(drawn.X, drawn.W_qk, drawn.W_v, drawn.lambda_, slope, theta)
    run, (C, floors) = net.run(), net.bounds(floor=sharp_attention_floor)
    assert (run.norms <= C[1:] * (1 + 1e-12)).all() and (run.floors >= floors * (1 - 1e-12)).all()
    assert (net.bounds()[1] <= floors).all()


@pytest.mark.parametrize(("n", "slope", "theta"), [(2, 0.0, None), (6, 0.0, None), (2, 1.5, None), (6, 0.0, 0.7)])
def test_the_opposed_network_attains_both_bounds(n, slope, theta):
    net = opposed_network(n, [1.5, 1.0, 2.0], [0.3, 0.9, 0.5], logit=1.2, slope=slope, theta=theta)
    run, (C, floors) = net.run(), net.bounds(floor=sharp_attention_floor)
    assert run.norms[-1] == pytest.approx(C[-1]) == pytest.approx(1.15 * 1.5)
    assert run.floors[0] == pytest.approx(floors[0])
    assert net.run(logit_factor=1.05).floors[0] < floors[0] * 0.95


def test_bounds_by_hand():
    """States twice as long after layer 1: logits of layer 2 may be four times as large."""
    net = opposed_network(2, [3.0, 1.0], [0.5, 0.5], logit=0.25, slope=0.5)
    C, floors = net.bounds()
    assert C.tolist() == pytest.approx([1, 2, 2])
    assert floors.tolist() == pytest.approx([0.5 * np.exp(-1), 0.5 * np.exp(-2.5)])


def network(seed, *, n=5, d=3, T=3, H=2, scale=1.5):
    rng = np.random.default_rng(seed)
    return random_states(n, d, 1.0, rng), scale * rng.normal(size=(T, H, d, d)), rng.normal(size=(T, H, d, d))


@pytest.mark.parametrize("mask", [masks.causal(), masks.sliding_window(2), masks.prefix(2), masks.full()])
@pytest.mark.parametrize(("H", "lambda_"), [(1, [1, 1, 1]), (2, [1, 1, 1]), (1, [0.3, 1, 0.6]), (2, [0.3, 0.2, 0.6])])
def test_the_output_is_the_sum_over_paths(mask, H, lambda_):
    X, W_qk, W_v = network(0, H=H)
    out, kernels = run_heads(X, W_qk, W_v, lambda_, mask.matrix(5))
    assert np.allclose(path_sum(kernels, W_v, lambda_, X), out, atol=1e-12)
    assert np.allclose(product_of_averages(kernels, W_v, lambda_, X), out) == (H == 1 and min(lambda_) == 1)


def test_the_network_is_that_of_the_other_module():
    rng = np.random.default_rng(1)
    weights, X = bounded_weights(4, 4, 2.0, 1.5, rng), random_states(6, 4, 1.0, rng)
    run = run_residual_network(X, weights.W_qk, weights.W_v, [0.3, 0.5, 1.0, 0.2])
    _, kernels = run_heads(X, weights.W_qk[:, None], weights.W_v[:, None], [0.3, 0.5, 1.0, 0.2], np.tri(6, dtype=bool))
    assert np.allclose(kernels[:, 0], run.kernels)


def test_the_derivative_agrees_with_differences():
    X, W_qk, W_v = network(2)
    lambda_, allowed, step = [0.5, 0.7, 1.0], np.tri(5, dtype=bool), 1e-6
    J = output_derivative(X, W_qk, W_v, lambda_, allowed)
    for j, a in ((0, 0), (2, 1), (4, 2)):
        bump = np.zeros_like(X)
        bump[j, a] = step
        up, down = (run_heads(X + s * bump, W_qk, W_v, lambda_, allowed)[0] for s in (1, -1))
        assert np.allclose(J[j, a], (up - down) / (2 * step), atol=1e-7)


def test_with_the_kernels_held_fixed_the_derivative_is_the_rollout_times_the_value_maps():
    X, W_qk, W_v = network(3, H=1)
    _, kernels = run_heads(X, W_qk, W_v, [1, 1, 1], np.tri(5, dtype=bool))
    J, P = value_derivative(kernels, W_v, [1, 1, 1]), rollout_matrix(kernels[:, 0], np.ones(3))
    W = np.linalg.multi_dot(W_v[:, 0])
    assert np.allclose(J, P.T[:, None, :, None] * W[None, :, None, :])
    still = output_derivative(X, 0 * W_qk, W_v, [1, 1, 1], np.tri(5, dtype=bool))
    even = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
    assert np.allclose(still, value_derivative(np.stack([even[None]] * 3), W_v, [1, 1, 1]))


def test_with_several_paths_the_fixed_derivative_is_that_of_the_path_sum():
    X, W_qk, W_v = network(4)
    _, kernels = run_heads(X, W_qk, W_v, [0.3, 0.5, 0.9], np.tri(5, dtype=bool))
    J = value_derivative(kernels, W_v, [0.3, 0.5, 0.9])
    assert np.allclose(np.einsum("jaib,ja->ib", J, X), path_sum(kernels, W_v, [0.3, 0.5, 0.9], X))

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, position_logits, rollout_matrix
from posbias.rollout import masks
from studies.theorems import networks
from studies.theorems.depth import sharp_attention_floor


def test_one_layer_of_the_network_by_hand():
    X = np.array([[1.0], [3.0]])
    run = networks.run_residual_network(X, np.zeros((1, 1, 1)), np.full((1, 1, 1), 2.0), [0.5])
    assert run.kernels[0].tolist() == [[1, 0], [0.5, 0.5]]
    assert run.norms[0] == pytest.approx(0.5 * 3 + 0.5 * 2 * 2) and run.floors[0] == 0.5
    biased = networks.run_residual_network(X, np.zeros((1, 1, 1)), np.ones((1, 1, 1)), [0.5], slope=1.0)
    assert np.allclose(biased.kernels[0], attention_kernel(position_logits(2, 1.0), masks.causal()))


@pytest.mark.parametrize("mask", [masks.causal(), masks.sliding_window(3), masks.prefix(2), masks.full()])
def test_without_residual_the_states_are_the_rollout_times_the_value_maps(mask):
    """Equation 4 of Wu et al.: X after T layers is P X_0 W_1 … W_T."""
    rng, (n, d, T) = np.random.default_rng(3), (5, 4, 6)
    weights, X = networks.bounded_weights(T, d, 1.0, 2.0, rng), rng.normal(size=(n, d))
    run = networks.run_residual_network(X, weights.W_qk, weights.W_v, np.ones(T), mask=mask)
    P = rollout_matrix(run.kernels[:-1], np.ones(T - 1))
    assert np.allclose(run.states[-1], P @ X @ np.linalg.multi_dot(weights.W_v[:-1]))
    assert (run.kernels[:, ~mask.matrix(n)] == 0).all() and (run.states[0] == X).all()
    same = networks.run_residual_network(X, weights.W_qk, weights.W_v, np.ones(T), mask=mask.matrix(n))
    assert (same.kernels == run.kernels).all()


@given(st.integers(0, 200), st.floats(0, 1), st.sampled_from([None, [0.3, 1.1]]))
def test_a_random_network_stays_within_its_bounds(seed, slope, theta):
    rng = np.random.default_rng(seed)
    drawn = networks.random_network(5, 4, rng.uniform(0.5, 2, 6), rng.uniform(0, 1, 6), rng, logit_norm=3.0)
    theta = None if theta is None else np.array(theta)
    net = networks.Network(drawn.X, drawn.W_qk, drawn.W_v, drawn.lambda_, slope, theta)
    run, (C, floors) = net.run(), net.bounds(floor=sharp_attention_floor)
    assert (run.norms <= C[1:] * (1 + 1e-12)).all() and (run.floors >= floors * (1 - 1e-12)).all()
    assert (net.bounds()[1] <= floors).all() and (net.bounds()[0] == C).all()


@pytest.mark.parametrize(("n", "slope", "theta"), [(2, 0.0, None), (6, 0.0, None), (2, 1.5, None), (6, 0.0, 0.7)])
def test_the_opposed_network_attains_both_bounds(n, slope, theta):
    net = networks.opposed_network(n, [1.5, 1.0, 2.0], [0.3, 0.9, 0.5], logit=1.2, slope=slope, theta=theta)
    run, (C, floors) = net.run(), net.bounds(floor=sharp_attention_floor)
    assert run.norms[-1] == pytest.approx(C[-1]) == pytest.approx(1.15 * 1.5)
    assert run.floors[0] == pytest.approx(floors[0])
    assert net.run(logit_factor=1.05).floors[0] < floors[0] * 0.95


def network(seed, *, n=5, d=3, T=3, H=2, scale=1.5):
    rng = np.random.default_rng(seed)
    return networks.random_states(n, d, 1.0, rng), scale * rng.normal(size=(T, H, d, d)), rng.normal(size=(T, H, d, d))


@pytest.mark.parametrize("mask", [masks.causal(), masks.sliding_window(2), masks.prefix(2), masks.full()])
@pytest.mark.parametrize(("H", "lambda_"), [(1, [1, 1, 1]), (2, [1, 1, 1]), (1, [0.3, 1, 0.6]), (2, [0.3, 0.2, 0.6])])
def test_the_output_is_the_sum_over_paths(mask, H, lambda_):
    X, W_qk, W_v = network(0, H=H)
    out, kernels = networks.run_heads(X, W_qk, W_v, lambda_, mask.matrix(5))
    assert np.allclose(networks.path_sum(kernels, W_v, lambda_, X), out, atol=1e-12)
    assert np.allclose(networks.product_of_averages(kernels, W_v, lambda_, X), out) == (H == 1 and min(lambda_) == 1)


def test_the_derivative_agrees_with_differences():
    X, W_qk, W_v = network(2)
    lambda_, allowed, step = [0.5, 0.7, 1.0], np.tri(5, dtype=bool), 1e-6
    J = networks.output_derivative(X, W_qk, W_v, lambda_, allowed)
    for j, a in ((0, 0), (2, 1), (4, 2)):
        bump = np.zeros_like(X)
        bump[j, a] = step
        up, down = (networks.run_heads(X + s * bump, W_qk, W_v, lambda_, allowed)[0] for s in (1, -1))
        assert np.allclose(J[j, a], (up - down) / (2 * step), atol=1e-7)

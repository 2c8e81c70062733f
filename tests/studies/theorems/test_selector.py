import numpy as np
import pytest

from posbias.rollout import masks
from posbias.rollout.influence import rollout_matrix
from studies.theorems.bounded_network import bounded_weights, random_states, run_residual_network
from studies.theorems.selector import output_derivative, path_sum, product_of_averages, run_heads, value_derivative


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


@pytest.mark.parametrize(
    "call",
    [
        lambda: run_heads(np.ones((2, 1)), np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), [1, 1], np.tri(2, dtype=bool)),
        lambda: run_heads(np.ones((2, 1)), np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), [2.0], np.tri(2, dtype=bool)),
        lambda: path_sum(np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), [1.0, 1.0], np.ones((1, 1))),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="expected .* received"):
        call()

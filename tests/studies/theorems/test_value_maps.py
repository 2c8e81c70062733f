import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, influence_profile
from posbias.rollout import masks
from posbias.rollout.untrained import birth_profile
from studies.theorems.value_maps import value_influence


def random_heads(seed, T=3, H=2, n=4):
    rng = np.random.default_rng(seed)
    return attention_kernel(rng.normal(scale=2, size=(T, H, n, n)), masks.causal()), rng


def jacobian_norms(A, W):
    """Multiply the layers' operators on all states at once."""
    (T, H, n, _), d = A.shape, W.shape[-1]
    P = np.eye(n * d)
    for t in range(T):
        P = (np.eye(n * d) + sum(np.kron(A[t, h], W[t, h]) for h in range(H))) @ P
    blocks = P.reshape(n, d, n, d)[-1].transpose(1, 0, 2)
    norms = np.linalg.norm(blocks, axis=(1, 2))
    return norms / norms.sum()


@given(st.integers(0, 1000))
def test_influence_is_the_norm_of_the_networks_jacobian(seed):
    A, rng = random_heads(seed)
    W = rng.normal(size=(3, 2, 3, 3))
    assert np.allclose(value_influence(A, W), jacobian_norms(A, W), atol=1e-12)


@given(st.integers(0, 1000))
def test_multiples_of_one_map_are_one_head_with_weighted_kernels(seed):
    A, rng = random_heads(seed)
    W, v = rng.normal(size=(3, 1, 3, 3)), rng.uniform(size=(3, 2, 1, 1))
    weighted = (v * A).sum(axis=1, keepdims=True) / v.sum(axis=1, keepdims=True)
    one = value_influence(weighted, v.sum(axis=1, keepdims=True) * W)
    assert np.allclose(value_influence(A, v * W), one, atol=1e-12)


@given(st.integers(0, 1000))
def test_multiples_of_the_identity_are_a_rollout(seed):
    A, rng = random_heads(seed)
    v = rng.uniform(size=(3, 1))
    W = np.broadcast_to(v[..., None, None] / 2 * np.eye(3), (3, 2, 3, 3))
    assert np.allclose(value_influence(A, W), influence_profile(A.mean(axis=1), v[:, 0] / (1 + v[:, 0])), atol=1e-12)


def test_independent_maps_by_enumerating_sets_of_layers_and_heads():
    A, _ = random_heads(5, T=2)
    v = np.array([[0.5, 1.5], [0.3, 0.8]])
    e = np.eye(4)[-1]
    squares = e.copy()
    for h in range(2):
        squares += v[0, h] ** 2 * A[0, h, -1] ** 2 + v[1, h] ** 2 * A[1, h, -1] ** 2
        for g in range(2):
            squares += (v[0, h] * v[1, g]) ** 2 * (e @ A[1, g] @ A[0, h]) ** 2
    assert np.allclose(birth_profile(A, v), np.sqrt(squares) / np.sqrt(squares).sum(), atol=1e-14)


def test_independent_maps_on_average():
    A, rng = random_heads(1)
    d, size = 3, 0.7
    A = A[:1]
    total = np.zeros(4)
    for _ in range(4000):
        W = size * rng.normal(size=(1, 2, d, d)) / np.sqrt(d)
        blocks = np.einsum("hj,hab->jab", A[0, :, -1], W[0])
        blocks[-1] += np.eye(d)
        total += (blocks**2).sum(axis=(1, 2)) / 4000
    expected = birth_profile(A, np.full((1, 2), size))
    assert np.allclose(np.sqrt(total) / np.sqrt(total).sum(), expected, rtol=0.03)


def test_bad_input_is_refused():
    A, _ = random_heads(0)
    with pytest.raises(ValueError, match="W: expected a square map for each of 3 × 2 layers and heads"):
        value_influence(A, np.ones((3, 1, 2, 2)))
    with pytest.raises(ValueError, match="A: expected rows that sum to 1"):
        value_influence(2 * A, np.ones((3, 2, 2, 2)))

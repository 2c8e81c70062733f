import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posbias import attention_kernel, mix_heads, residual_kernel
from posbias.rollout import masks
from posbias.rollout.kernels import head_weights

MASKS = [masks.full(), masks.causal(), masks.sliding_window(2), masks.prefix(2)]


def kernel_ref(logits, mask):
    """Row by row and key by key, in Python numbers."""
    n, allowed = len(logits), mask.matrix(len(logits))
    A = np.zeros((n, n))
    for i in range(n):
        top = max(logits[i][j] for j in range(n) if allowed[i, j])
        weights = [np.exp(logits[i][j] - top) if allowed[i, j] else 0.0 for j in range(n)]
        A[i] = [w / sum(weights) for w in weights]
    return A


@given(arrays(np.float64, (4, 4), elements=st.floats(-2000, 2000)), st.sampled_from(MASKS))
def test_kernel_equals_the_slow_one(logits, mask):
    A = attention_kernel(logits, mask)
    assert np.allclose(A, kernel_ref(logits, mask), atol=1e-14)
    assert np.allclose(A.sum(axis=1), 1)
    assert (A[~mask.matrix(4)] == 0).all()


def test_two_tokens_by_hand():
    A = attention_kernel(np.log([[1.0, 5.0], [1.0, 3.0]]), masks.causal())
    assert np.allclose(A, [[1, 0], [0.25, 0.75]])


def test_a_constant_cancels():
    logits = np.random.default_rng(0).normal(size=(5, 5))
    assert np.allclose(attention_kernel(logits + 1e3, masks.causal()), attention_kernel(logits, masks.causal()))


@pytest.mark.parametrize("bad", [np.full((2, 2), np.nan), np.full((2, 2), np.inf)])
def test_logits_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="logits"):
        attention_kernel(bad, masks.causal())


def test_heads_are_mixed_by_weight():
    A = np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    assert np.allclose(mix_heads(A), [[1, 0], [0.5, 0.5]])
    assert np.allclose(mix_heads(A, np.array([1.0, 3.0])), [[1, 0], [0.25, 0.75]])


@pytest.mark.parametrize("weights", [[1.0], [0.0, 0.0], [1.0, -1.0], [1.0, float("nan")]])
def test_bad_head_weights_are_refused(weights):
    with pytest.raises(ValueError, match="head_weights"):
        head_weights(np.array(weights), 2)


def test_no_mixing_is_the_identity_and_full_mixing_the_kernel():
    A = attention_kernel(np.zeros((4, 4)), masks.causal())
    assert (residual_kernel(A, 0.0) == np.eye(4)).all()
    assert (residual_kernel(A, 1.0) == A).all()


@pytest.mark.parametrize("lambda_", [-0.01, 1.01, float("nan")])
def test_mixing_outside_zero_and_one_is_refused(lambda_):
    with pytest.raises(ValueError, match="lambda_"):
        residual_kernel(np.eye(2), lambda_)


@pytest.mark.parametrize("A", [[[0.5, 0.4], [0.5, 0.5]], [[1.5, -0.5], [0.5, 0.5]], [[np.nan, 1], [0, 1]]])
def test_kernels_that_are_not_stochastic_are_refused(A):
    with pytest.raises(ValueError, match="A: expected"):
        residual_kernel(np.array(A, dtype=float), 0.5)

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posbias import attention_kernel, mix_heads
from posbias.rollout import masks

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


def test_heads_are_mixed_by_weight():
    A = np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    assert np.allclose(mix_heads(A), [[1, 0], [0.5, 0.5]])

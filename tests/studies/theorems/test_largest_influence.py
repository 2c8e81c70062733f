import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel
from posbias.rollout import masks
from posbias.rollout.influence import rollout_history
from studies.theorems.largest_influence import extreme_influence

GRAPHS = st.sampled_from([masks.causal(), masks.sliding_window(2), masks.prefix(2), masks.full()])


@given(GRAPHS, st.integers(0, 500), st.floats(0.2, 6))
def test_no_kernel_leaves_the_extremes(mask, seed, scale):
    rng, n, T = np.random.default_rng(seed), 5, 6
    allowed = mask.matrix(n)
    A = attention_kernel(scale * rng.normal(size=(T, n, n)), mask)
    epsilon, P = float(A[:, allowed].min()), rollout_history(A, np.ones(T))[1:]
    assert (P <= extreme_influence(allowed, epsilon, T) + 1e-12).all()
    assert (P >= extreme_influence(allowed, epsilon, T, "smallest") - 1e-12).all()


@given(GRAPHS, st.floats(0.01, 0.19), st.integers(0, 4), st.sampled_from(["largest", "smallest"]))
def test_the_extremes_are_attained(mask, epsilon, key, which):
    """Oracle: kernels built row by row, then multiplied by the library."""
    allowed, kernels = mask.matrix(5), []
    column = np.eye(5)[:, key]
    for _ in range(4):
        A = epsilon * allowed
        for i in range(5):
            among = np.flatnonzero(allowed[i])
            pick = among[(np.argmax if which == "largest" else np.argmin)(column[among])]
            A[i, pick] += 1 - A[i].sum()
        kernels.append(A)
        column = A @ column
    P = rollout_history(np.stack(kernels), np.ones(4))[-1]
    assert np.allclose(P[:, key], extreme_influence(allowed, epsilon, 4, which)[-1, :, key])


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.2])
def test_under_a_causal_mask_the_largest_influence_has_a_closed_form(epsilon):
    largest = extreme_influence(np.tri(5, dtype=bool), epsilon, 7).max(axis=1)
    t, j = np.arange(1, 8)[:, None], np.arange(2, 6)
    assert np.allclose(largest[:, 1:], (1 - (j - 1) * epsilon) ** t)


def test_a_prefix_token_can_keep_as_little_as_epsilon():
    least = extreme_influence(masks.prefix(3).matrix(5), 0.1, 4, "smallest")[:, :, :3]
    assert np.allclose(least, 0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: extreme_influence(np.tri(3, dtype=bool), 0.4, 2),
        lambda: extreme_influence(np.tri(3, dtype=bool), 0.0, 2),
        lambda: extreme_influence(np.tri(3, dtype=bool), 0.1, 0),
        lambda: extreme_influence(np.zeros((2, 2), dtype=bool), 0.1, 1),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="expected .* received"):
        call()

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias import influence_history, influence_profile, masks, rollout_matrix, structured_kernels


def product_ref(kernels, lambda_, n):
    """P = R_T … R_1, written out."""
    P = np.eye(n)
    for t, x in enumerate(lambda_):
        P = ((1 - x) * np.eye(n) + x * kernels.dense(t, n)) @ P
    return P


@settings(max_examples=60)
@given(st.data(), st.integers(1, 6), st.integers(1, 3), st.integers(1, 20), st.booleans())
def test_every_path_gives_the_same_row(data, T, H, n, shared):
    seed = data.draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    shape = (1 if shared else T, H)
    mask = [masks.causal(), masks.sliding_window(3), masks.prefix(4), masks.full()][seed % 4]
    kernels = structured_kernels(T, slope=rng.uniform(0.01, 1, shape), diagonal=rng.normal(0, 5, shape), mask=mask)
    lambda_ = rng.uniform(0, 1, T)
    row = int(rng.integers(n))
    expected = product_ref(kernels, lambda_, n)
    dense = np.stack([kernels.dense(t, n) for t in range(T)])
    assert np.abs(rollout_matrix(kernels, lambda_, n) - expected).max() < 1e-13
    assert np.abs(influence_profile(kernels, lambda_, n, row=row) - expected[row]).max() < 1e-12
    assert np.abs(influence_profile(dense, lambda_, row=row) - expected[row]).max() < 1e-12
    history = influence_history(kernels, lambda_, n, row=row)
    assert history.shape == (T + 1, n)
    assert np.abs(history[-1] - expected[row]).max() < 1e-12
    assert np.abs(history - influence_history(dense, lambda_, row=row)).max() < 1e-12
    for depth in range(T + 1):
        assert np.abs(history[depth] - product_ref(kernels, lambda_[:depth], n)[row]).max() < 1e-12

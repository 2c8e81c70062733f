"""The law of untrained networks against its sum over sets of layers, random maps, and its fast ways."""

from itertools import combinations

import numpy as np
import pytest

from posbias import alibi_slopes, influence_profile
from posbias.rollout import masks
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.structured import biased_kernels, structured_kernels
from posbias.rollout.untrained import aligned_profile, two_sided, untrained_profile

N, T, H = 9, 4, 3


def unit(x):
    return x / x.sum()


def dense_heads(kernels, n=N):
    """Write out every head of structured kernels, (T, H, n, n), from logits alone."""
    i = np.arange(n)
    distance = i[:, None] - i
    out = np.empty((kernels.T, kernels.H, n, n))
    for t in range(kernels.T):
        for h in range(kernels.H):
            slope, own = (x[min(t, len(x) - 1), h] for x in (kernels.slopes, kernels.diagonal))
            out[t, h] = attention_kernel(-slope * distance + own * np.eye(n), kernels.mask)
    return out


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def some_kernels(rng):
    return attention_kernel(2 * rng.standard_normal((T, H, N, N)), masks.causal())


def test_the_recursion_is_the_sum_over_sets_of_layers(rng):
    A = some_kernels(rng)[:, :1]
    c = rng.uniform(0.2, 2.0, T)
    squares = np.zeros(N)
    for size in range(T + 1):
        for chosen in combinations(range(T), size):
            v = np.eye(N)[-1]
            for t in reversed(chosen):
                v = v @ A[t, 0]
            squares += np.prod(c[list(chosen)] ** 2) * v**2
    np.testing.assert_allclose(untrained_profile(A, c), unit(np.sqrt(squares)), rtol=1e-12)


def test_it_is_the_mean_square_over_independent_maps(rng):
    A, d, draws = some_kernels(rng), 16, 400
    c = rng.uniform(0.3, 1.2, (T, H))
    scale, output = rng.uniform(0.5, 2.0, (2, T, N))
    squares = np.zeros(N)
    for _ in range(draws):
        g = np.zeros((N, d))
        g[-1] = rng.standard_normal(d)
        for t in reversed(range(T)):
            W = rng.standard_normal((H, d, d)) / np.sqrt(d) * c[t][:, None, None]
            sent = sum(A[t, h].T @ (g * output[t][:, None]) @ W[h] for h in range(H))
            g = g + sent * scale[t][:, None]
        squares += (g**2).sum(1)
    law = untrained_profile(A, c, scales=scale, outputs=output)
    aligned = aligned_profile(A, c, scales=scale, outputs=output)
    found = unit(np.sqrt(squares))
    assert np.abs(law - found).sum() < 0.02
    assert np.abs(aligned - found).sum() > 0.1


def test_factors_of_outputs_count_where_nothing_else_is_given(rng):
    A, output = some_kernels(rng)[0, 0], rng.uniform(0.5, 2.0, (T, N))
    alone = untrained_profile(A, np.ones(T), outputs=output)
    np.testing.assert_allclose(alone, untrained_profile(A, np.ones(T), outputs=output, scales=np.ones((T, N))))
    assert np.abs(alone - untrained_profile(A, np.ones(T))).max() > 1e-3


@pytest.mark.parametrize("parallel", [0, 1])
def test_steps_multiply_the_gram_matrix_or_are_added_beside_the_attention(rng, parallel):
    A, d, draws = np.broadcast_to(attention_kernel(np.zeros((N, N)), masks.causal()), (T, 1, N, N)), 24, 400
    c = rng.uniform(0.8, 1.6, T)
    gates = 2.0 * (rng.random((T, N, 64)) < 0.3)
    K = gates @ gates.transpose(0, 2, 1) / 64
    squares = np.zeros(N)
    for _ in range(draws):
        g = np.zeros((N, d))
        g[-1] = rng.standard_normal(d)
        for t in reversed(range(T)):
            U, V = rng.standard_normal((64, d)) / 8, rng.standard_normal((d, 64)) / np.sqrt(d)
            step = ((g @ V) * gates[t]) @ U
            above = g if parallel else g + step
            g = above + c[t] * (A[t, 0].T @ above) @ (rng.standard_normal((d, d)) / np.sqrt(d))
            g = g + step if parallel else g
        squares += (g**2).sum(1)
    found = unit(np.sqrt(squares))
    assert np.abs(untrained_profile(A, c, steps=K, parallel=parallel) - found).sum() < 0.015
    ungated = np.sqrt(np.einsum("tii,tjj->tij", K, K))
    assert np.abs(untrained_profile(A, c, steps=ungated, parallel=parallel) - found).sum() > 0.02
    assert np.abs(untrained_profile(A, c, steps=K, parallel=1 - parallel) - found).sum() > 0.04


@pytest.mark.parametrize("mask", [masks.causal(), masks.sliding_window(4), masks.prefix(3)])
@pytest.mark.parametrize("slope", [None, [0.5, 0.5, 0.1], [[0.5, 90.0, 0.1]] * 4])
def test_structured_kernels_give_what_arrays_give(rng, mask, slope):
    kernels = structured_kernels(T, slope=slope, diagonal=[0.5, -1.0, 30.0], mask=mask, H=H)
    A, X, w = dense_heads(kernels), rng.standard_normal((N, N)), rng.random(H)
    expected = np.einsum("h,hik,ij,hjl->kl", w, A[2], X, A[2])
    np.testing.assert_allclose(two_sided(kernels, 2, X, w), expected, atol=1e-12)
    row = np.einsum("h,i,hij->j", w, X[0], A[2])
    np.testing.assert_allclose(kernels.kernel(2, N, w).rmatvec(X[0]), row, atol=1e-12)
    c = rng.uniform(0.2, 2.0, (T, H))
    np.testing.assert_allclose(untrained_profile(kernels, c, N), untrained_profile(A, c), atol=1e-12)
    np.testing.assert_allclose(aligned_profile(kernels, c, N), aligned_profile(A, c), atol=1e-12)


@pytest.mark.parametrize("mask", [masks.causal(), masks.sliding_window(4)])
@pytest.mark.parametrize("slope", [None, 0.3])
def test_one_kernel_for_all_goes_by_powers_and_gives_the_same(rng, mask, slope):
    kernels = structured_kernels(30, slope=slope, mask=mask, H=H)
    c = rng.uniform(0.2, 2.0, 30)
    slow = untrained_profile(kernels, c, 40, scales=np.ones((30, 40)))
    np.testing.assert_allclose(untrained_profile(kernels, c, 40), slow, rtol=1e-10, atol=1e-15)


def test_the_aligned_sum_is_the_rollout():
    kernels, c = structured_kernels(T, slope=[0.5, 0.25], mask=masks.causal()), np.array([0.1, 0.5, 1.0, 3.0])
    np.testing.assert_allclose(aligned_profile(kernels, c, N), influence_profile(kernels, c / (1 + c), N), rtol=1e-12)


@pytest.mark.parametrize("parallel", [0, 1])
def test_aligned_steps_are_added_behind_or_beside_the_attention(rng, parallel):
    A, c = some_kernels(rng)[:, 0], rng.uniform(0.2, 2.0, T)
    root, scale, output = rng.uniform(0.2, 2.0, (3, T, N))
    K = root[:, :, None] * root[:, None, :]
    v = np.eye(N)[-1]
    for t in reversed(range(T)):
        read = v if parallel else v * (1 + root[t])
        v = read + c[t] * (A[t].T @ (read * output[t])) * scale[t] + parallel * v * root[t]
    found = aligned_profile(A, c, scales=scale, outputs=output, steps=K, parallel=parallel)
    np.testing.assert_allclose(found, unit(v), rtol=1e-12)


@pytest.mark.parametrize("width", [8])
def test_steep_slopes_in_a_window_leave_nothing_below_zero(width):
    """A difference of running sums left squares of -1e-17 beyond the window, whose roots are no numbers."""
    kernels = structured_kernels(6, slope=alibi_slopes(8), mask=masks.sliding_window(width))
    p = untrained_profile(kernels, np.full(6, 0.5), 256)
    assert np.isfinite(p).all() and not p[: 255 - 6 * (width - 1)].any()
    np.testing.assert_allclose(p, untrained_profile(dense_heads(kernels, 256), np.full(6, 0.5)), atol=1e-12)


@pytest.mark.parametrize("layers", [1, 200])
@pytest.mark.parametrize("gain", [1e-40, 1e40])
def test_no_gain_or_depth_overflows(layers, gain):
    steep = structured_kernels(layers, slope=alibi_slopes(2), H=2)
    for kernels in (structured_kernels(layers), steep, dense_heads(steep)):
        factors = np.full((layers, N), 1e40)
        for more in ({}, {"scales": factors, "outputs": factors, "steps": np.full((layers, N, N), 1e40)}):
            for law in (untrained_profile, aligned_profile):
                p = law(kernels, np.full(layers, gain), N, **more)
                assert np.isfinite(p).all() and (p >= 0).all() and abs(p.sum() - 1) < 1e-9


def test_steps_that_are_no_gram_factors_are_refused_and_no_roots_of_negative_numbers_come_out(rng):
    bad = np.full((3, N, N), -5.0) + 5 * np.eye(N)
    with pytest.raises(ValueError, match=r"steps: expected Gram factors, .* received a mean square of -.* layer"):
        untrained_profile(structured_kernels(3), np.full(3, 10.0), N, steps=bad)
    v = rng.standard_normal((50, N))  # of one direction, with as many negative products as positive ones
    p = untrained_profile(structured_kernels(50), np.full(50, 10.0), N, steps=100 * v[:, :, None] * v[:, None, :])
    assert np.isfinite(p).all() and (p >= 0).all()


def test_one_kernel_takes_memory_that_grows_with_the_tokens_alone():
    """A matrix over these positions would take 80 GB."""
    kernels, n = structured_kernels(2), 100_000
    for law in (untrained_profile, aligned_profile):
        assert law(kernels, [0.5, 0.5], n).shape == (n,)


def test_layers_of_one_bias_and_their_own_content_have_kernels_of_their_own(n=60):
    kernels = biased_kernels(3, {"kind": "log", "alpha": 1.0}, diagonal=[[0.0], [2.0], [-1.0]])
    dense = np.stack([kernels.dense(t, n) for t in range(3)])
    np.testing.assert_allclose(
        untrained_profile(kernels, [0.5] * 3, n), untrained_profile(dense, [0.5] * 3), rtol=1e-10
    )

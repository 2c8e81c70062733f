"""Kernels from mean queries and keys: by hand, against RoPE's logits, and against models without content."""

import numpy as np

from posbias.rollout import masks
from posbias.rollout.logits import rope_logits, rotate
from studies.ladder.rotary_kernels import RotaryMeans, distance_kernels, distance_logits, distance_variances

RNG = np.random.default_rng(0)
THETA = np.array([1.0, 0.3, 0.05])
Q, K = RNG.normal(size=(2, 4, 6))


def covariances(seed, H=4, d=6):
    root = np.random.default_rng(seed).normal(size=(H, d, d)) / d**0.5
    return root @ root.swapaxes(-1, -2)


def test_three_tokens_by_hand():
    """One pair of features, a quarter turn a token, q = k = √2 (1, 0): logits 2, 0, -2 at distances 0, 1, 2."""
    logits = distance_logits(*[np.array([[2**0.5, 0.0]])] * 2, [np.pi / 2], 3)
    assert np.allclose(logits, [[2, 0, -2]])
    e = np.exp(2.0)
    by_hand = [[1, 0, 0], [1 / (1 + e), e / (1 + e), 0], np.array([1 / e, 1, e]) / (1 / e + 1 + e)]
    assert np.allclose(distance_kernels(logits, masks.causal())[0], by_hand)
    own = distance_kernels(logits, masks.causal(), first=np.array([[9.0, 2.0, 0.0]]))[0]
    assert np.allclose(own[1], [0.5, 0.5, 0]) and np.allclose(own[2], np.array([1, 1, e]) / (2 + e))
    window = distance_kernels(logits, masks.sliding_window(2))[0]
    assert np.allclose(window[2], [0, 1 / (1 + e), e / (1 + e)])


def test_distances_are_those_of_the_logits():
    found = distance_logits(Q, K, THETA, 9)
    for h in range(4):
        whole = rope_logits(np.tile(Q[h], (9, 1)), np.tile(K[h], (9, 1)), THETA)
        assert all(np.allclose(whole.diagonal(-x), found[h, x]) for x in range(9))


def test_variances_are_those_of_a_sample():
    C, D = covariances(1), covariances(2)
    rng = np.random.default_rng(3)
    for which in ({"query_covariance": C}, {"query_covariance": C, "key_covariance": D}):
        found = distance_variances(Q, K, THETA, 5, **which)
        for h in range(2):
            q, k = (rng.multivariate_normal(m, S, 100_000) for m, S in ((Q[h], C[h]), (K[h], D[h])))
            q = q if "query_covariance" in which else Q[h][None]
            k = k if "key_covariance" in which else K[h][None]
            sample = (rotate(q, THETA, 5) * k[:, None]).sum(-1).var(0)
            assert np.allclose(found[h], sample, rtol=0.03)
    assert not distance_variances(Q, K, THETA, 5).any()


def test_means_carry_the_scale():
    C = np.stack([covariances(1)] * 2)
    first_query, first_key = np.random.default_rng(1).normal(size=(2, 4, 6))
    twice = (np.stack([x] * 2) for x in (first_query, first_key))
    means = RotaryMeans(*(np.stack([x] * 2) for x in (Q, K)), C, C, *twice, THETA, np.array([1.0, 0.5]))
    assert np.allclose(means.logits(4)[0], 2 * means.logits(4)[1])
    assert np.allclose(means.variances(4)[0], 4 * means.variances(4)[1])
    assert np.allclose(means.first_logits(4), distance_logits(Q, first_key, THETA, 4) * [[[1.0]], [[0.5]]])
    assert (means.variances(4, queries=False) < means.variances(4)).all()

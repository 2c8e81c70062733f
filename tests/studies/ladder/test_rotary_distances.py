"""Kernels from mean queries and keys: by hand, against RoPE's logits, and against models without content."""

import numpy as np

from posbias.rollout import masks
from studies.ladder.rotary_kernels import RotaryMeans, distance_kernels, distance_logits
from studies.rotation import rope_logits

RNG = np.random.default_rng(0)
THETA = np.array([1.0, 0.3, 0.05])
Q, K = RNG.normal(size=(2, 4, 6))


def test_three_tokens_by_hand():
    """One pair of features, a quarter turn a token, q = k = √2 (1, 0): logits 2, 0, -2 at distances 0, 1, 2."""
    logits = distance_logits(*[np.array([[2**0.5, 0.0]])] * 2, [np.pi / 2], 3)
    assert np.allclose(logits, [[2, 0, -2]])
    e = np.exp(2.0)
    by_hand = [[1, 0, 0], [1 / (1 + e), e / (1 + e), 0], np.array([1 / e, 1, e]) / (1 / e + 1 + e)]
    assert np.allclose(distance_kernels(logits, masks.causal())[0], by_hand)
    window = distance_kernels(logits, masks.sliding_window(2))[0]
    assert np.allclose(window[2], [0, 1 / (1 + e), e / (1 + e)])


def test_distances_are_those_of_the_logits():
    found = distance_logits(Q, K, THETA, 9)
    for h in range(4):
        whole = rope_logits(np.tile(Q[h], (9, 1)), np.tile(K[h], (9, 1)), THETA)
        assert all(np.allclose(whole.diagonal(-x), found[h, x]) for x in range(9))


def test_means_carry_the_scale():
    means = RotaryMeans(*(np.stack([x] * 2) for x in (Q, K)), THETA, np.array([1.0, 0.5]))
    assert np.allclose(means.logits(4)[0], 2 * means.logits(4)[1])
    assert np.allclose(means.logits(4)[0], distance_logits(Q, K, THETA, 4))

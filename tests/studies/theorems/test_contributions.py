"""Contributions in random layers: by hand, and what happens when a condition is dropped."""

import numpy as np
import pytest

from studies.theorems import contributions as c


def test_three_tokens_by_hand():
    parts = np.array([[1.0, 0.0], [0.0, -1.0], [3.0, 2.0]])
    assert c.contributions(parts).tolist() == [0.25, 0, 0.75]
    assert c.contributions(np.array([[3.0, 0.0], [0.0, 4.0]]), norm=2) == pytest.approx(np.array([1, 2]) / 3)


def test_a_layer_on_one_token_is_that_token():
    C = c.kernels_of(0, 4)
    assert c.is_causal_kernel(C) and C[:, 0, 0].tolist() == [1] * 4
    assert not c.is_causal_kernel(c.kernels_of(0, 4, "mask")) and not c.is_causal_kernel(C * 0.98)


def test_the_product_has_the_last_layer_first():
    C = c.kernels_of(1, 3)
    np.testing.assert_allclose(c.product(C), C[2] @ C[1] @ C[0])


def test_in_one_layer_at_random_weights_the_law_gives_half():
    share, _, law, none = c.one_layer(64, 4096, np.random.default_rng(0))
    assert law == pytest.approx(0.5, abs=0.01) and share < 0.1 and none == 0

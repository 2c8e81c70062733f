import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.norms.layernorm import (
    exact_tokens,
    inverse_norms,
    row_concentration,
    row_weights,
    second_layer_logits,
    weight_ratio,
)
from studies.norms.layernorm_simulation import layer_logits


def test_two_tokens_by_hand():
    """g = 1/2: the second token takes 2/3 of itself and 1/3 of the first."""
    own, earlier = row_weights(2, 0.5)
    assert own.tolist() == [1, 1 / 1.5] and earlier[1] == pytest.approx(1 / 3)
    assert row_concentration(2, 0.5, 0.5)[1] == pytest.approx((5 / 6) ** 2 + (1 / 6) ** 2)
    assert inverse_norms(2, 0.2, 0.5)[1] == pytest.approx((0.8 * 5 / 9 + 0.2) ** -0.5)
    assert weight_ratio(0.5, 4.0) == pytest.approx(np.exp(-2))


@given(st.floats(0, 0.99), st.floats(1e-3, 1), st.floats(0.01, 1))
def test_h_rises_and_the_bare_logits_are_flat(alpha, g, mixing):
    h = inverse_norms(8, alpha, g, mixing)
    assert h[0] == pytest.approx(1) and (np.diff(h) > 0).all()
    flat = second_layer_logits(8, alpha, g, mixing, normalised=False)
    with_norm = second_layer_logits(8, alpha, g, mixing)
    for i in range(2, 8):
        assert np.ptp(flat[i, :i]) == 0
        assert (np.diff(with_norm[i, :i]) > 0).all()


@pytest.mark.parametrize("alpha", [0.0, 0.8])
def test_closed_forms_are_the_network(alpha, d=16):
    X, root = exact_tokens(10, d, alpha), np.sqrt(d)
    bare = second_layer_logits(10, alpha, weight_ratio(alpha, 1 / root), scale=1 / root, normalised=False)
    assert np.allclose(layer_logits(X, 2, norm="none")[1], bare, rtol=1e-12)
    g = weight_ratio(alpha, root)
    for norm in ("layernorm", "rmsnorm"):
        normed = second_layer_logits(10, alpha, g, scale=root)
        assert np.allclose(layer_logits(X, 2, norm=norm)[1], normed, rtol=1e-12, atol=1e-13)
        for size in (0.5, 1.0, root):  # a value of norm √d is added to a token of norm ρ: λ = √d/(ρ + √d)
            mixed = second_layer_logits(10, alpha, g, root / (size + root), scale=root)
            assert np.allclose(layer_logits(size * X, 2, norm=norm, residual="pre")[1], mixed, rtol=1e-12, atol=1e-13)
        post = second_layer_logits(10, alpha, g, 0.5, scale=root)
        assert np.allclose(layer_logits(X, 2, norm=norm, residual="post")[1], post, rtol=1e-12, atol=1e-13)

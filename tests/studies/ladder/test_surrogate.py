"""The nearest ALiBi kernel and the distance of kernels."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from posbias.rollout import masks
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import position_logits
from studies.ladder.surrogate import kernel_variation, nearest_slope

RNG = np.random.default_rng(0)


def test_two_tokens_by_hand():
    """Row 2 holds 1/4 and 3/4: e^-m = 1/3."""
    A = np.array([[1.0, 0.0], [0.25, 0.75]])
    assert nearest_slope(A, masks.causal()) == pytest.approx(np.log(3))
    assert kernel_variation(A, np.array([[1.0, 0.0], [0.5, 0.5]])) == pytest.approx(0.25)


@pytest.mark.parametrize("mask", [masks.causal(), masks.sliding_window(4)])
@pytest.mark.parametrize("slope", [0.0, 0.03, 0.7, 5.0])
def test_a_slope_is_found_again(mask, slope):
    A = attention_kernel(position_logits(300, slope), mask)
    assert nearest_slope(A, mask) == pytest.approx(slope, abs=1e-6)
    backwards = attention_kernel(-position_logits(300, slope), mask)
    assert nearest_slope(backwards, mask) == pytest.approx(-slope, abs=1e-6)


def test_no_other_slope_is_nearer():
    """The divergence itself, minimised by another route."""
    A = attention_kernel(RNG.normal(size=(9, 9)), masks.causal())
    seen = np.tri(9, dtype=bool)

    def divergence(m):
        x = np.subtract.outer(np.arange(9), np.arange(9))
        B = attention_kernel(-m * x.astype(float), masks.causal())
        return (A[seen] * np.log(A[seen] / B[seen])).sum()

    assert nearest_slope(A, masks.causal()) == pytest.approx(minimize_scalar(divergence).x, abs=1e-5)


def test_variation_is_a_distance():
    A, B, C = attention_kernel(RNG.normal(size=(3, 4, 7, 7)), masks.causal())
    assert kernel_variation(A, B).shape == (4,)
    assert (kernel_variation(A, A) == 0).all() and (kernel_variation(A, B) == kernel_variation(B, A)).all()
    assert (kernel_variation(A, C) <= kernel_variation(A, B) + kernel_variation(B, C) + 1e-15).all()
    last, first = np.eye(5), np.eye(5)[[0] * 5]
    assert kernel_variation(last, first) == 1.0


def test_what_has_no_nearest_slope():
    with pytest.raises(ValueError, match="mask: expected a causal mask or a sliding window, received full"):
        nearest_slope(np.eye(3), masks.full())
    with pytest.raises(ValueError, match="A: expected no weight outside the mask"):
        nearest_slope(np.full((3, 3), 1 / 3), masks.causal())
    with pytest.raises(ValueError, match="A: expected a mean distance that a slope"):
        nearest_slope(np.eye(3), masks.causal())
    with pytest.raises(ValueError, match="A: expected row-stochastic|A: expected"):
        nearest_slope(np.zeros((3, 3)), masks.causal())
    with pytest.raises(ValueError, match="A, B: expected kernels of one shape on at least 2 tokens"):
        kernel_variation(np.ones((1, 1)), np.ones((1, 1)))

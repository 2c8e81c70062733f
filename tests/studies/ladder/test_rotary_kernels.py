"""Rotary kernels: their tables, the nearest ALiBi kernel, and the distance of kernels."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from posbias.rollout import masks
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import position_logits
from studies.ladder.rotary import nearest_slope

RNG = np.random.default_rng(0)


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

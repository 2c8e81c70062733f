"""Position biases: their logits, their descriptions, and what is refused."""

import numpy as np
import pytest
from scipy.special import exp1

from posbias.rollout.position_bias import (
    HIDDEN,
    AlibiBias,
    FlatBias,
    LogBias,
    NoBias,
    describe,
    exponential_integral_inverse,
    layered_biases,
    position_bias,
)

ALL = [NoBias(), AlibiBias(0.5), AlibiBias(-0.2), LogBias(1.4), FlatBias(2.0)]


@pytest.mark.parametrize("bias", ALL, ids=lambda bias: bias.kind)
def test_a_description_gives_the_bias_back(bias):
    assert position_bias(describe(bias)) == bias


def test_logits_by_hand():
    assert LogBias(2.0).logits(2)[1].tolist() == [0.0, 2 * np.log(2)]
    assert AlibiBias(0.5).logits(3)[2].tolist() == [-1.0, -0.5, 0.0]
    z = FlatBias(1.0).logits(3)  # ε = 0.219: of the third query the first and the second key are far enough
    assert np.allclose(np.exp(z[2, :2]), 1 / np.log([3, 1.5])) and z[2, 2] == HIDDEN / 2
    assert z[0, 0] > z[0, 1]  # the first query sees itself before what comes later


@pytest.mark.parametrize("tau", [0.01, 4.8, 60.0])
def test_the_cutoff_of_a_flat_bias(tau):
    epsilon = exponential_integral_inverse(tau)
    assert abs(exp1(epsilon) / tau - 1) < 1e-12
    if tau > 0.4:  # two tokens apart by log 2
        assert FlatBias(tau).visible(2).tolist() == [0, 1]
    seen = FlatBias(tau).visible(500)
    i = np.arange(1, 501)
    assert (seen < i * np.exp(-epsilon)).all() and (seen + 1 >= i * np.exp(-epsilon) - 1e-9).all()


def test_descriptions_of_heads_and_layers():
    none, log = {"kind": "none"}, {"kind": "log", "alpha": 1.0}
    assert layered_biases(log, 3, 2) == ((LogBias(1.0),) * 2,)
    assert layered_biases([none, log], 3) == ((NoBias(), LogBias(1.0)),)
    assert layered_biases([[none], [log], [log]], 3) == ((NoBias(),), (LogBias(1.0),), (LogBias(1.0),))

"""Limits of the law of untrained networks: that each check notices, in one run, what is broken."""

import numpy as np
import pytest

from studies.untrained import limit_checks, trough_checks


@pytest.mark.parametrize(
    ("run", "broken"),
    [
        (limit_checks.between, {"low": 1.02}),
        (limit_checks.limits_met, {"squares": limit_checks.as_sizes}),
        (trough_checks.two_layers, {"bound": 1.005}),
        (trough_checks.one_trough, {"layers": 1}),
        (trough_checks.none_inside, {"ell": 3.0}),
        (trough_checks.tail_met, {"share": 1.01}),
    ],
)
def test_a_check_passes_and_notices(run, broken):
    assert run(0) and not run(0, **broken)


def test_one_layer_of_uniform_attention_by_hand():
    """Oracle: one hop has density 1, so that the ratio to the atom is the gain, in sizes and in squares."""
    x, gain = np.array([0.3, 0.8]), np.array([0.5])
    assert np.allclose(trough_checks.density(x, gain, 1), 0.5)
    assert np.allclose(trough_checks.density(x, gain, 2), 0.5)

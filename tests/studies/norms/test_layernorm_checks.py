"""Checks of the closed forms: what is right passes, what is wrong by little does not."""

import numpy as np
import pytest

from studies.norms.layernorm import exact_tokens, inverse_norms, second_layer_logits, uniform_depth_cosine
from studies.norms.layernorm_checks import (
    NETWORKS,
    closed_form_table,
    convolved,
    norm_ratio_error,
    parameters,
    second_layer_holds,
    uniform_depth_cosines,
    with_error,
)

WIDTHS = [16, 64]


def test_the_closed_form_holds_and_the_table_is_that_of_the_networks():
    table = closed_form_table(WIDTHS, 6)
    assert len(table) == 2 * len(NETWORKS) and second_layer_holds(table)
    row = table.query("d == 16 and norm == 'layernorm' and residual == 'none'").iloc[0]
    S = second_layer_logits(6, **parameters(16, 0.5, "layernorm", "none"))
    steps = np.concatenate([np.diff(S[i, :i]) for i in range(2, 6)])
    assert (row["least"], row["largest"]) == pytest.approx((steps.min(), steps.max()))


@pytest.mark.parametrize("name", ["alpha", "g", "lambda_", "scale"])
def test_a_form_off_by_one_in_a_thousand_is_noticed(name):
    assert not second_layer_holds(closed_form_table(WIDTHS, 6, form=with_error(second_layer_logits, name, 0.999)))


def test_other_tokens_and_orders_are_noticed():
    rng = np.random.default_rng(0)
    assert not second_layer_holds(closed_form_table(WIDTHS, 6, tokens=lambda n, d, alpha: rng.normal(size=(n, d))))
    assert not second_layer_holds(closed_form_table(WIDTHS, 6, order=[1, 0, 2, 3, 4, 5]))
    assert second_layer_holds(closed_form_table(WIDTHS, 6, order=range(6)))
    other = closed_form_table(WIDTHS, 6, 0.3, tokens=lambda n, d, alpha: exact_tokens(n, d, 0.31))
    assert not second_layer_holds(other)


def test_ratios_of_logits_are_those_of_h():
    assert norm_ratio_error(WIDTHS, [0.0, 0.5, 0.8], 6) < 1e-10
    for wrong in (with_error(inverse_norms, "g", 1.001), lambda *n, **x: inverse_norms(*n, **x) ** 2):
        assert norm_ratio_error(WIDTHS, [0.0, 0.5, 0.8], 6, h=wrong) > 1e-6


def test_the_network_meets_its_limit_and_not_that_of_raw_means():
    n, keys = 800, [80, 200, 400]
    u = np.log(n / np.array(keys))
    network = uniform_depth_cosines(n, keys, 3)
    limit = [uniform_depth_cosine(u, t) for t in (1, 2, 3)]
    assert np.allclose(network, limit, atol=5e-3)
    raw = uniform_depth_cosines(n, keys, 2, normalised=False)
    assert np.allclose(raw[0], network[0]) and abs(raw[1] - limit[1]).max() > 0.1
    assert np.allclose(raw[1], convolved(0.5)(u), atol=5e-3)


def test_convolutions_by_quadrature():
    w = np.linspace(-80, 80, 400_001)
    for rate in (0.5, 0.8, 1.0):
        at = [np.trapezoid(np.exp(-abs(u - w) / 2 - rate * abs(w)), w) for u in (0.0, 1.3)]
        assert convolved(rate)(np.array(1.3)) == pytest.approx(at[1] / at[0], rel=1e-5)
    u = np.array([0.2, 1.0, 4.0])
    assert np.allclose(convolved(1.0)(u), uniform_depth_cosine(u, 2), rtol=1e-12)

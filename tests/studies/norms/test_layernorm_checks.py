"""Checks of the closed forms: what is right passes, what is wrong by little does not."""

import numpy as np
import pytest

from studies.norms.layernorm import exact_tokens, second_layer_logits
from studies.norms.layernorm_checks import (
    NETWORKS,
    closed_form_table,
    parameters,
    second_layer_holds,
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

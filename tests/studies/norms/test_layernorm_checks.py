"""The table of closed forms is that of the networks; the chapter breaks the forms and says what is noticed."""

import numpy as np
import pytest

from studies.norms.layernorm import second_layer_logits
from studies.norms.layernorm_checks import NETWORKS, closed_form_table, parameters, second_layer_holds

WIDTHS = [16, 64]


def test_the_closed_form_holds_and_the_table_is_that_of_the_networks():
    table = closed_form_table(WIDTHS, 6)
    assert len(table) == 2 * len(NETWORKS) and second_layer_holds(table)
    row = table.query("d == 16 and norm == 'layernorm' and residual == 'none'").iloc[0]
    S = second_layer_logits(6, **parameters(16, 0.5, "layernorm", "none"))
    steps = np.concatenate([np.diff(S[i, :i]) for i in range(2, 6)])
    assert (row["least"], row["largest"]) == pytest.approx((steps.min(), steps.max()))

"""Tables of content logits and kernels, on measurements made up so that the answer is known."""

import numpy as np
import pytest

from studies.reference.content_tables import (
    constant_plus_diagonal,
)


def test_the_fit_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    C = np.where(np.tril(np.ones((7, 7))) > 0, rng.normal(size=(7, 7)) + 2 * np.eye(7), np.nan)
    C[6, 0] = np.nan  # a band that is masked further counts only what is seen
    rows, columns = np.nonzero(~np.isnan(C))
    design = np.column_stack([np.ones(rows.size), rows == columns])
    (c, d), *_ = np.linalg.lstsq(design, C[rows, columns], rcond=None)
    left = C[rows, columns] - design @ [c, d]
    assert constant_plus_diagonal(C) == pytest.approx((c, d, left.var()))

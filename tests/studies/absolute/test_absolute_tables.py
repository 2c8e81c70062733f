"""Estimates of leakage with their resamples, as tables: by hand, and against what the leakage itself says."""

import numpy as np
import pytest
import xarray as xr

from studies.absolute.tables import (
    Estimate,
    Kept,
    significant,
)


def test_estimates_by_hand():
    a, b = Estimate(2.0, np.array([1.0, 2.0, 3.0])), Estimate(1.0, np.array([1.0, 1.0, 2.0]))
    assert (a - b).value == 1 and (a - b).draws.tolist() == [0, 1, 1]
    assert (a / b).value == 2 and (a / b).draws.tolist() == [1, 2, 1.5]
    assert (a.low, a.high) == pytest.approx((1.05, 2.95)) and f"{a:.2f}" == "2.00 (1.05 … 2.95)"


def kept():
    """Two layers of one head; the whole is 4, the denominators 2, the stream 1, in every layer."""
    variance = np.array([4.0, 2.0, 4.0, 1.0])[None, :, None, None] * np.ones((1, 4, 2, 1))
    draws = variance[:, :, :1] * np.array([0.9, 1.1])[None, None, :, None]
    heads, resamples = ("condition", "part", "layer", "head"), ("condition", "part", "resample")
    arrays = {
        "variance": (heads, variance),
        "spread": (heads, 10 * np.ones_like(variance)),
        "p_value": (heads, np.array([0.001, 0.9] * 4).reshape(1, 4, 2, 1)),
        "resampled": ((*resamples, "layer"), draws * np.ones((1, 4, 2, 2))),
        "resampled_share": (resamples, draws[..., 0] / 10),
    }
    return Kept(xr.Dataset(arrays, {"condition": ["m"], "part": ["total", "denominators", "logits", "residual"]}))


def test_kept_estimates_by_hand():
    data = kept()
    assert data.variance("m", "total").value == 8 and data.variance("m", "total", slice(0, 1)).value == 4
    assert data.variance("m", "total").draws.tolist() == pytest.approx([7.2, 8.8])
    assert data.share("m", "residual").value == pytest.approx(0.1)
    assert data.balance("m").value == pytest.approx(1 / 3) and data.balance("m").draws.tolist() == [1 / 3, 1 / 3]
    assert data.gap("m").value == pytest.approx(0.25) and data.heads("m", "residual") == 0.5
    (row,) = data.table(["m"]).itertuples()
    assert row.balance.value == data.balance("m").value and row.heads_residual == 0.5
    assert data.tests() == {"tests": 8, "raw": 4, "controlled": 4}
    assert significant(np.array([0.04, 0.5, 0.6, 0.7])) == 0

"""Tables of content logits and kernels, on measurements made up so that the answer is known."""

import numpy as np
import pytest
import xarray as xr

from posbias.rollout.kernels import attention_kernel
from posbias.rollout.logits import position_logits
from posbias.rollout.masks import causal, sliding_window
from studies.reference.content_tables import (
    constant_plus_diagonal,
    diagonal_stands_out,
    shuffled_keys,
    with_logits,
    without_diagonal,
)

T, H, n = 2, 2, 6
VISIBLE = np.tril(np.ones((n, n), dtype=bool))


def measured(offset=1.0, noise=0.0, slope=0.3, window=0, seed=0):
    """Return content logits of a constant and a diagonal with noise, and the kernels that follow from them."""
    rng = np.random.default_rng(seed)
    content = 2 + offset * np.eye(n) + noise * rng.normal(size=(T, H, n, n))
    content[..., ~VISIBLE] = np.nan
    mask = sliding_window(window) if window else causal()
    kernel = attention_kernel(position_logits(n, slope) + offset * np.eye(n), mask)
    return xr.Dataset(
        {
            "content_logits": (("layer", "head", "query", "key"), content),
            "content_diagonal": (("layer", "head"), np.full((T, H), 2 + offset)),
            "content_offdiagonal": (("layer", "head"), np.full((T, H), 2.0)),
            "attention": (("layer", "query", "key"), np.stack([kernel] * T)),
            "slopes": (("layer", "head"), np.full((T, H), slope)),
            "window": (("layer",), np.full(T, window)),
        }
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


def test_a_diagonal_stands_out_or_not():
    many, few = measured(noise=0.1), measured(noise=0.2, seed=1)
    assert diagonal_stands_out(many, few, 0.25)
    logits, fewer = many["content_logits"].values, few["content_logits"].values
    for broken in (without_diagonal, shuffled_keys):
        assert not diagonal_stands_out(with_logits(many, broken(logits)), with_logits(few, broken(fewer)), 0.25)
    band = np.tril(np.ones((n, n)), -1) * 0.9  # next to the diagonal as high as on it
    raised = [with_logits(x, x["content_logits"].values + band - np.tril(band, -2)) for x in (many, few)]
    assert not diagonal_stands_out(*raised, 0.25)

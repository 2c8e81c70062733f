"""The constant-plus-diagonal fit."""

import numpy as np
import pytest

from studies.reference.content import constant_plus_diagonal


def masked(values):
    return np.where(np.tril(np.ones_like(values)) > 0, values, np.nan)


def test_least_squares_by_another_way():
    rng = np.random.default_rng(0)
    C = masked(rng.normal(size=(7, 7)) + 2 * np.eye(7))
    rows, columns = np.tril_indices(7)
    design = np.column_stack([np.ones(rows.size), rows == columns])
    (c, d), *_ = np.linalg.lstsq(design, C[rows, columns], rcond=None)
    fit = constant_plus_diagonal(C)
    left = C[rows, columns] - design @ [c, d]
    assert np.allclose([fit.constant, fit.diagonal, fit.residual], [c, d, left.std()])
    assert fit.explained == pytest.approx(1 - left.var() / C[rows, columns].var())


def test_a_band_that_is_masked_further_counts_only_what_is_seen():
    C = masked(np.arange(16.0).reshape(4, 4))
    C[3, 0] = np.nan
    assert constant_plus_diagonal(C).constant == np.mean([4, 8, 9, 13, 14])


def test_a_constant_matrix_is_explained_whole():
    fit = constant_plus_diagonal(masked(np.full((3, 3), 2.5)))
    assert (fit.constant, fit.diagonal, fit.residual, fit.explained) == (2.5, 0.0, 0.0, 1.0)


def test_what_is_not_visible_is_refused():
    hidden = masked(np.ones((3, 3)))
    hidden[1, 1] = np.nan
    for bad in (hidden, np.array([[1.0]])):
        with pytest.raises(ValueError, match="logits: expected a visible diagonal and a visible pair off it"):
            constant_plus_diagonal(bad)

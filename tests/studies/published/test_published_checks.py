"""What is broken on purpose is broken as it says, and two constants are found among noise."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import posbias as pb
from studies.published import content
from studies.published.printed_checks import exchanged, misplaced, moved, transport_cost

ROWS = pd.DataFrame({"printed_b": [0.2, 0.005], "printed_c": [0.4, 0.1]}, index=["one", "two"])


def test_tables_with_one_wrong_number():
    found = [x["printed_b"].tolist() for x in moved(ROWS, ["printed_b"], 0.01)]
    expected = [[0.19, 0.005], [0.21, 0.005], [0.2, 0.015]]  # none is negative
    assert np.allclose(found, expected)
    assert [x.loc["one"].tolist() for x in exchanged(ROWS, "printed_b", "printed_c")] == [[0.4, 0.2], [0.2, 0.4]]
    assert [x.to_numpy().tolist() for x in misplaced(ROWS, ["printed_b", "printed_c"])] == [
        [[0.005, 0.1]] * 2,
        [[0.2, 0.4]] * 2,
    ]


def test_the_cheapest_plan_by_hand():
    p, q = np.array([1.0, 0, 0]), np.array([0.0, 0.5, 0.5])
    assert transport_cost(p, q) == pytest.approx(0.75)
    assert pb.normalised_wasserstein(p, q) == pytest.approx(0.75)


def measurement(prompts, n=40, seed=0):
    """Return logits of a constant 1, a diagonal 3 and structure of 0.2, and noise of so many prompts."""
    rng, structure = np.random.default_rng(seed), 0.2 * np.random.default_rng(9).normal(size=(n, n))
    logits = 1 + 2 * np.eye(n) + structure + rng.normal(size=(n, n)) / prompts**0.5
    logits[np.triu_indices(n, 1)] = np.nan
    return xr.Dataset({"content_logits": (("layer", "head", "query", "key"), logits[None, None])})


def test_noise_of_few_prompts_is_told_from_structure():
    (fit,) = content.fits_by_head(measurement(24), measurement(6, seed=1), 0.25).itertuples()
    assert fit.diagonal == pytest.approx(2, abs=0.15) and fit.step == pytest.approx(2, abs=0.2)
    assert fit.structure**0.5 == pytest.approx(0.2, abs=0.05) and fit.variance**0.5 > 0.26


def test_shuffled_keys_stay_in_their_row_and_below_the_diagonal():
    A = np.tril(np.arange(1.0, 26).reshape(5, 5))
    found = content.shuffled_keys(A)
    assert (np.sort(found, 1) == np.sort(A, 1)).all() and (np.triu(found, 1) == 0).all() and (found != A).any()
    assert content.quarter_diagonal(np.where(np.eye(3) > 0, 4.0, 0.0)).diagonal().tolist() == [1.0, 1.0, 1.0]


def test_rows_that_lean_back_violate_the_order():
    even = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    assert content.violations(even)["violated"] == 0
    assert content.violations(content.leaning_back(even, 0.5))["violated"] > 0

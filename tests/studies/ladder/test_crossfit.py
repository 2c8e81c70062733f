"""Predictions of some documents against the influence of others."""

import numpy as np
import pytest
import xarray as xr

from studies.ladder import crossfit
from studies.ladder.evidence import Small, profile_of
from studies.ladder.numbers import swapped
from studies.results import load


@pytest.fixture(scope="module")
def small():
    return Small()


def test_the_ceiling_is_what_a_perfect_prediction_has():
    """Two halves of equal noise about one truth: the truth correlates with their mean as the formula says."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(20_000)
    halves = truth + 0.8 * rng.standard_normal((2, truth.size))
    between, reached = np.corrcoef(halves)[0, 1], np.corrcoef(truth, halves.mean(0))[0, 1]
    assert crossfit.ceiling(between) == pytest.approx(reached, abs=0.01)
    assert abs(between - reached) > 0.1


def test_small_models_are_judged_by_other_documents(small):
    judged, x = crossfit.small_judged(small, "bloom-8"), small.judged["bloom-8"]
    rows, documents = x["influence_prompts"].values, x["document"].values
    first = crossfit.FIRST
    assert not {*documents[:first]} & {*documents[first:]}
    np.testing.assert_allclose(judged.measured, profile_of(rows[first:]))
    np.testing.assert_allclose(judged.predicted["influence"], profile_of(rows[:first]))
    np.testing.assert_allclose(small.exact["bloom-8"], judged.predicted["influence"], atol=1e-6)


def test_smollm2_is_judged_by_another_text():
    kept = load("real")
    judged = crossfit.large_judged(kept["smollm2.builtin-256"], kept["smollm2.wiki-256"])
    np.testing.assert_allclose(judged.measured, profile_of(kept["smollm2.wiki-256"]["influence_prompts"].values))
    said = kept["smollm2.builtin-256"]["rollout"].sel(variant="contributions").values
    np.testing.assert_allclose(judged.predicted["contributions"], said / said.sum())
    assert 0 < judged.halves < judged.ceiling < 1


def test_a_u_without_a_model_is_ranked_beside_contributions():
    rng, n = np.random.default_rng(0), 32
    ends = crossfit.yardsticks(np.ones((1, n)))["ends"]
    assert ends.sum() == pytest.approx(1) and (ends == ends[::-1]).all() and (np.diff(ends[: n // 2]) < 0).all()
    rows = ends * rng.uniform(0.5, 1.5, (60, n))
    x = xr.Dataset(
        {"influence_prompts": (("prompt", "position"), rows), "contributions_own": (("prompt", "position"), rows**0)},
        {"document": ("prompt", np.arange(60))},
    )
    x["contributions_own"][:, -1] = 2  # knows no more than that the last position has most
    found = crossfit.half_beside_u(x)
    assert found["ends"] > 0.9 > 0.4 > found["own"]


def test_halves_of_documents_share_none():
    units = np.repeat(np.arange(6), 2)
    for half in crossfit.splits(units, times=5):
        assert half.sum() == 6 and not {*units[half]} & {*units[~half]}


def test_heads_are_exchanged_and_none_is_lost():
    assert swapped(np.array([0.25, 0.5, 0.125, 0.3])).tolist() == [0, 2, 1, 3]

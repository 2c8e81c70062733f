"""Samples of prompts: whole units drawn again."""

import numpy as np
import pytest

from posbias.comparison.samples import Sample, u_decisions, u_excess
from posbias.rollout.profiles import u_shape


def test_a_unit_that_is_drawn_twice_counts_as_two():
    """Each label of a redrawn sample has all the prompts of one unit, and no prompt of another."""
    sample = Sample(np.arange(1.0, 11.0).reshape(5, 2), np.array([4, 4, 7, 9, 9]))
    wholes = [[[1, 2], [3, 4]], [[5, 6]], [[7, 8], [9, 10]]]
    drawn = [sample.redrawn(np.random.default_rng(seed)) for seed in range(20)]
    chosen = [[wholes.index(x.influence[x.units == label].tolist()) for label in np.unique(x.units)] for x in drawn]
    assert all(len(units) == 3 for units in chosen)
    assert {*np.concatenate(chosen)} == {0, 1, 2} and any(len({*units}) < 3 for units in chosen)


@pytest.mark.parametrize(("smooth", "ends"), [(1, 1), (1, 2), (3, 1), (3, 2), (3, 3)])
def test_the_excess_is_above_0_where_there_is_a_u(smooth, ends):
    profiles = np.random.default_rng(0).dirichlet(np.full(12, 5.0), size=200)
    present = [u_shape(p, smooth=smooth, ends=ends).present for p in profiles]
    assert (u_excess(profiles, smooth=smooth, ends=ends) > 0).tolist() == present and 0 < sum(present) < 200


def test_fewer_resamples_than_can_decide_are_refused():
    sample = Sample(np.random.default_rng(0).random((6, 12)) + 1, np.arange(6))
    assert u_decisions({"a": sample, "b": sample}, resamples=80).index.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="resamples: expected at least 80 for 2 models, received 79"):
        u_decisions({"a": sample, "b": sample}, resamples=79)

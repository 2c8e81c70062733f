"""Samples of prompts: whether they have a U."""

import numpy as np
import pytest

from posbias.comparison.samples import Sample, u_decisions, u_excess
from posbias.rollout.profiles import u_shape


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

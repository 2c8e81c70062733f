"""What chapters quote of several seeds, on files made up so that the answer is known."""

import numpy as np
import pytest

from posbias.measure.corpus import Corpus
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.rollout.order import stochastic_monotonicity
from posbias.settings import Settings
from studies.reference.measure import measure_seed, shortfalls_without

SETTINGS = Settings(Source("reference/bloom-8"), Corpus("builtin"), 6, 24, 4, dtype="float32")


@pytest.fixture(scope="module")
def measurement():
    return measure_seed(SETTINGS)


def test_groups_add_up_to_the_whole(measurement):
    whole = measure(SETTINGS)
    sizes = np.bincount(measurement["group_of"])
    assert sizes.sum() == 6 and len(sizes) > 2
    offset = np.average(measurement["offset_groups"], axis=0, weights=sizes)
    assert np.allclose(offset, whole["content_diagonal"] - whole["content_offdiagonal"], atol=1e-4)
    assert measurement["shortfall_without"].shape == (len(sizes), 8)
    assert np.allclose(measurement["influence"], whole["influence"], atol=1e-6)
    with pytest.raises(ValueError, match="prompts: expected some of two modules or more, received 1 of one"):
        measure_seed(Settings(Source("reference/bloom-8"), Corpus("builtin"), 1, 24))


def test_shortfall_without_a_group_is_that_of_the_others():
    order = np.arange(3)
    good, bad = np.tril(np.ones((3, 3))) / (order[:, None] + 1), np.eye(3)[[0, 1, 0]]
    found = shortfalls_without(np.stack([[good], [bad]]), np.array([1, 3]))
    expected = [stochastic_monotonicity(bad).shortfall, stochastic_monotonicity(good).shortfall]
    assert found.ravel() == pytest.approx(expected) and expected[0] > 0.1 and expected[1] == 0

"""Variants without content are the authors' own files, and means that a distance allows; the chapter has the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.comparison.distances import normalised_wasserstein
from posbias.rollout.profiles import mean_position
from studies.published import numbers, tables


@pytest.mark.parametrize("model", numbers.MODELS)
@pytest.mark.parametrize("variant", "ab")
def test_content_free_variants_are_the_authors_own_files(model, variant):
    own = numbers.config(model, "none", residual=variant == "b")
    assert np.array_equal(
        tables.variant_profile(model, variant, 32), own.model_copy(update={"sequence_length": 32}).profile()
    )


@given(st.integers(0, 10_000))
def test_a_profile_at_a_distance_has_an_allowed_mean(seed):
    p, q = np.random.default_rng(seed).dirichlet(np.full(7, 0.4), size=2)
    low, high = tables.allowed_means(mean_position(p), normalised_wasserstein(p, q))
    assert low - 1e-12 <= mean_position(q) <= high + 1e-12

"""What a distance says about a mean, on cases that can be counted by hand, and against W1 itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.comparison.distances import normalised_wasserstein
from posbias.rollout.profiles import mean_position
from studies.published.allowed_means import allowed_means, gaps_to, overlap, shown, vote

shares = st.floats(0, 1)


@given(st.integers(0, 10_000))
def test_a_profile_at_a_distance_has_an_allowed_mean(seed):
    p, q = np.random.default_rng(seed).dirichlet(np.full(7, 0.4), size=2)
    low, high = allowed_means(mean_position(p), normalised_wasserstein(p, q))
    assert low - 1e-12 <= mean_position(q) <= high + 1e-12


def test_ranges_stay_on_the_line_and_may_be_empty():
    assert allowed_means(0.25, 0.5) == (0.0, 0.75) and allowed_means(0.75, 0.5) == (0.25, 1.0)
    assert overlap((0.0, 0.25), (0.5, 1.0)) == (0.5, 0.25)
    assert shown((0.5, 0.25)) == "none (gap 0.250)"
    with pytest.raises(ValueError, match="ranges: expected at least one"):
        overlap()


@pytest.mark.parametrize(
    ("mean", "gaps"), [(0.25, (0.25, 0.5)), (0.5, (0, 0.25)), (0.625, (0, 0.125)), (1.0, (0.25, 0.5))]
)
def test_gaps_to_a_range(mean, gaps):
    assert gaps_to(mean, (0.5, 0.75)) == gaps


@given(shares, shares, shares, shares)
def test_vote_is_that_of_every_mean_in_the_range(old, new, a, b):
    means = min(a, b), max(a, b)
    x = np.unique(np.concatenate([np.linspace(*means, 50), np.clip([old, new], *means)]))
    change = np.abs(new - x) - np.abs(old - x)
    found = vote(old, new, means)
    if found == "towards":
        assert (change < 0).all()
    elif found == "away":
        assert (change > 0).all()
    elif found == "unchanged":
        assert abs(new - old) < 1e-12
    else:
        assert change.max() >= 0 >= change.min()


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [(0.2, 0.4, "towards"), (0.4, 0.2, "away"), (0.5, 0.8, "open"), (0.4, 0.4, "unchanged"), (0.2, 0.61, "towards")],
)
def test_votes_by_hand(old, new, verdict):
    assert vote(old, new, (0.6, 0.7)) == verdict


def test_no_vote_without_a_mean():
    with pytest.raises(ValueError, match="means: expected a range that is not empty"):
        vote(0.2, 0.4, (0.7, 0.6))

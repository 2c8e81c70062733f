"""Resampled units, their profiles and distances, and intervals."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from posbias.comparison.distances import normalised_wasserstein, spearman, wasserstein_to
from posbias.comparison.resampling import hull_interval, interval, resample_weights, resampled_profiles


def test_resamples_count_whole_prompts_by_their_influence():
    """A prompt at a position of its own, the last one of three times the influence: shares say who was drawn."""
    size = np.array([1.0, 1.0, 1.0, 3.0])
    drawn = resampled_profiles(np.diag(size), 4000) / size
    times = 4 * drawn / drawn.sum(1, keepdims=True)
    assert np.allclose(times, times.round()) and times.max() == pytest.approx(4)
    assert times.mean(0) == pytest.approx(1, abs=0.05) and times.var(0) == pytest.approx(3 / 4, rel=0.1)


def test_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = 0
    for k in range(200):
        sample = np.column_stack([rng.gamma(3.0, size=60), np.ones(60) * 3])
        low, high = interval(resampled_profiles(sample, 200, seed=k)[:, 0], 0.9)
        inside += low <= 0.5 <= high
    assert 0.83 < inside / 200 < 0.96


def test_a_distance_is_a_share_of_the_way_from_the_first_position_to_the_last():
    """W1 by hand, by scipy with positions from 0 to 1, and unchanged where a profile is drawn on a finer grid."""
    assert wasserstein_to(np.array([[0.5, 0.5, 0.0]]), np.array([0.0, 0.5, 0.5])).tolist() == [0.5]
    assert wasserstein_to(np.eye(5)[:1], np.eye(5)[1]).tolist() == [0.25]
    rng = np.random.default_rng(0)
    for n in (2, 3, 10):
        p, q = rng.dirichlet(np.ones(n), size=2)
        places = np.linspace(0, 1, n)
        assert normalised_wasserstein(p, q) == pytest.approx(wasserstein_distance(places, places, p, q))
    assert normalised_wasserstein([1.0], [1.0]) == 0


def test_ranks_are_of_digits_however_small_a_share_is():
    p = 2.0 ** -np.arange(60)
    p /= p.sum()
    noisy = np.array([0.1, 0.2, 0.2, 0.5])
    assert spearman(p, p**2 / (p**2).sum()) == pytest.approx(1) and spearman(p, p[::-1]) == pytest.approx(-1)
    assert spearman(noisy + [0, 1e-15, -1e-15, 0], [0.1, 0.3, 0.2, 0.4]) == pytest.approx(0.9486832981)
    assert np.isnan(spearman(np.full(4, 0.25) + [0, 1e-15, -1e-15, 0], noisy))


def test_units_are_drawn_whole():
    units = np.array([3, 3, 5, 9, 9, 9])
    weights = resample_weights(units, 500)
    assert (weights[:, 0] == weights[:, 1]).all() and (weights[:, 3:] == weights[:, 3:4]).all()
    assert (weights[:, [0, 2, 3]].sum(1) == 3).all() and np.ptp(weights[:, 2]) >= 2
    assert (resample_weights(4, 7) == resample_weights(np.arange(4), 7)).all()


def test_units_are_drawn_alike_whatever_their_size():
    """A document of nine prompts is drawn as often as one of a single prompt: once in the mean."""
    weights = resample_weights(np.array([0] * 9 + [1, 2]), 4000)
    assert weights.mean(0) == pytest.approx(1, abs=0.05)
    assert weights[:, [0, 9, 10]].var(0) == pytest.approx(2 / 3, rel=0.1)


def test_an_interval_of_a_distance_is_the_hull_of_two():
    values = np.linspace(1.0, 2.0, 101)
    assert hull_interval(1.25, values, 0.5) == pytest.approx((0.75, 1.75))  # of 0.75 to 1.25, 1.25 to 1.75
    assert hull_interval(1.5, values, 0.5) == pytest.approx((1.25, 1.75))
    assert hull_interval(1.75, values, 0.5) == pytest.approx((1.25, 2.25))
    assert hull_interval(0.5, values, 0.5, least=0.0) == (0.0, 1.75)
    assert hull_interval(0.5, values, 0.5)[0] == pytest.approx(-0.75)

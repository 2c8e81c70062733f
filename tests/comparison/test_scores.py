"""Scores, paired gains and the recency baseline."""

import numpy as np
import pytest

from posbias import normalised_wasserstein
from posbias.comparison.distances import wasserstein_to
from posbias.comparison.fits import power_fit, recency_fit
from posbias.comparison.resampling import hull_interval, resampled_profiles
from posbias.comparison.scores import paired_gain, score


@pytest.fixture
def influence():
    rng = np.random.default_rng(2)
    return rng.gamma(2.0, size=(50, 16)) * np.linspace(0.5, 2, 16)


def test_a_score_by_hand(influence):
    q = np.full(16, 1 / 16)
    found = score(influence, q, resampled_profiles(influence, 400))
    p = influence.sum(0) / influence.sum()
    assert found.wasserstein == pytest.approx(normalised_wasserstein(p, q)) and np.isnan(found.spearman)
    assert found.low < found.wasserstein < found.high
    assert found.first_aside == pytest.approx(normalised_wasserstein(p[1:] / p[1:].sum(), np.full(15, 1 / 15)))
    assert found.difference == pytest.approx(0.5 - p @ np.arange(16) / 15)
    assert score(influence, p).wasserstein == pytest.approx(0, abs=1e-15) and score(influence, p).spearman == 1


def test_gains_are_paired(influence):
    """The interval of a difference is narrower than the difference of intervals: both see the same prompts."""
    p = influence.sum(0) / influence.sum()
    near, far = 0.9 * p + 0.1 / 16, 0.8 * p + 0.2 / 16
    gain, low, high, p_value = paired_gain(influence, far, near)
    scores = [score(influence, q) for q in (far, near)]
    assert gain == pytest.approx(scores[0].wasserstein - scores[1].wasserstein) and low < gain < high
    assert low > scores[0].low - scores[1].high and high < scores[0].high - scores[1].low
    assert paired_gain(influence, near, far).gain == -gain
    assert p_value == paired_gain(influence, near, far).p_value < 0.05


def test_a_score_of_documents_is_less_certain_than_one_of_as_many_prompts(influence):
    """Each prompt five times: as prompts they are five times as many, as documents they are what they were."""
    again, units = np.repeat(influence, 5, axis=0), np.repeat(np.arange(len(influence)), 5)
    q = np.full(16, 1 / 16)
    alone, prompts = score(influence, q), score(again, q)
    documents = score(again, q, resampled_profiles(again, units=units))
    assert (documents.low, documents.high) == pytest.approx((alone.low, alone.high), abs=1e-12)
    assert prompts.high - prompts.low < 0.6 * (alone.high - alone.low)
    assert score(influence, np.eye(16)[0]).first_aside > 0  # of nothing but the first token equal shares are left


def test_a_gain_of_documents_has_the_interval_and_p_value_of_whole_documents():
    """Four documents of five equal prompts: by documents the sign is open, by prompts it would be sure."""
    alone = np.array([[4.0, 1, 1], [4.0, 1, 1], [1.0, 1, 3], [1.2, 1, 1.3]])
    again, units = np.repeat(alone, 5, axis=0), np.repeat(np.arange(4), 5)
    first, last = np.array([0.6, 0.2, 0.2]), np.array([0.2, 0.2, 0.6])
    single = paired_gain(alone, last, first)
    whole = paired_gain(again, last, first, resampled_profiles(again, units=units))
    assert whole == pytest.approx(single, abs=1e-12) and whole.p_value > 0.05
    by_prompt = paired_gain(again, last, first)
    assert by_prompt.p_value < 0.05 and by_prompt.high - by_prompt.low < 0.6 * (whole.high - whole.low)


def test_intervals_are_hulls_at_95_percent(influence):
    p, even = influence.sum(0) / influence.sum(), np.full(16, 1 / 16)
    drawn = resampled_profiles(influence, 400)
    found, distances = score(influence, even, drawn), wasserstein_to(drawn, even)
    assert (found.low, found.high) == pytest.approx(hull_interval(found.wasserstein, distances, 0.95, least=0.0))
    assert score(influence, p, drawn).low == 0, "a distance is never below 0"
    near = 0.5 * (p + even)
    gain = paired_gain(influence, even, near, drawn)
    gains = distances - wasserstein_to(drawn, near)
    assert (gain.low, gain.high) == pytest.approx(hull_interval(gain.gain, gains, 0.95))


@pytest.mark.parametrize("seed", [2, 6])
def test_the_p_value_of_a_gain_is_the_level_at_which_its_interval_reaches_zero(seed):
    """Few prompts with heavy tails, so that the percentile and the basic interval reach 0 at different levels."""
    rng = np.random.default_rng(seed)
    influence = rng.gamma(0.2, size=(8, 5)) + 0.01
    before, after = rng.dirichlet(np.ones(5), size=2)
    gain, *_, p_value = paired_gain(influence, before, after)
    drawn = resampled_profiles(influence, 2000)
    gains = wasserstein_to(drawn, before) - wasserstein_to(drawn, after)
    reached = [low <= 0 <= high for low, high in (hull_interval(gain, gains, 1 - c * p_value) for c in (0.97, 1.03))]
    assert reached == [True, False]


FITS = [(recency_fit, lambda n: np.arange(n - 1.0, -1, -1)), (power_fit, lambda n: np.log(np.arange(n, 0, -1)))]


@pytest.mark.parametrize(("fit", "far"), FITS)
def test_a_fit_finds_what_it_is_made_of(fit, far):
    for m in (-0.3, 0.0, 0.01, 0.2, 2.0):
        p = np.exp(-m * far(40))
        p /= p.sum()
        assert normalised_wasserstein(fit(p), p) < 1e-4
    last = np.eye(40)[-1]
    assert normalised_wasserstein(fit(last), last) < 1e-3


@pytest.mark.parametrize(("fit", "far"), FITS)
def test_a_fit_is_the_nearest_on_a_fine_grid(fit, far):
    p = np.random.default_rng(0).dirichlet(np.ones(12))
    grid = np.exp(-np.outer(np.linspace(-3, 3, 6001), far(12)))
    best = min(normalised_wasserstein(q / q.sum(), p) for q in grid)
    assert best - 1e-4 < normalised_wasserstein(fit(p), p) < best + 1e-6

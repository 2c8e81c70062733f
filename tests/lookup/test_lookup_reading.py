"""The law of reading by place: what is drawn from it is found again, and what it lacks is refused."""

import numpy as np
import pytest

from posbias.lookup import reading


def draw(pulls, sharpness, sets, seed=0):
    p = reading.shares(np.array(pulls, float), sharpness)
    rng = np.random.default_rng(seed)
    return np.stack([[rng.choice(len(p), p=row) for row in p] for _ in range(sets)])


PULLS = [1.0, -0.5, -1.0, -0.5, 1.0]


def test_a_law_is_found_again_in_answers_drawn_from_it():
    found = reading.fit_reading(draw(PULLS, 0.8, 400), resamples=100)
    low, high = found.sharpness_interval
    assert low < 0.8 < high and high - low < 0.25
    assert np.abs(found.pulls - PULLS).max() < 0.25
    assert found.deviance < 31  # the 99.9% point, 11 degrees of freedom
    assert np.allclose(found.ends, (5 / 3, 5 / 3), atol=0.35)
    assert (found.pull_interval[0] <= found.pulls).all()
    assert (found.ends_interval[0] < found.ends).all() and (found.ends < found.ends_interval[1]).all()
    assert "Sharpness" in repr(found) and f"{found.answers} are in one document" in repr(found)


def test_shares_of_wrong_answers_by_hand():
    counts = np.eye(6) * 5
    counts[2, 0], counts[3, 5], counts[2, 5], counts[1, 0], counts[3, 2] = 1, 2, 4, 8, 16
    rest = dict.fromkeys(("sets", "unknown", "sharpness", "sharpness_interval", "pulls"), 0)
    rest |= dict.fromkeys(("pull_interval", "ends_interval", "log_likelihood", "deviance"), 0)
    found = reading.Reading(counts, **rest)
    assert found.wrong == 31 and found.near == 24 / 31 and found.later == 6 / 31


def test_every_second_document_is_twice_as_far_away_by_hand():
    """Of four documents that pull alike two compete, two places apart: 1 to 3^-2."""
    rest = dict.fromkeys(("sets", "unknown", "sharpness_interval"), 0)
    rest |= dict.fromkeys(("pull_interval", "ends_interval", "log_likelihood", "deviance"), 0)
    found = reading.Reading(np.eye(4), sharpness=np.log(3), pulls=np.zeros(4), **rest)
    assert found.apart == pytest.approx(0.9)


def test_slopes_vanish_at_the_fit():
    counts = reading.count_sources(draw(PULLS, 0.5, 40)).sum(0)
    sharpness, pulls, best = reading.fit_law(counts)
    for step in np.eye(6) * 0.02:
        other = reading.shares(pulls + step[1:], sharpness + step[0])
        assert reading.log_likelihood(other, counts) < best


def test_two_places_by_hand():
    sharpness, pulls, _ = reading.fit_law(np.array([[30.0, 10.0], [10.0, 30.0]]))
    assert sharpness == pytest.approx(np.log(3), abs=1e-3)
    assert pulls == pytest.approx([0, 0], abs=1e-3)


def test_no_sharpness_where_the_place_asked_for_means_nothing():
    found = reading.fit_reading(draw(PULLS, 0.0, 60), resamples=100)
    assert found.sharpness_interval[0] < 0 < found.sharpness_interval[1]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (draw(PULLS, 1, 9), "10 sets"),
        (np.zeros((20, 2), int), "three documents"),
        (np.full((20, 4), -1), "received 0, of which 0 wrong"),
        (np.tile(np.arange(4), (20, 1)), "10 of them wrong, received 80, of which 0 wrong"),
    ],
)
def test_what_a_law_needs(source, words):
    with pytest.raises(ValueError, match=words):
        reading.fit_reading(source)

"""The theorem of reading: closed forms against the whole matrix, bounds against searches, and what breaks them."""

import numpy as np
import pytest

from studies.theorems import reading

GAMMAS = (0.05, 0.3, 0.77, 1.5, 4.0)
SIZES = (3, 4, 5, 8, 16, 40)
PULLS = (-1.0, -0.4, 0.0, 0.5, 2.0)


def accuracy(gamma, P, left, right, match=0.0):
    """Return the diagonal of the whole matrix."""
    return reading.reading_matrix(gamma, reading.end_pulls(P, left, right), match).diagonal()


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("P", SIZES)
def test_odds_are_those_of_the_matrix(gamma, P):
    for left in PULLS:
        for right in PULLS:
            found = reading.odds_against(gamma, P, left, right, 0.3)
            assert np.allclose(1 / (1 + found), accuracy(gamma, P, left, right, 0.3), rtol=1e-10)


@pytest.mark.parametrize("kernel", [lambda d: np.exp(-0.77 * d), lambda d: np.exp(-0.1 * d**2), lambda d: 1 / (1 + d)])
def test_any_falling_kernel_loses_the_middle_without_a_pull(kernel):
    for P in SIZES:
        place = np.arange(P)
        weights = kernel(np.abs(place[:, None] - place).astype(float))
        assert reading.is_middle_lost((weights / weights.sum(1, keepdims=True)).diagonal())
    flat = np.full((5, 5), 0.2).diagonal()
    assert not reading.is_middle_lost(flat)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("P", SIZES)
def test_the_middle_is_lost_exactly_above_the_least_pull(gamma, P):
    least = reading.least_pull(gamma, P)
    assert least < 0
    for match in (-1.0, 0.0, 2.0):  # of which it does not depend
        assert reading.is_middle_lost(accuracy(gamma, P, least + 1e-5, least + 1e-5, match))
        assert not reading.is_middle_lost(accuracy(gamma, P, least - 1e-5, least - 1e-5, match))
        assert not reading.is_middle_lost(accuracy(gamma, P, 2 * least, 2 * least, match))
    assert reading.is_middle_lost(accuracy(gamma, P, 0.0, 3.0)) and reading.is_middle_lost(accuracy(gamma, P, 0.0, 0.0))


def test_the_worst_place_turns_where_the_pull_passes():
    for gamma in (0.3, 0.77, 1.5):
        turn = reading.turning_pull(gamma)
        inner = [accuracy(gamma, 9, turn + x, turn + x)[1:-1] for x in (-0.05, 0.05)]
        assert inner[0].argmin() == 3 and inner[1].argmin() in (0, 6)
        assert np.ptp(accuracy(gamma, 9, turn, turn)[1:-1]) < 1e-12


def test_limits_and_their_remainders():
    for gamma in GAMMAS:
        far = accuracy(gamma, 2 * int(40 / gamma) + 1, 1.0, 1.0, 0.5)
        assert far[len(far) // 2] == pytest.approx(reading.middle_limit(gamma, 0.5), rel=1e-9)
        assert abs(far[len(far) // 2] - reading.middle_limit(gamma / 2, 0.5)) > 1e-3  # it would notice
        for P in SIZES:
            limit, rest = reading.share_limit(gamma, P, 1.0, -0.5)
            inner = accuracy(gamma, P, 1.0, -0.5)[1:-1]
            assert (np.abs(inner - limit) <= inner * rest + 1e-12).all()
    gap = [40 * accuracy(6 / 40, 40, 0, 0)[20] - 160 * accuracy(6 / 160, 160, 0, 0)[80]]
    assert abs(gap[0]) < 0.1 and abs(40 * accuracy(0.8, 40, 0, 0)[20] - 160 * accuracy(0.8, 160, 0, 0)[80]) > 10


def test_draws_follow_the_law():
    b, rng = reading.end_pulls(6, 1.2, 0.6), np.random.default_rng(0)
    drawn = np.bincount(reading.draw_answers(0.77, b, 2, 40_000, rng), minlength=6) / 40_000
    expected = reading.reading_matrix(0.77, b)[2]
    assert np.abs(drawn - expected).max() < 0.012
    assert np.abs(drawn - reading.reading_matrix(0.6, b)[2]).max() > 0.03


def test_the_best_order_is_best_of_all_and_its_reverse_is_not():
    rng = np.random.default_rng(1)
    for gamma, left, right in ((0.77, 1.4, 1.0), (0.3, 0.2, 0.5), (1.5, -1.0, 2.0)):
        right_at, rates = accuracy(gamma, 6, left, right), -np.sort(-rng.dirichlet(np.ones(6)))
        most, _ = reading.best_places(6, 6, lambda p, x=right_at, y=rates: reading.right_answers(p, y, x))
        order = reading.best_order(right_at)
        assert reading.right_answers(order, rates, right_at) == pytest.approx(most, abs=1e-12)
        assert reading.right_answers(order[::-1], rates, right_at) < most - 1e-3


def test_the_best_order_is_wrong_where_only_some_compete():
    b, rates = np.zeros(5), np.full(3, 1 / 3)
    score = lambda places: reading.right_among(places, rates, 0.77, b)  # noqa: E731
    most, best = reading.best_places(5, 3, score)
    simple = reading.best_order(accuracy(0.77, 5, 0.0, 0.0))[:3]
    assert sorted(best[0]) == [0, 2, 4] and sorted(map(int, simple)) in ([0, 1, 4], [0, 3, 4])
    assert score(simple) < most - 0.01

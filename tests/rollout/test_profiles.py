import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import compare, u_shape
from posbias.rollout.profiles import read_profile, write_profile


def profiles(n):
    return st.lists(st.floats(0.001, 1), min_size=n, max_size=n).map(lambda x: np.array(x) / sum(x))


@given(profiles(7), profiles(7))
def test_means_bound_the_distance_and_meet_it_for_ordered_profiles(p, q):
    found = compare(p, q)
    difference = abs(found.means[0] - found.means[1])
    assert difference <= found.wasserstein + 1e-12
    if found.ordered:
        assert difference == pytest.approx(found.wasserstein, abs=1e-11)
    else:
        assert difference < found.wasserstein


def test_u_shape_by_hand():
    shape = u_shape([0.3, 0.05, 0.1, 0.15, 0.4])
    assert (shape.start, shape.end, shape.trough, shape.location) == (0.3, 0.15, 0.05, 0.25)
    assert shape.depth == pytest.approx(1 - 0.05 / 0.15) and shape.present
    assert u_shape(np.array([1, 2, 3, 4]) / 10).depth < 0 and u_shape(np.array([4, 3, 2, 1]) / 10).depth < 0


def test_last_position_never_counts():
    p = np.array([0.3, 0.1, 0.2, 0.2, 0.2])
    for last in (0.0, 0.5, 50.0):
        q = np.append(p[:-1], last)
        shape = u_shape(q / q.sum())
        assert shape.present and shape.depth == pytest.approx(0.5) and shape.location == 0.25


def test_a_trough_within_the_tolerance_of_an_end_is_none():
    p = np.array([104, 101, 100, 104, 91.0]) / 500
    assert u_shape(p).depth > 0 and not u_shape(p).present
    shape = u_shape(p, tolerance=0.03)
    assert shape.present and (shape.low, shape.high) == (0.25, 0.5)
    assert u_shape(p, tolerance=0.0).low == 0.5


def test_smoothing_and_ends():
    p = np.array([5, 4, 1, 3, 1, 3, 1, 4, 5.0])
    shape = u_shape(p / p.sum(), ends=2, smooth=3)
    assert shape.start == pytest.approx(4.5 / 27) and shape.trough == pytest.approx(5 / 3 / 27)
    assert shape.location == pytest.approx(3 / 8) and shape.end == pytest.approx(2.5 / 27)
    assert shape.depth == pytest.approx(1 - 5 / 3 / 2.5)


@given(profiles(5))
def test_files_keep_every_digit(tmp_path_factory, p):
    path = tmp_path_factory.mktemp("profiles") / "p.csv"
    write_profile(path, p)
    assert (read_profile(path) == p).all()
    assert path.read_text().startswith("token_position,probability\n0,")


def test_the_authors_own_csv_is_read(tmp_path):
    """numpy.savetxt writes positions as floats."""
    path = tmp_path / "p.csv"
    path.write_text("token_position,probability\n0.000000000000000000e+00,2.5e-01\n1.000000000000000000e+00,7.5e-01\n")
    assert read_profile(path).tolist() == [0.25, 0.75]

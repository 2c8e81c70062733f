"""Profiles with a name, and two of them compared: without a model, with lists."""

import numpy as np
import pytest

import posbias
from posbias import Profile, compare

A = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]
B = [[1.0, 0.0, 0.0], [0.2, 0.8, 0.0], [0.1, 0.2, 0.7]]
HAND = [0.4, 0.1, 0.1, 0.4]


def test_every_name_of_the_front_page_is_there():
    assert set(posbias.__all__) <= set(dir(posbias))
    for name in posbias.__all__:
        assert getattr(posbias, name) is not None
    with pytest.raises(AttributeError, match="module 'posbias' has no attribute 'measurement'"):
        _ = posbias.measurement


LISTS = {
    "attention_kernel": lambda f, x: f(x([[0.0, 0.0], [1.0, 0.0]]), posbias.masks.causal()),
    "dominates": lambda f, x: f(x([0.2, 0.3, 0.5]), x([0.5, 0.2, 0.3])),
    "influence_history": lambda f, x: f(x([A, B]), x([0.1, 0.2])),
    "influence_profile": lambda f, x: f(x(A), x([0.1, 0.2])),
    "mean_position": lambda f, x: f(x(A[2])),
    "mix_heads": lambda f, x: f(x([A, B])),
    "normalised_wasserstein": lambda f, x: f(x(A[2]), x(B[2])),
    "prefix_masses": lambda f, x: f(x(A)),
    "rollout_matrix": lambda f, x: f(x([A, B]), x([0.1, 0.2])),
    "spearman": lambda f, x: f(x(A[2]), x(B[2])),
    "stochastic_monotonicity": lambda f, x: f(x(A)),
    "u_shape": lambda f, x: f(x([0.4, 0.1, 0.2, 0.3])),
    "structured_kernels": lambda f, x: f(2, slope=x([0.5, 0.25])).dense(0, 3),
    "compare": lambda f, x: repr(f(x(A[2]), x(B[2]))),
    "Profile": lambda f, x: f(x(A[2])).values,
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_do_what_arrays_do(name):
    function, call = getattr(posbias, name), LISTS[name]
    by_list, by_array = call(function, lambda x: x), call(function, np.array)
    np.testing.assert_array_equal(by_list, by_array) if isinstance(by_list, np.ndarray) else None
    assert isinstance(by_list, np.ndarray) or by_list == by_array


def test_a_profile_is_an_array_to_numpy():
    p = Profile(HAND, "by hand")
    assert len(p) == 4 and p[-1] == 0.4 and list(p[:2]) == [0.4, 0.1] and 0.1 in p
    assert np.asarray(p).tolist() == HAND and np.asarray(p, dtype=np.float32).dtype == np.float32
    np.testing.assert_allclose(p - p, 0)
    np.testing.assert_allclose(2 * p, np.array(HAND) * 2)
    np.testing.assert_allclose(np.array(HAND) - p, 0)
    assert np.cumsum(p)[-1] == pytest.approx(1)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(p.values)[0] = 1
    own = np.array(p)
    own[0] = 7
    assert p[0] == 0.4


def test_a_profile_says_its_shape():
    p = Profile(HAND, "by hand")
    assert p.mean_position == pytest.approx(0.5) and "lowest" not in repr(Profile([0.5, 0.5]))
    assert repr(p).endswith("first 0.4, last 0.4, lowest between 0.1 at position 1")
    assert repr(Profile([0.6, 0.3, 0.1])).endswith("last 0.1, lowest between 0.3 at position 1")
    assert repr(Profile([1.0])) == "profile: 1 positions, mean 0.000\nfirst 1, last 1"


def test_two_profiles_compared_by_hand():
    found = compare([0.5, 0.5, 0.0], [0.0, 0.5, 0.5])
    assert found.wasserstein == pytest.approx(0.5) and found.ordered
    assert found.means == pytest.approx((0.25, 0.75))
    assert found.even == pytest.approx(0.25) and found.last == pytest.approx(0.25)
    assert found.interval is None and found.total_variation == pytest.approx(0.5)
    turned = compare([0.0, 0.5, 0.5], [0.5, 0.5, 0.0])
    assert turned.ordered and "the second is nearer the start throughout" in repr(turned)
    assert repr(compare([0.2, 0.8], [0.2, 0.8])).endswith("means 0.800 and 0.800; the profiles are equal")
    assert "functions cross" in repr(compare([0.5, 0.0, 0.5], [0.0, 1.0, 0.0]))
    assert "rank correlation undefined" in repr(compare([0.5, 0.5], [0.2, 0.8]))


def test_intervals_come_from_the_prompts_of_the_measured_one():
    for bad in ([0.5, 0.5], [[1.0, 2.0, 3.0]]):
        with pytest.raises(ValueError, match=r"^prompts: expected an array \(N, 2\), received shape"):
            Profile([0.5, 0.5], prompts=bad)
    influence = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 2.0], [0.0, 1.0, 4.0], [2.0, 2.0, 2.0]])
    q = Profile(influence.sum(0) / influence.sum(), "measured", influence)
    found, turned = compare([0.2, 0.3, 0.5], q), compare(q, [0.2, 0.3, 0.5])
    assert found.interval == turned.interval and found.prompts == 4
    from posbias.comparison.scores import score

    expected = score(influence, np.array([0.2, 0.3, 0.5]))
    assert found.interval == (expected.low, expected.high) and found.wasserstein == pytest.approx(expected.wasserstein)
    assert found.interval[0] < found.interval[1]
    assert compare(q, q).interval is None  # of two measured ones no distance is a prediction's
    for useless in (influence[:1], influence * [[1], [1], [0], [1]], influence * np.nan):
        assert compare([0.2, 0.3, 0.5], Profile([0.2, 0.3, 0.5], "q", useless)).interval is None

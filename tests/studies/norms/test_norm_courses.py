"""Courses of norms: smooth, from other prompts, shuffled; by hand and on courses with a known answer."""

import numpy as np

from studies.norms.courses import held_out_courses, removals, smooth_course

J = np.arange(64.0)


def test_a_smooth_course_keeps_powers_and_the_first_position_and_drops_noise():
    power = -0.2 * np.log(J + 1)
    power[0] = 3.0
    assert np.allclose(smooth_course(power[None]), power[None], atol=1e-10)
    noise = np.random.default_rng(0).normal(size=(200, 64))
    left = smooth_course(noise)[:, 1:].std()
    assert left < 0.45  # four numbers of 63, most weight where positions are few
    assert (smooth_course(noise)[:, 0] == noise[:, 0]).all()


def test_a_fold_gets_the_course_of_the_other():
    logs = np.zeros((4, 1, 6))
    logs[0] = 5.0  # a prompt of fold 0
    courses = held_out_courses(logs)
    assert courses[0].tolist() == [[0.0] * 6] and courses[1].tolist() == [[2.5] * 6]
    (even, of_odd), (odd, of_even) = removals("smooth", logs)
    assert (even.tolist(), odd.tolist()) == ([0, 2], [1, 3])
    assert np.allclose(of_odd, 1) and np.allclose(of_even, np.exp(2.5))


def test_a_constant_is_one_number_a_layer():
    logs = np.random.default_rng(0).normal(size=(5, 2, 9))
    for rows, course in removals("constant", logs):
        other = np.delete(logs, rows, axis=0).mean(0)
        assert np.allclose(np.log(course), other.mean(-1, keepdims=True) * np.ones(9))


def test_shuffles_keep_values_and_lose_places():
    logs = np.tile(-0.3 * np.log(J + 1), (3, 2, 1))
    groups = list(removals("shuffled", logs, seed=1))
    smooth = dict.fromkeys(range(3))
    for rows, course in removals("smooth", logs):
        smooth.update(dict.fromkeys(rows.tolist(), course))
    assert [rows.tolist() for rows, _ in groups] == [[0], [1], [2]]
    for (k,), course in groups:
        assert np.allclose(np.sort(course), np.sort(smooth[k])) and not np.allclose(course, smooth[k])
        assert np.allclose(course[0], course[1])  # layers move together
    assert not (groups[0][1] == groups[2][1]).all()  # anew for each prompt

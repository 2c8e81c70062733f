"""Rollouts with mixing and gain by position, and with skip and branch at right angles."""

import numpy as np
import pytest

from posbias import influence_profile
from studies.ladder.joining import joined_history, joined_profile


def random_rollout(T=4, n=5, seed=0):
    rng = np.random.default_rng(seed)
    A = np.tril(rng.uniform(size=(T, n, n)))
    return A / A.sum(-1, keepdims=True), rng.uniform(0.1, 0.9, (T, n)), rng.uniform(0.5, 2.0, (T, n))


def test_right_angles_by_hand():
    """One layer, λ = 1/4: position 1 keeps 3/4 and is sent 1/8, position 0 is sent 1/8."""
    A = np.array([[[1.0, 0.0], [0.5, 0.5]]])
    at_1 = np.hypot(0.75, 0.125)
    assert joined_profile(A, [0.25], power=2.0) == pytest.approx(np.array([0.125, at_1]) / (0.125 + at_1))


def test_plain_is_the_rollout():
    A, lambda_, _ = random_rollout()
    assert np.allclose(joined_profile(A, lambda_[:, 0], row=3), influence_profile(A, lambda_[:, 0], row=3), atol=1e-14)


def test_written_as_matrices():
    A, lambda_, gain = random_rollout()
    v, rows = np.eye(5)[-1], []
    for t in (3, 2, 1, 0):
        v = v @ np.diag(gain[t]) @ (np.eye(5) - np.diag(lambda_[t]) + np.diag(lambda_[t]) @ A[t])
        rows.append(v / v.sum())
    assert np.allclose(joined_history(A, lambda_, gain)[:-1], rows[::-1], atol=1e-14)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_a_gain_common_to_a_layer_changes_nothing(power):
    A, lambda_, _ = random_rollout()
    common = np.array([0.1, 2.0, 3.0, 7.0])[:, None] * np.ones(5)
    assert np.allclose(joined_history(A, lambda_, common, power=power), joined_history(A, lambda_, power=power))
    assert np.allclose(joined_history(A, lambda_, power=power).sum(-1), 1)

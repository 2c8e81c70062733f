"""Collapse and survival: what bounds promise of small rollouts, and what is noticed if they are wrong."""

import numpy as np
import pytest

from studies.theorems import bound_checks, collapse_checks, dichotomy_checks
from studies.theorems.depth import log_survival_bound, stairs
from studies.theorems.depth_draws import attaining, collapse_bounds, draw_rollouts


@pytest.fixture(scope="module")
def rollouts():
    return draw_rollouts(np.random.default_rng(3))


def test_rollouts_are_within_their_bounds_and_attain_them(rollouts):
    assert collapse_checks.survives(rollouts) and collapse_checks.collapses(rollouts)
    assert dichotomy_checks.between(rollouts[:3])
    assert not collapse_checks.survives(rollouts, lambda mix: log_survival_bound(0.98 * mix))
    assert not collapse_checks.collapses(rollouts, epsilon=1.02)
    assert not collapse_checks.collapses(rollouts, delta=1.02)
    assert not dichotomy_checks.between(rollouts[:3], dichotomy_checks.faster)


def test_a_layer_without_residual_leaves_no_positive_product():
    mixing = np.array([1.0, 0.5, 0.1])
    assert collapse_checks.survives([(np.stack([stairs(1.0, 4)] * 3), mixing)])
    assert not collapse_checks.positive([mixing]) and collapse_checks.positive([mixing[1:]])


def test_states_and_weights_attain_their_bounds():
    small = attaining(np.random.default_rng(0))
    assert bound_checks.lemma_holds(small)
    assert not bound_checks.lemma_holds(small, state=bound_checks.less_growth)


def test_bounds_of_kernels_by_hand():
    found = collapse_bounds(np.array([0.5, 0.5]), {"half": 0.5})
    assert np.allclose(np.exp(found["half"]), [0.75, 0.75**2])

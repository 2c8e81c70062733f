import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, dominates, influence_profile, structured_kernels
from posbias.rollout import masks, schedules
from posbias.rollout.influence import influence_history
from studies.theorems.drift import mean_kernel, recency_drift
from studies.theorems.phase_diagram import trough_map


@given(st.integers(0, 1000))
def test_a_drift_is_not_negative_exactly_if_the_later_profile_dominates(seed):
    p, q = np.random.default_rng(seed).dirichlet(np.ones(4), size=2)
    assert (recency_drift(p, q) >= -1e-12) == dominates(q, p)


def test_the_smallest_fall_over_all_rows_counts():
    rows = np.array([[0.5, 0.5], [0.2, 0.8]])
    assert recency_drift(rows, np.array([[0.1, 0.9], [0.3, 0.7]])) == pytest.approx(-0.1)
    history = influence_history(structured_kernels(3), [0.5] * 3, 5)
    assert recency_drift(history[1:], history[:-1]) >= -1e-12 and recency_drift(history[:-1], history[1:]) < -0.1
    with pytest.raises(ValueError, match="before, after: expected profiles of one shape"):
        recency_drift(np.ones(2), rows)


def test_the_mean_is_taken_over_every_leading_axis_after_the_softmax():
    logits = np.random.default_rng(0).normal(size=(2, 3, 4, 4))
    kernels = attention_kernel(logits, masks.causal())
    assert np.allclose(mean_kernel(logits, masks.causal()), sum(kernels[a, b] for a in range(2) for b in range(3)) / 6)
    assert not np.allclose(
        mean_kernel(logits, masks.causal()), attention_kernel(logits.mean(axis=(0, 1)), masks.causal())
    )


def test_the_map_is_the_trough_of_each_profile():
    from posbias import u_shape

    slopes, tau = np.array([[0.1, 0.5], [1.0, 2.0]]), [0.3, 2.0]
    depth, location = trough_map(20, 4, tau, slopes)
    for line, own in enumerate(slopes):
        for column, total in enumerate(tau):
            p = influence_profile(structured_kernels(4, slope=own), schedules.constant(4, total / 4), 20)
            shape = u_shape(p)
            assert depth[line, column] == pytest.approx(shape.depth)
            assert location[line, column] == shape.location
    with pytest.raises(ValueError, match="tau: expected total mixing from 0 to T = 4"):
        trough_map(20, 4, [5.0], slopes)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel
from posbias.rollout import masks
from posbias.rollout.influence import rollout_history
from studies.theorems.cuts import causal_without, random_cuts
from studies.theorems.graphs import closed_groups
from studies.theorems.near_uniform import log_distance_from_uniform, logit_ranges, uniform_attention


def test_cut_edges_decide_who_is_a_sink():
    assert closed_groups(causal_without(4, [(1, 2)])) == [[0], [1]]
    assert closed_groups(causal_without(4, [(1, 3), (1, 4)])) == [[0]]
    for edge in ((2, 2), (3, 1), (1, 5)):
        with pytest.raises(ValueError, match="edges: expected pairs"):
            causal_without(4, [edge])


def test_the_expected_share_of_edges_is_cut():
    rng, n = np.random.default_rng(0), 40
    graph = random_cuts(n, 0.3, rng)
    assert graph.diagonal().all() and not np.triu(graph, 1).any()
    assert 1 - graph[np.tri(n, k=-1, dtype=bool)].mean() == pytest.approx(0.3, abs=0.05)
    assert (random_cuts(n, 0.0, rng) == np.tri(n, dtype=bool)).all()
    with pytest.raises(ValueError, match="q: expected a share"):
        random_cuts(n, 1.5, rng)


@given(st.integers(0, 1000), st.sampled_from([masks.causal(), masks.sliding_window(2), masks.prefix(3)]))
def test_rollouts_stay_as_near_to_uniform_as_the_logits(seed, mask):
    logits = np.random.default_rng(seed).normal(size=(4, 5, 5))
    allowed = mask.matrix(5)
    A = attention_kernel(logits, mask)
    shown = np.where(allowed, logits, np.nan)
    expected = (np.nanmax(shown, axis=2) - np.nanmin(shown, axis=2)).max(axis=1)
    ranges = logit_ranges(A, allowed)
    assert np.allclose(ranges, expected)
    apart = log_distance_from_uniform(rollout_history(A, np.ones(4))[1:], allowed)
    assert (apart <= np.cumsum(ranges) + 1e-9).all() and apart[0] > 0


def test_uniform_attention_is_a_softmax_of_nothing():
    allowed = masks.prefix(2).matrix(4)
    assert np.allclose(uniform_attention(allowed), attention_kernel(np.zeros((4, 4)), allowed))
    with pytest.raises(ValueError, match="allowed: expected a key"):
        uniform_attention(np.zeros((2, 2), dtype=bool))

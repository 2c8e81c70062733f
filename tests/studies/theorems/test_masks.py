"""Where predicted influence ends under a mask, and how fast: what the page says of the example network, and by hand."""

import numpy as np
import pytest

from posbias.rollout import masks as kinds
from studies.theorems import graphs
from studies.theorems.forces import rollout_history
from studies.theorems.mask_checks import forgetting, forgetting_sharp, never_exceeded
from studies.theorems.masks import CONDITION, NORM, PREFIXES, WINDOWS, N, T, load_example, worst_windows
from studies.theorems.networks import value_product_norms
from studies.theorems.wu import in_tens


@pytest.fixture(scope="module")
def example():
    return load_example()


def test_the_example_network_meets_both_assumptions(example):
    weights = example.weights
    assert max(np.linalg.norm(W, 2, axis=(1, 2)).max() for W in (weights.W_q, weights.W_k)) <= NORM * (1 + 1e-9)
    assert value_product_norms(weights.W_v).max() <= CONDITION * (1 + 1e-9)
    assert np.linalg.norm(weights.W_v, 2, axis=(1, 2)).max() > 1  # single maps may lengthen
    assert max(run.norms.max() for run in example.runs.values()) <= CONDITION * (1 + 1e-9)


def test_predicted_influence_ends_on_the_sinks_under_every_mask(example):
    depth = np.arange(1, T + 1)
    for name, graph in example.allowed.items():
        groups, e, P = graphs.closed_groups(graph), example.epsilon[name], example.history[name]
        sinks = np.concatenate(groups)
        hops = graphs.hop_distances(graph)[:, sinks]
        M = int(max(hops.min(axis=1).max(), 1))
        off = (P.sum(axis=2) - P[:, :, sinks].sum(axis=2)).max(axis=1)
        assert (off <= (1 - e**M) ** (depth // M) + 1e-12).all(), name
        if len(groups) == 1:
            reach = int(max(hops.max(), 1))
            assert (P[reach - 1 :, :, sinks] >= e**reach - 1e-12).all(), name


def test_the_rate_is_that_of_uniform_attention(example):
    for name, graph in example.allowed.items():
        logs = np.log(np.where(graph, example.runs[name].kernels, 1.0))
        spread = np.where(graph, logs, -np.inf).max(2) - np.where(graph, logs, np.inf).min(2)
        even = rollout_history(np.stack([graphs.uniform_attention(graph)] * T), np.ones(T))[1:]
        for t, allowed in enumerate(np.cumsum(spread.max(1))):
            reached = even[t] > 0
            apart = np.log(example.history[name][t][reached] / even[t][reached])
            assert abs(apart).max() <= allowed + 1e-9, name


def test_sinks_and_layers_to_them():
    for w in WINDOWS:
        graph = kinds.sliding_window(w).matrix(N)
        assert graphs.closed_groups(graph) == [[0]]
        assert graphs.hop_distances(graph)[:, 0].max() == graphs.window_hops(N, w)
    for K in PREFIXES:
        assert graphs.closed_groups(kinds.prefix(K).matrix(N)) == [list(range(K))]
    assert graphs.closed_groups(graphs.packed_documents([4, 5])) == [[0], [4]]


def test_bounds_by_hand():
    assert np.exp(forgetting_sharp(2, 4, 1, 0.1, 3)) == pytest.approx([0.8, 0.64])
    assert np.exp(forgetting(2, 4, 1, 0.1, 3)) == pytest.approx([0.9, 0.72])
    assert never_exceeded(worst_windows(5, 0.99), graphs.log_window_bound)
    assert not never_exceeded(worst_windows(5, 0.99), lambda *x: graphs.log_window_bound(*x) - 1)


def test_numbers_in_tens():
    assert in_tens(3.46e-7, 1) == "3.5·10⁻⁷" and in_tens(2e11) == "2·10¹¹"

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import rollout_matrix
from posbias.rollout import masks
from posbias.rollout.influence import rollout_history
from studies.theorems import graphs

SIZES = st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, n)))


def random_graph(n, seed):
    return (np.random.default_rng(seed).random((n, n)) < 0.3) | np.eye(n, dtype=bool)


def by_powers(allowed):
    """Oracle of the distances: the first power of the graph in which an entry appears."""
    n = len(allowed)
    distances, power = np.where(np.eye(n, dtype=bool), 0.0, np.inf), np.eye(n, dtype=bool)
    for hops in range(1, n):
        power = (power.astype(int) @ allowed.astype(int)) > 0
        distances[power & np.isinf(distances)] = hops
    return distances


@given(st.integers(1, 9), st.integers(0, 200))
def test_distances_and_centres_agree_with_powers_of_the_graph(n, seed):
    allowed = random_graph(n, seed)
    distances = graphs.hop_distances(allowed)
    assert (distances == by_powers(allowed)).all()
    assert graphs.centre_nodes(allowed).tolist() == [j for j in range(n) if np.isfinite(by_powers(allowed)[:, j]).all()]


@given(st.integers(1, 9), st.integers(0, 200))
def test_there_is_a_centre_exactly_if_one_group_is_closed(n, seed):
    allowed = random_graph(n, seed)
    groups, centre = graphs.closed_groups(allowed), graphs.centre_nodes(allowed).tolist()
    assert centre == (groups[0] if len(groups) == 1 else [])
    for group in groups:  # closed: nobody in it attends to anybody outside
        outside = np.setdiff1d(np.arange(n), group)
        assert not allowed[np.ix_(group, outside)].any()


def test_graphs_by_hand():
    assert graphs.centre_nodes(masks.causal().matrix(3)).tolist() == [0]
    assert graphs.centre_nodes(masks.sliding_window(1).matrix(3)).tolist() == []
    assert graphs.centre_nodes(masks.full().matrix(2)).tolist() == [0, 1]
    assert graphs.closed_groups(graphs.packed_documents([2, 1])) == [[0], [2]]
    assert graphs.hop_distances(masks.prefix(2).matrix(3)).tolist() == [[0, 1, np.inf], [1, 0, np.inf], [1, 1, 0]]


@given(SIZES, st.floats(0.01, 0.4))
def test_the_jump_bound_is_attained(size, epsilon):
    n, w = size
    A = (1 - epsilon) * np.eye(n)
    A[np.arange(n), np.maximum(np.arange(n) - (w - 1), 0)] += epsilon
    P = rollout_matrix(A, np.ones(6))
    for j in range(2, n + 1):
        assert P[-1, j - 1 :].sum() == pytest.approx(np.exp(graphs.log_jump_bound(6, n, w, epsilon, j)[-1]), rel=1e-9)


GRAPHS = st.sampled_from([masks.causal(), masks.sliding_window(2), masks.prefix(2), masks.full()])


@given(GRAPHS, st.floats(0.01, 0.19), st.integers(0, 4), st.sampled_from(["largest", "smallest"]))
def test_the_extremes_are_attained(mask, epsilon, key, which):
    """Oracle: kernels built row by row, then multiplied by the library."""
    allowed, kernels = mask.matrix(5), []
    column = np.eye(5)[:, key]
    for _ in range(4):
        A = epsilon * allowed
        for i in range(5):
            among = np.flatnonzero(allowed[i])
            pick = among[(np.argmax if which == "largest" else np.argmin)(column[among])]
            A[i, pick] += 1 - A[i].sum()
        kernels.append(A)
        column = A @ column
    P = rollout_history(np.stack(kernels), np.ones(4))[-1]
    assert np.allclose(P[:, key], graphs.extreme_influence(allowed, epsilon, 4, which)[-1, :, key])

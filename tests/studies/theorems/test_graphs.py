import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, rollout_matrix
from posbias.rollout import masks
from studies.theorems.graphs import (
    centre_nodes,
    closed_groups,
    hop_distances,
    log_block_bound,
    log_jump_bound,
    log_window_bound,
    mask_graph,
    packed_documents,
    window_hops,
)

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
    distances = hop_distances(allowed)
    assert (distances == by_powers(allowed)).all()
    assert centre_nodes(allowed).tolist() == [j for j in range(n) if np.isfinite(by_powers(allowed)[:, j]).all()]


@given(st.integers(1, 9), st.integers(0, 200))
def test_there_is_a_centre_exactly_if_one_group_is_closed(n, seed):
    allowed = random_graph(n, seed)
    groups, centre = closed_groups(allowed), centre_nodes(allowed).tolist()
    assert centre == (groups[0] if len(groups) == 1 else [])
    for group in groups:  # closed: nobody in it attends to anybody outside
        outside = np.setdiff1d(np.arange(n), group)
        assert not allowed[np.ix_(group, outside)].any()


@given(st.integers(1, 8), st.integers(0, 50))
def test_the_walk_ends_in_the_closed_groups(n, seed):
    allowed = random_graph(n, seed)
    P = rollout_matrix(attention_kernel(np.zeros((n, n)), allowed), np.ones(4000))
    assert P[:, sum(closed_groups(allowed), [])].sum(axis=1) == pytest.approx(1, abs=1e-6)


def test_graphs_by_hand():
    assert centre_nodes(mask_graph(masks.causal(), 3)).tolist() == [0]
    assert centre_nodes(mask_graph(masks.sliding_window(1), 3)).tolist() == []
    assert centre_nodes(mask_graph(masks.full(), 2)).tolist() == [0, 1]
    assert closed_groups(packed_documents([2, 1])) == [[0], [2]]
    assert hop_distances(mask_graph(masks.prefix(2), 3)).tolist() == [[0, 1, np.inf], [1, 0, np.inf], [1, 1, 0]]


@given(SIZES)
def test_window_hops_is_the_distance_of_the_last_token_from_the_first(size):
    n, w = size
    assert window_hops(n, w) == hop_distances(mask_graph(masks.sliding_window(w), n))[-1, 0]


@given(SIZES, st.integers(0, 1000))
def test_window_bounds_hold_for_random_kernels(size, seed):
    (n, w), T = size, 25
    rng = np.random.default_rng(seed)
    mask = masks.sliding_window(w)
    kernels = attention_kernel(rng.normal(size=(T, n, n)) * rng.uniform(0, 1.5), mask)
    epsilon, P = float(kernels[:, mask.matrix(n)].min()), np.eye(n)
    columns, tails = np.empty((T, n)), np.empty((T, n))
    for t in range(T):
        P = kernels[t] @ P
        columns[t], tails[t] = P.max(axis=0), P[:, ::-1].cumsum(axis=1)[:, ::-1].max(axis=0)
    for j in range(2, n + 1):
        printed, blocks = log_window_bound(T, n, w, epsilon, j), log_block_bound(T, n, w, epsilon, j)
        jumps = log_jump_bound(T, n, w, epsilon, j)
        assert printed[0] < 0  # the constant C is below 1
        assert (columns[:, j - 1] <= np.exp(printed) + 1e-12).all()
        assert (columns[:, j - 1] <= np.exp(blocks) + 1e-12).all()
        assert (tails[:, j - 1] <= np.exp(jumps) + 1e-12).all()


@given(SIZES, st.floats(0.01, 0.4))
def test_the_jump_bound_is_attained(size, epsilon):
    n, w = size
    A = (1 - epsilon) * np.eye(n)
    A[np.arange(n), np.maximum(np.arange(n) - (w - 1), 0)] += epsilon
    P = rollout_matrix(A, np.ones(6))
    for j in range(2, n + 1):
        assert P[-1, j - 1 :].sum() == pytest.approx(np.exp(log_jump_bound(6, n, w, epsilon, j)[-1]), rel=1e-9)


def test_bounds_by_hand():
    """n = 3, w = 2: M = 2, ε = 1/4, c = 1/16."""
    assert np.exp(log_block_bound(4, 3, 2, 0.25, 3)).tolist() == pytest.approx([1, 7 / 8, 7 / 8, 49 / 64])
    assert np.exp(log_jump_bound(2, 3, 2, 0.25, 2)).tolist() == pytest.approx([1, 15 / 16])
    C = max(np.sqrt(15 / 16), 3 / 4)
    assert np.exp(log_window_bound(2, 3, 2, 0.25, 3)).tolist() == pytest.approx([C, C * (7 / 8) ** 0.25])


@pytest.mark.parametrize(
    "call",
    [
        lambda: mask_graph(masks.sliding_window(4), 3),
        lambda: mask_graph(masks.prefix(4), 3),
        lambda: mask_graph(masks.sliding_window(0), 3),
        lambda: mask_graph(masks.causal(), 0),
        lambda: window_hops(5, 1),
        lambda: window_hops(5, 6),
        lambda: window_hops(1, 2),
        lambda: packed_documents([2, 0]),
        lambda: hop_distances(np.zeros((2, 2), dtype=bool)),
        lambda: log_window_bound(3, 5, 3, 0.5, 2),
        lambda: log_block_bound(3, 5, 3, 0.0, 2),
        lambda: log_jump_bound(3, 5, 3, 0.2, 1),
        lambda: log_jump_bound(3, 5, 3, 0.2, 6),
        lambda: log_jump_bound(3, 5, 3, 1.2, 2),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="expected .* received"):
        call()

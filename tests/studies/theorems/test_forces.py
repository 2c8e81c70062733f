import ast
from dataclasses import replace

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from bookkit.chapters import read_markdown
from posbias import (
    attention_kernel,
    dominates,
    influence_profile,
    is_monotone,
    monotone_rearrangement,
    residual_kernel,
    rollout_matrix,
    structured_kernels,
)
from posbias.rollout import masks, schedules
from posbias.rollout.influence import influence_history
from posbias.rollout.untrained import untrained_profile
from studies.theorems.forces import (
    HYPOTHESES,
    add_diagonal,
    case_drifts,
    case_rollouts,
    diagonal_keeps_order,
    last_rows,
    lemmas_hold,
    mean_kernel,
    random_cases,
    recency_drift,
    sort_stacks,
    trough_map,
    value_influence,
)


@given(st.integers(0, 1000))
def test_a_drift_is_not_negative_exactly_if_the_later_profile_dominates(seed):
    p, q = np.random.default_rng(seed).dirichlet(np.ones(4), size=2)
    assert (recency_drift(p, q) >= -1e-12) == dominates(q, p)


def test_the_smallest_fall_over_all_rows_counts():
    rows = np.array([[0.5, 0.5], [0.2, 0.8]])
    assert recency_drift(rows, np.array([[0.1, 0.9], [0.3, 0.7]])) == pytest.approx(-0.1)
    history = influence_history(structured_kernels(3), [0.5] * 3, 5)
    assert recency_drift(history[1:], history[:-1]) >= -1e-12 and recency_drift(history[:-1], history[1:]) < -0.1


def test_the_mean_is_taken_over_every_leading_axis_after_the_softmax():
    logits = np.random.default_rng(0).normal(size=(2, 3, 4, 4))
    kernels = attention_kernel(logits, masks.causal())
    assert np.allclose(mean_kernel(logits, masks.causal()), sum(kernels[a, b] for a in range(2) for b in range(3)) / 6)
    assert not np.allclose(
        mean_kernel(logits, masks.causal()), attention_kernel(logits.mean(axis=(0, 1)), masks.causal())
    )


def test_the_map_is_the_trough_of_each_profile():
    from posbias import u_shape

    slopes, tau = np.array([[0.1, 0.5], [1.0, 2.0]]), np.array([0.3, 2.0])
    depth, location = trough_map(20, 4, tau, slopes)
    for line, own in enumerate(slopes):
        for column, total in enumerate(tau):
            p = influence_profile(structured_kernels(4, slope=own), schedules.constant(4, total / 4), 20)
            shape = u_shape(p)
            assert depth[line, column] == pytest.approx(shape.depth)
            assert location[line, column] == shape.location


def random_stacks(seed, cases=3, T=4, n=5):
    rng = np.random.default_rng(seed)
    return attention_kernel(rng.normal(size=(cases, T, n, n)), masks.causal()), rng.uniform(size=(cases, T))


@given(st.integers(0, 1000))
def test_every_case_is_the_rollout_of_its_own_kernels(seed):
    A, lambdas = random_stacks(seed)
    P, rows = case_rollouts(A, lambdas), last_rows(A, lambdas)
    assert (P[:, 0] == np.eye(5)).all()
    for case, mixing in enumerate(lambdas):
        for t in range(1, 5):
            assert np.allclose(P[case, t], rollout_matrix(A[case, :t], mixing[:t], 5), atol=1e-14)
        assert np.allclose(rows[case], influence_profile(A[case], mixing), atol=1e-14)


def test_one_stack_serves_all_schedules():
    A, lambdas = random_stacks(0)
    assert np.allclose(last_rows(A[0], lambdas), last_rows(np.stack([A[0]] * 3), lambdas))


def test_two_layers_by_hand():
    A = np.array([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 0.5]]]])
    # R_1 row 2 is (1/2, 1/2); R_2 row 2 is (1/4, 3/4): 1/4 + 3/8 and 3/8
    assert np.allclose(last_rows(A, np.array([[0.5, 0.5]])), [[0.625, 0.375]])


@given(st.integers(0, 1000))
def test_every_kernel_is_sorted_on_its_own(seed):
    A, _ = random_stacks(seed)
    for case in range(3):
        for t in range(4):
            assert np.allclose(sort_stacks(A)[case, t], monotone_rearrangement(A[case, t]), atol=1e-15)


@given(st.integers(0, 1000))
def test_the_drift_of_all_cases_is_the_least_of_the_cases(seed):
    before, after = np.random.default_rng(seed).dirichlet(np.ones(4), size=(2, 6, 3))
    drifts = case_drifts(before, after)
    assert drifts.tolist() == [recency_drift(*pair) for pair in zip(before, after, strict=True)]


SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])
SHAPES = [masks.causal(), masks.sliding_window(2), masks.full()]


@given(st.integers(0, 1000), st.sampled_from(SHAPES))
def test_the_lemmas_hold_where_their_hypotheses_do(seed, mask):
    held = lemmas_hold(random_cases(20, 5, mask, np.random.default_rng(seed)))
    assert all(where.all() for where in held.values())


@given(st.integers(0, 1000), st.sampled_from(SHAPES))
def test_cases_meet_the_hypotheses_that_are_not_dropped(seed, mask):
    for dropped in (None, *HYPOTHESES):
        drawn = random_cases(8, 5, mask, np.random.default_rng(seed), dropped)
        assert dropped == "A monotone" or all(map(is_monotone, drawn.A))
        assert dropped == "μ ⪯ ν" or all(map(dominates, drawn.nu, drawn.mu))
        assert dropped == "λ ≤ 1" or drawn.lambda_.max() <= 1
        assert dropped == "rows ordered" or all(map(dominates, drawn.A.reshape(-1, 5), drawn.earlier.reshape(-1, 5)))
        assert dropped == "f decreasing" or (np.diff(drawn.f) <= 0).all()


@pytest.mark.parametrize("dropped", HYPOTHESES)
def test_a_dropped_hypothesis_is_noticed_by_the_lemmas_that_need_it_and_by_no_other(dropped):
    rng = np.random.default_rng(0)
    held = lemmas_hold(random_cases(300, 4, masks.full(), rng, dropped))
    if dropped == "λ ≤ 1":
        assert random_cases(300, 4, masks.full(), rng, dropped).lambda_.min() >= 1
    assert {lemma for lemma, where in held.items() if not where.all()} == set(HYPOTHESES[dropped])


def test_each_lemma_by_hand_on_two_tokens():
    drawn = random_cases(2, 2, masks.full(), np.random.default_rng(0))
    first, last = np.tile([1.0, 0.0], (2, 1)), np.tile([0.0, 1.0], (2, 1))
    swapped = replace(drawn, A=np.stack([SWAP, SWAP]), mu=first, nu=last, lambda_=np.array([0.9, 0.5]), f=first)
    held = lemmas_hold(replace(swapped, earlier=np.stack([np.eye(2), SWAP])))
    assert {lemma: where.tolist() for lemma, where in held.items()} == {
        "A.2": [False, False],
        "A.3": [False, True],  # with λ = 1/2 the swap becomes monotone
        "A.4": [True, True],  # e_1 I = (1, 0) is less recent than e_1 SWAP = (0, 1)
        "A.5": [False, False],
    }
    assert not is_monotone(residual_kernel(SWAP, 0.9)) and is_monotone(residual_kernel(SWAP, 0.5))


def test_a_diagonal_by_hand():
    assert np.allclose(add_diagonal(np.array([[1.0, 0.0], [0.2, 0.8]]), -np.log(4)), [[1, 0], [0.5, 0.5]])
    A = attention_kernel(np.arange(9.0).reshape(3, 3) % 5, masks.causal())
    assert np.allclose(add_diagonal(add_diagonal(A, 1.5), -1.5), A)
    stack = add_diagonal(np.stack([A, A]), np.array([1.5, -1.0]))
    assert np.array_equal(stack[0], add_diagonal(A, 1.5)) and np.array_equal(stack[1], add_diagonal(A, -1.0))


@given(st.integers(0, 1000), st.floats(-4, 4))
def test_the_rule_says_when_a_diagonal_breaks_monotonicity(seed, d):
    c = np.random.default_rng(seed).normal(size=6)
    A = attention_kernel(np.tile(c, (6, 1)), masks.causal())
    assert is_monotone(add_diagonal(A, d), tolerance=1e-14) == diagonal_keeps_order(c, d)


@pytest.mark.parametrize(
    ("c", "kept"), [([3.0, 0, 1, 2], True), ([0.0, 3, 0, 1], False), ([0.0, 1, 3, 0], False), ([0.0, 1, 2, 3], True)]
)
def test_the_first_token_may_be_as_popular_as_it_likes(c, kept):
    """Row 1 has nothing to lose: only drops from token 2 on break the order."""
    A = attention_kernel(np.tile(c, (4, 1)), masks.causal())
    assert diagonal_keeps_order(np.array(c), 1.0) == is_monotone(add_diagonal(A, 1.0)) == kept


def random_heads(seed, T=3, H=2, n=4):
    rng = np.random.default_rng(seed)
    return attention_kernel(rng.normal(scale=2, size=(T, H, n, n)), masks.causal()), rng


def jacobian_norms(A, W):
    """Multiply the layers' operators on all states at once."""
    (T, H, n, _), d = A.shape, W.shape[-1]
    P = np.eye(n * d)
    for t in range(T):
        P = (np.eye(n * d) + sum(np.kron(A[t, h], W[t, h]) for h in range(H))) @ P
    blocks = P.reshape(n, d, n, d)[-1].transpose(1, 0, 2)
    norms = np.linalg.norm(blocks, axis=(1, 2))
    return norms / norms.sum()


@given(st.integers(0, 1000))
def test_influence_is_the_norm_of_the_networks_jacobian(seed):
    A, rng = random_heads(seed)
    W = rng.normal(size=(3, 2, 3, 3))
    assert np.allclose(value_influence(A, W), jacobian_norms(A, W), atol=1e-12)


@given(st.integers(0, 1000))
def test_multiples_of_one_map_are_one_head_with_weighted_kernels(seed):
    A, rng = random_heads(seed)
    W, v = rng.normal(size=(3, 1, 3, 3)), rng.uniform(size=(3, 2, 1, 1))
    weighted = (v * A).sum(axis=1, keepdims=True) / v.sum(axis=1, keepdims=True)
    one = value_influence(weighted, v.sum(axis=1, keepdims=True) * W)
    assert np.allclose(value_influence(A, v * W), one, atol=1e-12)


@given(st.integers(0, 1000))
def test_multiples_of_the_identity_are_a_rollout(seed):
    A, rng = random_heads(seed)
    v = rng.uniform(size=(3, 1))
    W = np.broadcast_to(v[..., None, None] / 2 * np.eye(3), (3, 2, 3, 3))
    assert np.allclose(value_influence(A, W), influence_profile(A.mean(axis=1), v[:, 0] / (1 + v[:, 0])), atol=1e-12)


def test_independent_maps_by_enumerating_sets_of_layers_and_heads():
    A, _ = random_heads(5, T=2)
    v = np.array([[0.5, 1.5], [0.3, 0.8]])
    e = np.eye(4)[-1]
    squares = e.copy()
    for h in range(2):
        squares += v[0, h] ** 2 * A[0, h, -1] ** 2 + v[1, h] ** 2 * A[1, h, -1] ** 2
        for g in range(2):
            squares += (v[0, h] * v[1, g]) ** 2 * (e @ A[1, g] @ A[0, h]) ** 2
    assert np.allclose(untrained_profile(A, v), np.sqrt(squares) / np.sqrt(squares).sum(), atol=1e-14)


def check_of(stem, name, **known):
    """Return a function as a chapter defines it, with the names that it needs."""
    cells = [cell.source for cell in read_markdown(ROOT / "book" / f"{stem}.md").cells if cell.cell_type == "code"]
    code = ["".join(line for line in cell.splitlines(True) if line[:1] not in "%!:") for cell in cells]
    found = [x for cell in code for x in ast.parse(cell).body if isinstance(x, ast.FunctionDef) and x.name == name]
    exec(compile(ast.Module(found, []), stem, "exec"), known)
    return known[name]


def test_growth_with_depth_is_asked_of_the_first_layer_too():
    drifts = check_of("forces", "depth_drifts", case_rollouts=case_rollouts, case_drifts=case_drifts)
    ahead, causal = np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.5, 0.5]])
    assert drifts(np.array([[ahead], [causal]]), np.ones((2, 1))).tolist() == pytest.approx([-0.5, 0.0])
    assert drifts(np.array([[ahead, causal]]), np.array([[1.0, 0.0]])).tolist() == pytest.approx([-0.5])

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, dominates, is_monotone, residual_kernel
from posbias.rollout import masks
from studies.theorems.diagonal import add_diagonal, diagonal_keeps_order
from studies.theorems.order_lemmas import HYPOTHESES, lemmas_hold, random_cases

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


def test_an_unknown_hypothesis_is_refused():
    with pytest.raises(ValueError, match="dropped: expected A monotone, .* received luck"):
        random_cases(1, 3, masks.full(), np.random.default_rng(0), "luck")


def test_a_diagonal_by_hand():
    assert np.allclose(add_diagonal(np.array([[1.0, 0.0], [0.2, 0.8]]), -np.log(4)), [[1, 0], [0.5, 0.5]])
    A = attention_kernel(np.arange(9.0).reshape(3, 3) % 5, masks.causal())
    assert np.allclose(add_diagonal(add_diagonal(A, 1.5), -1.5), A)
    stack = add_diagonal(np.stack([A, A]), np.array([1.5, -1.0]))
    assert np.array_equal(stack[0], add_diagonal(A, 1.5)) and np.array_equal(stack[1], add_diagonal(A, -1.0))
    with pytest.raises(ValueError, match="A: expected rows that sum to 1"):
        add_diagonal(np.ones((2, 2)), 0.0)


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

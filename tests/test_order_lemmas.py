from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, is_monotone
from posbias.rollout import masks
from posbias.theory.diagonal import add_diagonal, diagonal_keeps_order
from posbias.theory.order_lemmas import lemmas_hold, random_case

SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])


@given(st.integers(0, 1000), st.sampled_from([masks.causal(), masks.sliding_window(2), masks.full()]))
def test_the_lemmas_hold_where_their_hypotheses_do(seed, mask):
    assert all(lemmas_hold(random_case(5, mask, np.random.default_rng(seed))).values())


def test_each_lemma_can_be_contradicted():
    case = random_case(2, masks.full(), np.random.default_rng(0))
    swapped = replace(case, A=SWAP, mu=np.array([1.0, 0.0]), nu=np.array([0.0, 1.0]), lambda_=0.9)
    assert lemmas_hold(replace(swapped, earlier=np.eye(2))) == {"A.2": False, "A.3": False, "A.4": True, "A.5": False}
    assert not lemmas_hold(replace(case, A=np.tile([1.0, 0.0], (2, 1)), earlier=np.eye(2), mu=case.nu))["A.4"]


def test_a_diagonal_by_hand():
    assert np.allclose(add_diagonal(np.array([[1.0, 0.0], [0.2, 0.8]]), -np.log(4)), [[1, 0], [0.5, 0.5]])
    A = attention_kernel(np.arange(9.0).reshape(3, 3) % 5, masks.causal())
    assert np.allclose(add_diagonal(add_diagonal(A, 1.5), -1.5), A)
    with pytest.raises(ValueError, match="A: expected rows that sum to 1"):
        add_diagonal(np.ones((2, 2)), 0.0)


@given(st.integers(0, 1000), st.floats(-4, 4))
def test_the_rule_says_when_a_diagonal_breaks_monotonicity(seed, d):
    c = np.random.default_rng(seed).normal(size=6)
    A = attention_kernel(np.tile(c, (6, 1)), masks.causal())
    assert is_monotone(add_diagonal(A, d), tolerance=1e-14) == diagonal_keeps_order(c, d)

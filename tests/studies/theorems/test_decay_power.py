from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias import attention_kernel, position_logits, rollout_matrix
from posbias.rollout import masks
from posbias.rollout.clock import hop_distribution
from posbias.rollout.influence import rollout_history
from studies.theorems.decay_power import (
    complete_homogeneous,
    decay_diagonal,
    exact_decay_kernel,
    exact_powers,
    exact_product,
    mixed_power_row,
    power_row,
)


@given(st.lists(st.fractions(0, 3, max_denominator=9), min_size=1, max_size=5), st.integers(0, 5))
def test_the_polynomials_are_sums_over_multisets(values, degree):
    def product(chosen):
        return np.prod([Fraction(1), *chosen])

    expected = [sum(map(product, combinations_with_replacement(values, k))) for k in range(degree + 1)]
    assert complete_homogeneous(values, degree) == expected


def test_two_tokens_by_hand():
    """q = 1/2: rows (1, 0) and (1/3, 2/3); the second power keeps (2/3)² on the second token."""
    A = exact_decay_kernel(2, Fraction(1, 2))
    assert A[1] == [Fraction(1, 3), Fraction(2, 3)]
    assert exact_powers(A, 2)[1][1] == [Fraction(5, 9), Fraction(4, 9)]
    assert A[1][0] * complete_homogeneous([A[0][0], A[1][1]], 1)[1] == Fraction(5, 9)


@given(
    st.integers(1, 6),
    st.integers(1, 5),
    st.fractions(Fraction(1, 20), 1, max_denominator=20),
    st.lists(st.fractions(Fraction(1, 9), 4, max_denominator=9), min_size=6, max_size=6),
)
def test_the_closed_form_is_exact_in_rationals(n, T, q, keys):
    A = exact_decay_kernel(n, q, keys[:n])
    own = [A[j][j] for j in range(n)]
    for t, P in enumerate(exact_powers(A, T)):
        for i in range(n):
            for j in range(i + 1):
                assert P[i][j] == A[i][j] * complete_homogeneous(own[j : i + 1], t)[t]


@given(st.integers(1, 30), st.integers(1, 20), st.floats(0, 3))
def test_rows_of_powers_against_the_product(n, T, slope):
    A = attention_kernel(position_logits(n, slope), masks.causal())
    assert decay_diagonal(n, slope) == pytest.approx(np.diag(A))
    found = power_row(A[-1], np.diag(A), T)
    expected = rollout_history(np.broadcast_to(A, (T, n, n)), np.ones(T))[1:, -1]
    assert found == pytest.approx(expected, rel=1e-12, abs=0)


def test_a_row_with_residuals_is_that_of_the_rollout():
    n, lambdas = 12, np.array([0.1, 0.7, 0.4])
    A = attention_kernel(position_logits(n, 0.2), masks.causal())
    found = mixed_power_row(A[-1], np.diag(A), hop_distribution(lambdas))
    assert found == pytest.approx(rollout_matrix(np.broadcast_to(A, (3, n, n)), lambdas)[-1], rel=1e-12)
    assert mixed_power_row(A[-1], np.diag(A), np.ones(1)).tolist() == np.eye(n)[-1].tolist()


def test_content_of_query_and_key_together_breaks_the_form():
    A = [[Fraction(1), 0, 0], [Fraction(1, 2), Fraction(1, 2), 0], [Fraction(1, 6), Fraction(1, 2), Fraction(1, 3)]]
    own = [A[j][j] for j in range(3)]
    assert exact_powers(A, 2)[1][2][0] != A[2][0] * complete_homogeneous(own, 1)[1]
    assert exact_product(A, A) == exact_powers(A, 2)[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: complete_homogeneous([1], -1),
        lambda: exact_decay_kernel(2, Fraction(0)),
        lambda: exact_decay_kernel(2, Fraction(1), [Fraction(1)]),
        lambda: exact_powers([[1]], 0),
        lambda: power_row(np.array([-0.1, 1.0]), np.ones(2), 1),
        lambda: power_row(np.ones(2), np.ones(2), 0),
        lambda: decay_diagonal(3, -1.0),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="expected .* received"):
        call()

"""What the checks of norms count, by hand."""

from fractions import Fraction

import numpy as np
import pytest

from studies.norms import layernorm as theory
from studies.norms.exact_checks import falls, flat_and_rising, residual_kernel, with_cross_term
from studies.norms.trained import counts, none_less, sizes


def test_sizes_are_more_less_or_open():
    rng = np.random.default_rng(0)
    changes = {"far": np.full(20, -0.3), "near": np.full(20, -0.01), "noisy": -0.1 + rng.standard_normal(20)}
    limit = dict.fromkeys(changes, -0.1)
    assert sizes(changes, limit) == ["more", "less", "open"]
    assert counts(changes, limit) == {"more": 1, "less": 1, "open": 1} and not none_less(changes, limit)
    assert none_less({"far": changes["far"]}, {"far": -0.1})


def test_one_larger_weight_is_noticed_in_rational_numbers():
    R = residual_kernel(4, Fraction(1, 2), Fraction(1, 3))
    assert all(sum(row) == 1 for row in R) and flat_and_rising(R, Fraction(1, 5))
    R[-1, 0] *= 2
    assert not flat_and_rising(R, Fraction(1, 5))


def test_the_cross_term_is_that_of_the_closed_form():
    assert with_cross_term(1)(5, 0.3, 0.4, 0.6) == pytest.approx(theory.inverse_norms(5, 0.3, 0.4, 0.6))
    assert with_cross_term(0)(5, 0.3, 0.4, 0.6)[1] > theory.inverse_norms(5, 0.3, 0.4, 0.6)[1]


def test_falling_means_every_step_of_every_layer():
    S = -np.tile(np.arange(4.0), (4, 4, 1))
    assert falls(S) and falls(S, 1, 4)
    S[2, 3, 1] = 0  # layer 3: as large as the first
    assert not falls(S) and falls(S, 4, 4)

"""Long prompts, and the bound on heads of which half are uniform; the chapter notices what else is wrong."""

import numpy as np
import pytest
from scipy.special import hyp0f1

from studies.clock.trough import _inverse_bessel, critical_mixing, falling_ratio


@pytest.mark.parametrize("c", [711.0, 1e6])
def test_long_prompts_need_no_exponential_of_their_length(c):
    # at u = c the end stands e^c / 2 higher, and log 0F1(; 2; y) is y^(1/2) 2 - (3/4) log y - log(4 π) / 2 for large y
    level = c - np.log(2)
    root = (level + 1.5 * np.log(level / 2) + np.log(4 * np.pi) / 2) / 2
    assert critical_mixing(c) == pytest.approx(root**2 / c, rel=5e-3)
    assert critical_mixing(c) > critical_mixing(0.99 * c)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("c", [100.0, 1e5])
def test_bound_for_half_uniform_heads_and_a_steep_one(c):
    # A(y, x) = 1/(2y) + (c/2) e^{-c(y - x)}, and f_2 by the trapezoidal rule, fine where y is close to 1 or to x
    x = 1 - np.geomspace(1e-3, 0.9 * c, 2000) / c
    gap, two = -np.expm1(-c * (1 - x)) * c / 2, np.empty(x.size)
    for k, place in enumerate(x):
        y = 1 - (1 - place) * (1 + np.tanh(np.linspace(-12, 12, 4001))) / 2
        first = 0.5 + 0.5 * c * np.exp(-c * (1 - y))
        second = 0.5 / y + 0.5 * c * np.exp(-c * (y - place))
        two[k] = np.trapezoid((first * second)[::-1], y[::-1])
    assert falling_ratio([0.0, c]) == pytest.approx((gap / two).max(), rel=2e-3)


def test_the_inverse_of_the_bessel_function_is_exact():
    level = np.geomspace(1e-3, 300, 50)
    np.testing.assert_allclose(np.log(hyp0f1(2, _inverse_bessel(level))), level, rtol=1e-11)

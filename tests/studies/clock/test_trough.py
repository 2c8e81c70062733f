import numpy as np
import pytest
from scipy.integrate import quad

from posbias import structured_kernels, u_shape
from posbias.rollout.clock import hop_distribution, poisson_distribution, uniform_clock_density
from studies.clock.hops import hop_rows, mix_hops
from studies.clock.trough import (
    critical_mixing,
    falling_ratio,
    limit_density,
    limit_trough,
    rising_ratio,
)


def clock_shape(c, tau, n=1024, weights=None, tolerance=0.0):
    kernels = structured_kernels(1, slope=np.atleast_1d(c) / n, weights=weights)
    return u_shape(mix_hops(hop_rows(kernels, 70, n), poisson_distribution(tau)), tolerance=tolerance)


def test_two_hops_by_hand():
    # c = log 2: s = 2^x - 1, so that one hop has the density log 2 · 2^x and two hops that times -log s
    x, omega = np.array([0.25, 1.0]), [0.2, 0.5, 0.3]
    expected = np.log(2) * 2**x * (0.5 - 0.3 * np.log(2**x - 1))
    assert limit_density(x, np.log(2), omega) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("c", [0.3, 9.0])
def test_density_and_atom_hold_all_influence_and_no_slope_gives_the_bessel_law(c):
    omega = hop_distribution([0.6, 0.3, 0.2, 0.2])
    inside = quad(lambda x: limit_density(np.array([x]), c, omega)[0], 0, 1, limit=200)[0]
    assert inside + omega[0] == pytest.approx(1, abs=1e-6)
    x = np.linspace(0.01, 0.99, 50)
    assert limit_density(x, 1e-9, poisson_distribution(2.0)) == pytest.approx(uniform_clock_density(x, 2.0), rel=1e-6)


@pytest.mark.parametrize(("c", "tau"), [(1.0, 0.9), (12.0, 4.0)])
def test_lowest_point_is_that_of_a_fine_grid(c, tau):
    omega = poisson_distribution(tau)
    x = np.linspace(1e-3, 1, 100_001)
    f = limit_density(x, c, omega)
    found = limit_trough(c, omega)
    assert found.location == pytest.approx(x[f.argmin()], abs=2e-5)
    assert found.depth == pytest.approx(1 - f.min() / f[-1], abs=1e-9)
    shape = clock_shape(c, tau, n=2048)
    assert shape.location == pytest.approx(found.location, abs=0.002)
    assert shape.depth == pytest.approx(found.depth, abs=0.005)


def test_one_slope_below_log_4_has_its_critical_mixing_where_the_end_turns():
    for c in (0.05, 1.0, 1.38):
        assert critical_mixing(c) == pytest.approx(-2 * np.expm1(-c), rel=1e-5)
    assert critical_mixing(1.45) > -2 * np.expm1(-1.45) * (1 + 1e-5)


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
@pytest.mark.parametrize("c", [0.3, 2.0, 20.0])
def test_there_is_a_u_below_the_critical_mixing_and_none_above(c, tolerance):
    critical = critical_mixing(c, tolerance)
    below, above = (clock_shape(c, factor * critical, tolerance=tolerance) for factor in (0.97, 1.03))
    assert below.present and not above.present


def test_a_hump_at_the_end_has_an_interior_minimum_and_is_no_u():
    # above its critical mixing but past c = log 4: the density falls, rises, and falls again below its lowest point
    found = limit_trough(4.0, poisson_distribution(2.7))
    assert found.depth < 0
    f = limit_density(np.array([found.location, 0.8, 1.0]), 4.0, poisson_distribution(2.7))
    assert f[1] > f[0] > f[2]
    assert limit_trough(1.2, poisson_distribution(1.6)) is None


def test_end_turns_at_the_rising_ratio():
    c, weights, n = np.array([0.0, 2.0, 9.0]), np.array([0.5, 0.2, 0.3]), 4096
    kernels = structured_kernels(1, slope=np.maximum(c, 1e-12) / n, weights=weights)
    rows = hop_rows(kernels, 70, n)
    for factor, rises in ((0.97, True), (1.03, False)):
        p = mix_hops(rows, poisson_distribution(2 * factor * rising_ratio(c, weights)))
        assert (p[-2] > p[-3]) == rises
    assert rising_ratio([3.0]) == pytest.approx(-np.expm1(-3))


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

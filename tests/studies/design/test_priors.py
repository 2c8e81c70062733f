"""Limits of scale-free kernels against the engine, the flat kernel's closed forms, kernels for wanted profiles."""

import numpy as np
import pytest
from scipy.special import exp1, hyp1f1
from scipy.stats import gamma

from posbias import normalised_wasserstein
from posbias.rollout.clock import hop_distribution
from posbias.rollout.influence import influence_profile
from posbias.rollout.position_bias import FlatBias, LogBias, RatioBias, described
from posbias.rollout.structured import biased_kernels
from posbias.rollout.untrained import untrained_profile
from studies.design.priors import (
    Target,
    kernel_for,
    levy_masses,
    nearest_reachable,
    nearest_to_uniform,
    reached,
)
from studies.design.scale_free import (
    flat_distance,
    jump_tail,
    limit_distribution,
    limit_profile,
)
from studies.untrained.limits import last_share_bounds

X = np.linspace(0.02, 0.98, 49)
LAMBDA = np.array([0.3, 0.1, 0.4, 0.25])
STEPS = RatioBias((0.2, 0.5, 0.9, 2.0), (0.0, 1.5, -0.5, 0.3))


def at(p, x):
    """Return Σ_{j ≤ xn} p_j, straight between positions."""
    return np.interp(x * p.size, np.arange(p.size + 1), np.append(0.0, p.cumsum()))


@pytest.mark.parametrize("bias", [LogBias(1.4), LogBias(-0.5), FlatBias(2.0), STEPS])
def test_a_jump_is_what_one_row_of_the_kernel_makes(bias):
    n, s = 2001, np.array([0.0, 0.1, 0.3, 0.7, 1.5, 2.5])
    row = biased_kernels(1, described(bias)).dense(0, n)[-1]
    ratio = np.arange(1, n + 1) / n
    rows = np.array([row[-np.log(ratio) >= at_least].sum() for at_least in s])
    atol = 0.03 if isinstance(bias, LogBias) and bias.alpha < 0 else 5e-3
    np.testing.assert_allclose(jump_tail(bias, s), rows, atol=atol)


def test_a_steep_and_hidden_bias_stays_finite():
    hidden = RatioBias((0.0, 0.1, 0.1 + 1e-9, 3.0), (-1e4, -1e4, 0.0, 0.0))  # e^-s on s > 0.1
    np.testing.assert_allclose(jump_tail(hidden, np.array([0.0, 0.05, 0.6])), [1, 1, np.exp(-0.5)], rtol=1e-6)


def test_weights_in_proportion_to_powers_need_an_exponent_above_minus_one():
    n = 10**6
    for alpha in (-0.3, -0.5, -0.7):  # key 1 has (α+1) n^-(α+1), more than any multiple of 1 / n
        first = influence_profile(biased_kernels(1, {"kind": "log", "alpha": alpha}), np.ones(1), n)[0]
        assert first * n ** (alpha + 1) == pytest.approx(alpha + 1, rel=0.02)
    for n in (250, 2000):  # with 1 / j what is within a factor e of the query is 1 / (log n + γ): no limit
        row = biased_kernels(1, described(RatioBias((0.0, 20.0), (0.0, 20.0)))).dense(0, n)[-1]
        assert row[int(n / np.e) :].sum() * (np.log(n) + np.euler_gamma) == pytest.approx(1, abs=3 / n)
    with pytest.raises(ValueError, match="above -1"):
        LogBias(-1.0)


def test_the_law_of_log_weights_is_a_mixture_of_gamma_laws():
    kernels, omega = biased_kernels(4, {"kind": "log", "alpha": 1.4}), hop_distribution(LAMBDA)
    hops = np.arange(1, omega.size)
    expected = gamma.sf(-np.log(X)[:, None], hops, scale=1 / 2.4) @ omega[1:]
    np.testing.assert_allclose(limit_distribution(kernels, LAMBDA, X), expected, atol=1e-7)


@pytest.mark.parametrize("bias", [LogBias(-0.3), FlatBias(0.95), STEPS])
def test_the_engine_tends_to_the_law(bias):
    kernels = biased_kernels(4, described(bias))
    law = limit_distribution(kernels, LAMBDA, X)
    sizes = (2000, 8000) if bias is not STEPS else (500, 2000)
    off = [np.abs(at(influence_profile(kernels, LAMBDA, n), X) - law).max() for n in sizes]
    assert off[0] < 1.2e-2 and off[1] < 0.5 * off[0]


def test_heads_are_a_mixture_and_layers_commute_in_the_limit():
    rows = [[{"kind": "none"}, {"kind": "log", "alpha": 3.0}], [{"kind": "flat", "tau": 1.0}] * 2]
    kernels = [biased_kernels(4, [*order, *order]) for order in (rows, rows[::-1])]
    same = np.full(4, 0.3)
    laws = [limit_distribution(one, same, X) for one in kernels]
    np.testing.assert_allclose(*laws, atol=1e-12)
    found = [at(influence_profile(kernels[0], same, n), X) for n in (500, 4000)]
    off = [np.abs(p - laws[0]).max() for p in found]
    assert off[1] < 2e-3 < 8 * off[0] and off[1] < 0.3 * off[0]


def test_many_small_layers_of_two_kernels_are_one_of_their_mixture():
    two = [[{"kind": "none"}], [{"kind": "log", "alpha": 3.0}]]
    mixed = [{"kind": "none"}, {"kind": "log", "alpha": 3.0}]
    exact = limit_distribution(biased_kernels(1, mixed, weights=[0.25, 0.75]), np.array([1.0]), X, poisson=True)
    off = []
    for T in (20, 80):
        schedule = np.tile([0.5, 1.5], T // 2) / T
        off.append(np.abs(limit_distribution(biased_kernels(T, two * (T // 2)), schedule, X) - exact).max())
        assert off[-1] < schedule @ -np.expm1(-schedule)  # Le Cam's bound
    assert off[0] / off[1] == pytest.approx(4, rel=0.1)


def test_a_limit_profile_sums_to_one_and_keeps_its_atom():
    p = limit_profile(biased_kernels(4, described(STEPS)), LAMBDA, 50)
    assert p.sum() == pytest.approx(1, abs=1e-12) and p.min() >= 0
    assert p[-1] == pytest.approx(np.prod(1 - LAMBDA), abs=0.02)


@pytest.mark.parametrize("tau", [1e-3, 1.0, 4.8, 30.0])
def test_the_flat_kernel_is_within_half_of_the_atom(tau):
    scaled = flat_distance(tau) * np.exp(tau)
    # From 17 on the ratio is its limit to the rounding of a double.
    assert 0.5 * np.exp(-np.euler_gamma) * (1 - 1e-9) <= scaled < 0.5


def test_the_flat_kernels_distance_is_that_of_its_law_and_of_its_mean():
    tau, x = 2.4, (np.arange(20000) + 0.5) / 20000
    kernels = biased_kernels(3, {"kind": "flat", "tau": tau})
    law = limit_distribution(kernels, np.full(3, 0.8), x, poisson=True)
    assert np.abs(law - x).mean() == pytest.approx(flat_distance(tau), abs=3e-5)
    assert (law <= x + 1e-6).all()
    mean = np.exp(-tau + exp1(2 * FlatBias(tau).cutoff))
    assert mean - 0.5 == pytest.approx(flat_distance(tau), rel=1e-12)


UNIFORM = Target(0.1, lambda x: x)
HOLE = Target(0.1, lambda x: np.interp(x, [0, 0.4, 0.6, 1], [0, 0.5, 0.5, 1]))
REACHABLE = {
    "past": Target(0.2, lambda x: 0.2 * x**0.6 + 0.8 * x),
    "U": Target(0.1, lambda x: 0.5 * x**0.7 + 0.5 * x**6),
    "nearest to uniform": nearest_to_uniform(0.1),
}


def test_levy_masses_of_a_power_are_frullani_densities():
    b, a = 2.0, 0.3
    nu, h = levy_masses(Target(a, lambda x: x**b), 8.0, 4000)
    s = h * np.arange(1, 4001)
    density = (np.exp(-b * s) - np.exp(-b * s / a)) / s
    np.testing.assert_allclose(nu / h, density, atol=2e-3 * density.max())
    assert nu.sum() == pytest.approx(-np.log(a) - density[0] * h / 2, abs=2e-3)


def test_every_mixture_of_powers_has_a_levy_density_and_roots_of_any_order():
    rng = np.random.default_rng(0)
    for _ in range(300):
        b = np.sort(rng.uniform(0.2, 5, rng.integers(1, 4)))
        w, a = rng.dirichlet(np.ones(b.size)), rng.uniform(0.05, 0.9)
        parts = [w[i] * b[i] * np.poly(-np.delete(b, i)) for i in range(b.size)]
        d = np.sort(-np.roots(np.polyadd(a * np.poly(-b), (1 - a) * np.sum(parts, axis=0))).real)
        assert (b < d).all() and (d[:-1] < b[1:]).all()
        target = Target(a, lambda x, w=w, b=b: (x[:, None] ** b) @ w)
        nu, h = levy_masses(target, 4.0, 400)
        s = h * np.arange(1, 401)[:, None]
        density = ((np.exp(-b * s) - np.exp(-d * s)) / s).sum(axis=1)
        assert np.abs(nu / h - density)[20:].max() < 5e-4 * density.max()
        assert nu.min() > -1e-12
        kernel_for(target, 1 - a ** (1 / rng.integers(1, 9)), reach=4.0, cells=200)


@pytest.mark.parametrize("name", REACHABLE)
def test_a_kernel_brings_its_target_back(name):
    target = REACHABLE[name]
    bias = kernel_for(target, reach=18.0, cells=12000)
    assert reached(target, bias).wasserstein < 3e-4
    T = 300
    lambda_ = np.full(T, target.tau / T)
    p = influence_profile(biased_kernels(1, described(bias)).dense(0, 1000), lambda_)
    assert np.abs(at(p, X) - target.below(X)).max() < 0.012


def test_a_kernel_for_few_layers_is_exact_there():
    target, T = REACHABLE["U"], 5
    lambda_ = 1 - target.atom ** (1 / T)
    bias = kernel_for(target, lambda_, reach=18.0, cells=12000)
    kernels = biased_kernels(T, described(bias))
    law = limit_distribution(kernels, np.full(T, lambda_), X)
    np.testing.assert_allclose(law, target.below(X), atol=1.5e-3)


def test_the_root_of_the_uniform_law_is_the_hypergeometric_bias():
    bias = kernel_for(UNIFORM, 0.3)
    s, r = np.array([0.05, 0.3, 1.0, 3.0]), np.log(0.7) / np.log(0.1)
    logits, exact = np.interp(s, bias.distances, bias.values), np.log(hyp1f1(1 - r, 2, -9 * s))
    np.testing.assert_allclose(logits - logits[0], exact - exact[0], atol=1e-3)


def test_one_layer_reaches_any_profile():
    kernels = biased_kernels(1, described(kernel_for(HOLE, 0.9)))
    np.testing.assert_allclose(limit_distribution(kernels, np.array([0.9]), X), HOLE.below(X), atol=2e-3)
    for target in (HOLE, Target(0.1, lambda x: ((x - 0.2) / 0.8).clip(0))):
        with pytest.raises(ValueError, match="target: expected a profile within reach .* negative kernel at i / j"):
            kernel_for(target)


def test_the_nearest_reachable_is_nearer_than_what_one_would_guess():
    found = nearest_reachable(HOLE, cells=120)
    guess = reached(HOLE, kernel_for(UNIFORM))
    assert 0.002 < found.cramer < 0.6 * guess.cramer
    assert found.wasserstein < 0.6 * guess.wasserstein
    again = nearest_reachable(UNIFORM, cells=120)
    assert again.wasserstein < 6e-3


@pytest.mark.parametrize("a", [0.05, 0.3])
def test_nothing_is_nearer_to_uniform_than_half_the_square_of_the_atom(a):
    x = (np.arange(20000) + 0.5) / 20000
    assert np.abs(nearest_to_uniform(a).below(x) - x).mean() == pytest.approx(a**2 / 2, rel=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = np.append((1 - a) * rng.dirichlet(np.full(400, 0.5)), a)
        assert normalised_wasserstein(p, np.full(401, 1 / 401)) > a**2 / 2 - a / 400


def test_the_nearest_to_uniform_is_reachable_up_to_an_atom_of_3697():
    def reachable(atom):
        masses, _ = levy_masses(nearest_to_uniform(atom), 9.0, 2000)
        return masses.min() > -1e-6 * masses.max()

    assert [reachable(x * 0.36967) for x in (0.2, 0.9, 0.99, 1.01, 1.1, 2.0)] == [True] * 3 + [False] * 3
    assert -np.log(0.36967) == pytest.approx(0.9952, abs=1e-4)


def general(gains):
    return 1 / np.prod(1 + gains.sum(axis=1))


def shared(gains):
    odds = (gains**2).sum(axis=1)
    return last_share_bounds(hop_distribution(odds / (1 + odds)))[0]


def keeps(networks, bound, factor=1.0):
    """Tell for each network whether the last token has at least a factor times the bound."""
    return [untrained_profile(A, c)[-1] > factor * bound(c) * (1 - 1e-12) for A, c in networks]


def test_the_last_token_of_untrained_networks_keeps_less_of_heads_that_differ():
    rng = np.random.default_rng(0)

    def drawn():
        n, T, H = rng.integers([2, 1, 1], [6, 5, 4])
        weights = np.tril(rng.random((T, H, n, n)) ** rng.choice([0.1, 1, 30]))
        gains = np.exp(rng.uniform(-3, 1.5, (T, H))) * (rng.random((T, H)) < 0.9)
        return weights / weights.sum(-1, keepdims=True), gains

    differ = [drawn() for _ in range(2000)]
    alike = [(np.broadcast_to(A[:1, :1], A.shape), c) for A, c in differ]
    last = np.array([untrained_profile(A, c)[-1] for A, c in differ]) * (1 + 1e-12)
    assert all(keeps(alike, shared)) and (last > [general(c) for _, c in differ]).all()
    assert (last < [shared(c) for _, c in differ]).mean() > 0.03


@pytest.mark.parametrize(("T", "H"), [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)])
def test_both_bounds_of_the_last_share_are_attained(T, H):
    c = np.random.default_rng(0).uniform(0.1, 2, (T, H))
    back = np.maximum(np.subtract.outer(np.arange(2 ** (T * H)), 2 ** np.arange(T * H)), 0)
    apart = np.eye(len(back))[back].transpose(1, 0, 2).reshape(T, H, len(back), -1)  # back by 1, 2, 4, ...
    assert keeps([(apart, c)], general) == [True] and keeps([(apart, c)], general, 1.01) == [False]
    one = np.broadcast_to(apart[0, 0], apart.shape)
    assert keeps([(one, c)], shared) == [True] and keeps([(one, c)], shared, 1.01) == [False]
    assert keeps([(apart, c)], shared) == [T * H == 1]

"""Limits of scale-free kernels against the engine, the flat kernel's closed forms, kernels for wanted profiles."""

import numpy as np
import pytest
from scipy.special import exp1, hyp1f1
from scipy.stats import gamma

from posbias.rollout.clock import hop_distribution
from posbias.rollout.influence import influence_profile
from posbias.rollout.position_bias import FlatBias, LogBias
from posbias.rollout.structured import biased_kernels
from studies.design.priors import Target, kernel_for, levy_masses, nearest_reachable, reached
from studies.design.scale_free import RatioBias, flat_distance, jump_tail, limit_distribution

X = np.linspace(0.02, 0.98, 49)
LAMBDA = np.array([0.3, 0.1, 0.4, 0.25])
STEPS = RatioBias((0.2, 0.5, 0.9, 2.0), (0.0, 1.5, -0.5, 0.3))


def at(p, x):
    """Return Σ_{j ≤ xn} p_j, straight between positions."""
    return np.interp(x * p.size, np.arange(p.size + 1), np.append(0.0, p.cumsum()))


@pytest.mark.parametrize("bias", [LogBias(1.4), LogBias(-0.5), FlatBias(2.0), STEPS])
def test_a_jump_is_what_one_row_of_the_kernel_makes(bias):
    n, s = 2001, np.array([0.0, 0.1, 0.3, 0.7, 1.5, 2.5])
    row = biased_kernels(1, bias).dense(0, n)[-1]
    ratio = np.arange(1, n + 1) / n
    rows = np.array([row[-np.log(ratio) >= at_least].sum() for at_least in s])
    atol = 0.03 if isinstance(bias, LogBias) and bias.alpha < 0 else 5e-3
    np.testing.assert_allclose(jump_tail(bias, s), rows, atol=atol)


def test_the_law_of_log_weights_is_a_mixture_of_gamma_laws():
    kernels, omega = biased_kernels(4, {"kind": "log", "alpha": 1.4}), hop_distribution(LAMBDA)
    hops = np.arange(1, omega.size)
    expected = gamma.sf(-np.log(X)[:, None], hops, scale=1 / 2.4) @ omega[1:]
    np.testing.assert_allclose(limit_distribution(kernels, LAMBDA, X), expected, atol=1e-7)


@pytest.mark.parametrize("bias", [LogBias(-0.3), FlatBias(0.95), STEPS])
def test_the_engine_tends_to_the_law(bias):
    kernels = biased_kernels(4, bias)
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
}


def test_levy_masses_of_a_power_are_frullani_densities():
    b, a = 2.0, 0.3
    nu, h = levy_masses(Target(a, lambda x: x**b), 8.0, 4000)
    s = h * np.arange(1, 4001)
    density = (np.exp(-b * s) - np.exp(-b * s / a)) / s
    np.testing.assert_allclose(nu / h, density, atol=2e-3 * density.max())
    assert nu.sum() == pytest.approx(-np.log(a) - density[0] * h / 2, abs=2e-3)


@pytest.mark.parametrize("name", REACHABLE)
def test_a_kernel_brings_its_target_back(name):
    target = REACHABLE[name]
    bias = kernel_for(target, reach=18.0, cells=12000)
    assert reached(target, bias).wasserstein < 3e-4
    T = 300
    lambda_ = np.full(T, target.tau / T)
    p = influence_profile(biased_kernels(1, bias).dense(0, 1000), lambda_)
    assert np.abs(at(p, X) - target.below(X)).max() < 0.012


def test_the_root_of_the_uniform_law_is_the_hypergeometric_bias():
    bias = kernel_for(UNIFORM, 0.3)
    s, r = np.array([0.05, 0.3, 1.0, 3.0]), np.log(0.7) / np.log(0.1)
    logits, exact = np.interp(s, bias.distances, bias.values), np.log(hyp1f1(1 - r, 2, -9 * s))
    np.testing.assert_allclose(logits - logits[0], exact - exact[0], atol=1e-3)


def test_one_layer_reaches_any_profile():
    kernels = biased_kernels(1, kernel_for(HOLE, 0.9))
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

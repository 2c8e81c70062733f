"""Paths that add as sizes or as vectors, and damped rollouts."""

import itertools

import numpy as np
import pytest

from posbias import influence_by_hops, influence_profile, structured_kernels
from posbias.comparison.fits import fit_coherence
from posbias.rollout.paths import damped_profile, paths_by_hops, recombined


def random_kernels(T=3, n=4, seed=0):
    rng = np.random.default_rng(seed)
    A = np.tril(rng.uniform(size=(T, n, n)))
    return A / A.sum(-1, keepdims=True), rng.uniform(0.1, 0.9, T)


@pytest.mark.parametrize("power", [1.5, 2.0])
def test_every_path_is_counted_once(power):
    """Written out: all ways through three layers, each staying or hopping to some position."""
    A, lambda_ = random_kernels()
    T, n = A.shape[:2]
    sums = np.zeros((T + 1, n))
    for way in itertools.product([None, *range(n)], repeat=T):  # from the last layer to the first
        at, weight, hops = n - 1, 1.0, 0
        for t, to in zip(range(T - 1, -1, -1), way, strict=True):
            if to is None:
                weight *= 1 - lambda_[t]
            else:
                weight, at, hops = weight * lambda_[t] * A[t, at, to], to, hops + 1
        sums[hops, at] += weight**power
    assert np.allclose(paths_by_hops(A, lambda_, power), sums ** (1 / power), atol=1e-14)


def test_power_one_is_the_rollout():
    A, lambda_ = random_kernels(T=5, n=9, seed=1)
    parts = paths_by_hops(A, lambda_, 1.0, row=6)
    assert np.allclose(parts, influence_by_hops(A, lambda_, row=6), atol=1e-14)
    assert np.allclose(recombined(parts.sum(1), parts), influence_profile(A, lambda_, row=6), atol=1e-14)


def test_hops_without_a_path_are_left_out():
    A, lambda_ = random_kernels()
    parts = paths_by_hops(A, np.zeros(3))
    assert recombined(np.ones(4), parts).tolist() == [0, 0, 0, 1]


def rollout_parts(n=24, T=6, seed=0):
    lambda_ = np.random.default_rng(seed).uniform(0.1, 0.4, T)
    kernels = structured_kernels(T, slope=0.1)
    return influence_by_hops(kernels, lambda_, n), influence_profile(kernels, lambda_, n)


def test_damping_interpolates_between_one_hop_and_the_rollout():
    parts, profile = rollout_parts()
    assert np.allclose(damped_profile(parts, 1.0), profile, atol=1e-14)
    one = parts[:2].sum(0)
    assert np.allclose(damped_profile(parts, 0.0), one / one.sum())
    means = [damped_profile(parts, rho) @ np.arange(24) for rho in (0.0, 0.3, 0.6, 1.0)]
    assert (np.diff(means) < 0).all()  # every hop goes back


def test_the_coherence_that_made_a_profile_is_found():
    cases = [rollout_parts(seed=k)[0] for k in range(3)]
    for rho in (0.0, 0.37, 1.0):
        assert fit_coherence(cases, [damped_profile(P, rho) for P in cases]) == pytest.approx(rho, abs=1e-3)


def test_what_cannot_be_is_refused():
    A, lambda_ = random_kernels()
    with pytest.raises(ValueError, match="power: expected a number of at least 1, received 0.5"):
        paths_by_hops(A, lambda_, 0.5)
    with pytest.raises(ValueError, match="lambda_: expected 3 values"):
        paths_by_hops(A, lambda_[:2])
    with pytest.raises(ValueError, match="rho: expected a number of at least 0, received -0.1"):
        damped_profile(rollout_parts()[0], -0.1)

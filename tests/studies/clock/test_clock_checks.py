"""Checks of the clock, of long prompts and of troughs: that each notices, in one run, what is broken."""

from math import factorial

import numpy as np
import pytest

import posbias as pb
from studies.clock import clock_checks, kinetic, long_checks, trough_checks, trough_lengths

ALIBI = pb.structured_kernels(4, slope=0.1)
MIXING = np.array([0.3, 0.1, 0.05, 0.02])
ONE = {"small": (ALIBI, MIXING)}


def test_an_error_of_the_clock_is_within_its_bound():
    models = clock_checks.Schedules(ONE, ONE, ONE)
    assert (models.errors["TV"] <= models.errors["bound"] + 1e-12).all() and models.totals == {"small": MIXING.sum()}
    assert models.errors.query("exact == 4")["TV"].max() < 1e-12
    assert clock_checks.bounded(0) and not clock_checks.bounded(0, 0.95)
    assert clock_checks.order_free(models, 0)
    assert not all(clock_checks.order_free(models, run, 0.01) for run in range(4))
    assert clock_checks.reversed_moves(models) == [pytest.approx(0.0, abs=1e-12)]


@pytest.mark.parametrize(
    ("run", "broken"),
    [
        (long_checks.bessel_met, {"factor": 1.01}),
        (long_checks.window_met, {"wider": 1}),
        (long_checks.is_dense, {"change": long_checks.wider}),
        (trough_checks.never, {"drift": 0.02}),
        (trough_checks.density_met, {"clocked": True}),
        (trough_lengths.begins, trough_lengths.LEAST["τ = ℓ/n"]),
        (trough_lengths.leaves, {"law": trough_lengths.layers_length, "fewer": 0, "share": 1.25}),
        (kinetic.kinetic_met, {"scale": 1 + 1e-9}),
    ],
)
def test_a_check_passes_and_notices(run, broken):
    right = {"law": trough_lengths.layers_length} if run is trough_lengths.leaves else {}
    assert run(0, **right) and not run(0, **broken)


def test_a_kinetic_mode_is_its_series():
    u, tau, ell = np.array([0.7]), 1.3, 2.0
    series = sum(tau ** (k + 1) * u**k / (factorial(k) * factorial(k + 1)) for k in range(40))
    x = np.log1p(np.expm1(ell) * np.exp(-u)) / ell
    speed = ell * np.exp(ell * x) / np.expm1(ell)
    assert np.allclose(kinetic.kinetic(u, ell, np.array([tau])), speed * series)


def test_one_uniform_hop_has_a_level_density():
    """Oracle: with one hop at most the density is ω₁, and the last token keeps ω₀."""
    x, total = np.array([0.2, 0.9]), 1e-6
    assert np.allclose(long_checks.uniform_density(x, total), total, rtol=1e-5)

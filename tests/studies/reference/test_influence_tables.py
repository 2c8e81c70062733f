"""Tables of measured influence, on profiles made up so that the answer is known."""

import numpy as np
import pytest
import xarray as xr

from posbias.comparison.samples import Sample, u_decisions, u_excess
from posbias.rollout.profiles import u_shape
from studies.reference.influence_tables import (
    most_have_a_u,
    passes,
    profile_shapes,
    shuffled,
    start_moved,
    with_profile,
)

n = 60


def measured(profile, prompts=20, noise=0.0, seed=0, **attributes):
    p = np.asarray(profile, dtype=float)
    g = p * (1 + noise * np.random.default_rng(seed).uniform(-1, 1, size=(prompts, p.size)))
    arrays = {"influence_prompts": (("prompt", "position"), g), "influence": ("position", g.sum(0) / g.sum())}
    return xr.Dataset(arrays, attrs=attributes)


def sample(profile, prompts=40, noise=0.2, seed=0, length=n):
    """Return prompts, two of each unit, whose influence scatters about a profile."""
    p = np.asarray(profile, dtype=float)[:length]
    g = p * (1 + noise * np.random.default_rng(seed).uniform(-1, 1, size=(prompts, p.size)))
    return Sample(g, np.arange(prompts) // 2)


RISING = np.linspace(1, 2, n)
LATE = np.r_[2.0, np.ones(n - 4), 2.0, 2.0, 9.0]
"""A valley whose last position is left out, and whose other end stands above it."""


def test_shapes_of_a_valley_and_of_a_slope():
    shapes = profile_shapes({"valley": sample(LATE), "rising": sample(RISING)}, resamples=200)
    row = shapes.loc["valley"]
    assert row["depth"] == pytest.approx(0.5, abs=0.1) and row["u"] == "yes" and 0 < row["excess_low"] < row["excess"]
    assert 0 < row["trough_low"] <= row["trough"] <= row["trough_high"] < 1
    assert row["depth_aside"] < 0.2 and row["u_eight"] == "yes" and row["depth_eight"] < 0.3
    assert shapes.loc["rising", ["u", "u_eight"]].tolist() == ["no", "no"] and shapes.loc["rising", "depth_aside"] < 0


@pytest.mark.parametrize(("smooth", "ends"), [(1, 1), (9, 1), (9, 8), (5, 3)])
def test_the_excess_is_the_criterion_of_u_shape(smooth, ends):
    profiles = np.random.default_rng(0).gamma(3.0, size=(200, 40)) * (1 + 0.4 * np.cos(np.linspace(0, 2 * np.pi, 40)))
    profiles /= profiles.sum(1, keepdims=True)
    expected = [u_shape(p, smooth=smooth, ends=ends).present for p in profiles]
    assert (u_excess(profiles, smooth=smooth, ends=ends) > 0).tolist() == expected and 0 < sum(expected) < 200


def test_decisions_take_the_number_of_models_into_account():
    weak = np.ones(n)
    weak[0] = weak[-2] = 1.22
    one = sample(weak, prompts=40, noise=0.9, seed=4)
    alone = u_decisions({"0": one}, resamples=400)
    family = u_decisions({str(k): one for k in range(8)}, resamples=400)
    assert family.loc["0", "adjusted"] == pytest.approx(min(1, 8 * alone.loc["0", "adjusted"]))
    with pytest.raises(ValueError, match="resamples: expected at least 320 for 8 models, received 300"):
        u_decisions({str(k): one for k in range(8)}, resamples=300)


def test_broken_samples_are_noticed():
    samples = {name: sample(LATE, seed=k) for k, name in enumerate("abc")}

    def check(found):
        return most_have_a_u(found, smooth=9, resamples=200)

    assert check(samples) and all(passes(check, samples, lambda _, x, r: x, 3))
    flat = np.ones(n)
    assert not any(passes(check, samples, lambda _, x, r: with_profile(x, flat), 3))
    assert not any(passes(check, samples, lambda _, x, r: shuffled(x, r), 3))
    assert not any(passes(check, samples, lambda _, x, r: start_moved(x, -0.5, smooth=9), 3))

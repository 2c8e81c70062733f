"""Tables of measured influence, on profiles made up so that the answer is known."""

import numpy as np
import pytest
import xarray as xr

from posbias.comparison.samples import Sample, u_decisions, u_excess
from posbias.rollout.profiles import u_shape
from studies.reference.influence_tables import redrawn

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


def test_a_unit_that_is_drawn_twice_counts_as_two():
    """Each label of a redrawn sample has all the prompts of one unit, and no prompt of another."""
    units = Sample(np.arange(1.0, 11.0).reshape(5, 2), np.array([4, 4, 7, 9, 9]))
    wholes = [[[1, 2], [3, 4]], [[5, 6]], [[7, 8], [9, 10]]]
    drawn = [redrawn(units, np.random.default_rng(seed)) for seed in range(20)]
    chosen = [[wholes.index(x.influence[x.units == label].tolist()) for label in np.unique(x.units)] for x in drawn]
    assert all(len(one) == 3 for one in chosen)
    assert {*np.concatenate(chosen)} == {0, 1, 2} and any(len({*one}) < 3 for one in chosen)

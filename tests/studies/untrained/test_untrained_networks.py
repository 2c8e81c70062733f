"""The law in networks whose mean is known, and the tables of the page ``untrained`` on entries made up."""

import numpy as np
import pytest
import xarray as xr

from posbias.rollout.untrained import aligned_profile, untrained_profile
from studies.untrained import evidence, networks, spread


def test_the_law_is_met_where_its_hypotheses_hold_and_not_elsewhere():
    assert networks.law_met(0) and networks.law_met(1)
    assert not any(networks.law_met(0, **how) for how in networks.BROKEN.values())


@pytest.mark.parametrize("mu", [0.0, 0.4, 1.0])
def test_maps_that_share_a_part_are_between_the_limits(mu):
    assert networks.law_met(0, law=lambda A, c: networks.between(A, c, mu), mu=mu)
    A, c, *_ = networks.signed_network(0)
    assert np.allclose(networks.between(A, c, 0.0), untrained_profile(A, c))
    one = A[:, :1], c[:, :1]
    assert np.allclose(networks.between(*one, 1.0), aligned_profile(*one))


def test_a_narrow_head_leaves_out_what_is_estimated():
    shares = np.mean([spread.content_shares(256, np.random.default_rng(k)) for k in range(12)], axis=0)
    assert shares[0] == pytest.approx(spread.estimate(256), rel=0.3)


def test_distances_of_a_law_that_is_right():
    p = evidence.cesaro_profile(2, 8, 0.5)
    profile = xr.DataArray(np.stack([p, p[::-1]])[None], dims=("seed", "prediction", "position"))
    data = xr.Dataset({"profile": profile, "influence": (("seed", "position"), 3 * p[None])})
    data = data.assign_coords(prediction=["untrained", "aligned"], layer=[0, 1])
    table = evidence.distance_table({("a", "random"): data}).set_index("prediction")
    assert table.loc["untrained", "W1"] < 1e-9 < table.loc["aligned", "W1"]
    assert table.loc["cesaro", "W1"] < 1e-3  # the fitted number is the right one
    assert evidence.law_distances({("a", "random"): data}, "influence")["a"] < 1e-9
    assert evidence.within(evidence.of(table.reset_index(), "untrained")) == [True]

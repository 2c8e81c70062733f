"""Tables of the study between: which files are read, places that are known, and coherence of known cross terms."""

import numpy as np
import pytest
import xarray as xr

from studies.ladder import alignment_tables as tables

RHO = np.array([-0.2, 0.0, 0.5, 1.0])
N, T, FEW = 16, 3, 4


def family():
    """Give distributions that move from the end to the start as ρ grows."""
    rows = np.exp(np.outer(1.5 - 2 * RHO, np.linspace(0, 1, N)) * 3)
    return rows / rows.sum(1, keepdims=True)


def made(place, *, cross=0.1, seed=0):
    """Give a file whose influence is that of the family at a place, in every prompt up to a little noise."""
    rng = np.random.default_rng(seed)
    p = np.array([np.interp(place, RHO, column) for column in family().T])
    influence = p * rng.uniform(0.98, 1.02, (12, N))
    possible = rng.uniform(0.2, 0.4, (2, T, FEW))
    share = np.full((2, T), 0.2)
    fields = {
        "influence_prompts": (("prompt", "position"), influence),
        "influence": (("position",), influence.sum(0)),
        "profile": (("kernel", "coherence", "position"), np.stack([family(), family()])),
        "predicted": (("kernel", "reading", "position"), np.stack([family()[1:]] * 2)),
        "rollout": (("variant", "position"), family()[:2]),
        "cross": (("join", "layer", "few"), cross * possible),
        "possible": (("join", "layer", "few"), possible),
        "share": (("sum", "layer"), share),
        "expected_share": (("sum", "layer"), share / 4),
    }
    coords = {"kernel": ["content-free", "measured"], "coherence": RHO, "reading": ["cosines", "shares", "both"]}
    coords |= {"variant": ["b", "kernels"], "join": ["attention", "step"], "sum": ["attention", "step"]}
    return xr.Dataset(fields, coords=coords)


@pytest.mark.parametrize("place", [-0.1, 0.0, 0.2, 0.73, 1.0])
def test_the_place_of_a_member_of_the_family_is_found(place):
    p = np.array([np.interp(place, RHO, column) for column in family().T])
    found, distance = tables.place_of(np.stack([p, family()[2]]), family(), RHO)
    assert found == pytest.approx([place, 0.5], abs=0.011) and distance.max() < 1e-3


def sides(places):
    files = {str(place): made(place) for place in places}
    samples = {name: tables.sample_between(x) for name, x in files.items()}
    return samples, {name: tables.limits_of(x) for name, x in files.items()}


def test_networks_stand_within_both_limits_or_beyond_one():
    samples, limits = sides([0.3, 0.8, -0.15])
    found = tables.limit_decisions(samples, limits)
    assert found["law"].tolist() == ["within", "within", "beyond"] and (found["aligned"] == "within").all()
    samples.pop("-0.15")
    many = {f"{name} {k}": x for name, x in samples.items() for k in range(10)}
    found = tables.limit_decisions(many, {name: limits[name.split()[0]] for name in many}, resamples=100)
    assert (found == "within").all(axis=None)
    samples["0.8"] = tables.moved_between(samples["0.8"], limits["0.8"], 1.1)
    assert tables.limit_decisions(samples, limits)["aligned"].tolist() == ["within", "beyond"]

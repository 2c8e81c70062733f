"""Place + content of planted effects: what is found, what is left over, and what predicts it."""

import numpy as np
import pytest
import xarray as xr

from studies.factor import tables
from studies.factor.measure import balanced_orders
from studies.factor.tables import Shares, log_shares

K, SETS = 6, 12
PLACE = np.array([-0.6, -0.3, -0.1, 0.0, 0.2, 0.8])


def planted(seed=0, *, place=1.0, content=0.5, noise=0.0):
    """Return shares made of effects of these sizes."""
    rng = np.random.default_rng(seed)
    passage = np.stack([balanced_orders(K, rng) for _ in range(SETS)])
    said = content * rng.standard_normal((SETS, K))
    said -= said.mean(1, keepdims=True)
    y = place * PLACE + np.take_along_axis(np.broadcast_to(said[:, None], passage.shape), passage, -1)
    y = y + noise * rng.standard_normal(passage.shape)
    return Shares(y - y.mean(-1, keepdims=True), passage)


def entry_of(data):
    return xr.Dataset({name: (("set", "order", "place"), x) for name, x in data.items()})


def test_shares_are_logarithms_about_the_mean_of_their_prompt():
    data = {"influence": np.exp([[[1.0, 3.0]]]), "passage": np.array([[[1, 0]]])}
    shares = log_shares(entry_of(data))
    np.testing.assert_allclose(shares.y, [[[-1, 1]]])
    np.testing.assert_allclose(shares.content, [[1, -1]])
    np.testing.assert_allclose(shares.placed(shares.content), shares.y)


def test_effects_are_found():
    shares = planted(noise=0.1)
    np.testing.assert_allclose(shares.place, PLACE, atol=0.03)
    assert shares.content.std() == pytest.approx(0.5, abs=0.1)


def product(shares, places=None):
    every = {"one": shares, "two": planted(1, noise=0.1)}
    return tables.is_product(every, places, resamples=200)


def test_a_product_is_told_from_what_is_none():
    rng = np.random.default_rng(0)
    assert product(planted(noise=0.1))
    assert not product(planted(noise=0.5))  # too much is left
    assert not product(planted(place=0.0, noise=0.1)) and not product(planted(content=0.0, noise=0.1))
    for permuted in (tables.places_permuted, tables.contents_permuted):
        assert not product(permuted(planted(noise=0.1), rng))
    assert not product(planted(noise=0.1), {"one": -PLACE, "two": PLACE})

"""Planted effects of place and content, told from what is none; what tables say, the chapter prints."""

import numpy as np

from studies.factor import tables
from studies.factor.measure import balanced_orders
from studies.factor.tables import Shares

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

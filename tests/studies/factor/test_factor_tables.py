"""Place + content of planted effects: what is found, what is left over, and what predicts it."""

import numpy as np
import pytest
import xarray as xr

from studies.factor import tables
from studies.factor.measure import balanced_orders
from studies.factor.tables import SOURCES, Shares, log_shares

K, SETS = 6, 12
PLACE = np.array([-0.6, -0.3, -0.1, 0.0, 0.2, 0.8])


def planted(seed=0, *, place=1.0, content=0.5, by_set=0.0, cell=0.0, noise=0.0, before=0.0):
    """Return shares made of effects of these sizes."""
    rng = np.random.default_rng(seed)
    passage = np.stack([balanced_orders(K, rng) for _ in range(SETS)])
    said = content * rng.standard_normal((SETS, K))
    said -= said.mean(1, keepdims=True)
    cells = cell * rng.standard_normal((SETS, K, K))
    y = place * PLACE + np.take_along_axis(np.broadcast_to(said[:, None], passage.shape), passage, -1)
    y = y + by_set * rng.standard_normal((SETS, 1, K)) + noise * rng.standard_normal(passage.shape)
    y += cells[np.arange(SETS)[:, None, None], np.arange(K), passage]
    y[..., 1:] += before * np.take_along_axis(said[:, None], passage, -1)[..., :-1]
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


@pytest.mark.parametrize("source", SOURCES)
def test_variance_is_shared_out(source):
    sizes = dict.fromkeys(("place", "content", "by_set", "cell", "noise"), 0.0)
    sizes[list(sizes)[SOURCES.index(source)]] = 1.0
    (parts,) = tables.variance_parts(planted(**sizes), np.ones((1, SETS)))
    assert parts.sum() == pytest.approx(1) and SOURCES[parts.argmax()] == source
    if source in ("place", "content"):
        assert parts.max() == pytest.approx(1)
    if source == "order of the others":  # noise: passage × place has (K - 2)/K of it
        assert parts[3] / parts[4] == pytest.approx((K - 2) / K, rel=0.15)


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

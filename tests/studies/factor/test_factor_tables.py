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


def test_intervals_hold_what_was_planted():
    shares = planted(by_set=0.1, noise=0.2)
    entry = entry_of({"influence": np.exp(shares.y), "passage": shares.passage})
    row = tables.variance_table({"m": entry}, resamples=200).loc["m"]
    assert row["place_low"] < row["place"] < row["place_high"] and row["rest_low"] < row["rest"] < row["rest_high"]
    assert row["place"] + row["content"] + row["rest"] == pytest.approx(1)
    assert row["spread"] == pytest.approx(0.12, abs=0.04) and row["most"] == pytest.approx(0.8, abs=0.1)


def test_other_prompts_foretell_a_product():
    left = tables.left_over(planted())
    assert left["both"].max() < 1e-20 and (left["all"] > left["content"]).all()
    left = tables.left_over(planted(), np.zeros(K))
    np.testing.assert_allclose(left["both"], left["content"])


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


def test_what_is_permuted_and_what_is_kept():
    shares, rng = planted(noise=0.1), np.random.default_rng(0)
    lost, kept = tables.places_permuted(shares, rng), tables.contents_permuted(shares, rng)
    np.testing.assert_allclose(lost.content, shares.content)
    np.testing.assert_array_equal(kept.y, shares.y)
    assert abs(lost.place).max() < 0.3 and kept.content.std() < 0.5 * shares.content.std()


def test_predictions_of_place_are_compared():
    every, guesses = {"m": planted()}, {"m": {"right": PLACE, "flat": np.zeros(K), "turned": -PLACE}}
    right, flat, turned = tables.place_table(every, guesses, resamples=50).to_dict("records")
    assert right["r"] == pytest.approx(1) and max(right["rms"], right["high"], right["W1"]) < 1e-12
    assert flat["rms"] == pytest.approx(PLACE.std()) and np.isnan(flat["r"]) and turned["r"] == pytest.approx(-1)


def test_moves_are_foretold_by_the_right_effect_alone():
    every = {"m": planted(noise=0.3)}
    found = tables.move_table(every, {"m": {"right": PLACE, "turned": -PLACE}}, resamples=200).set_index("prediction")
    assert found["decided"].tolist() == [1, -1] and found["right"].sum() == pytest.approx(1)
    right, moved = tables.moves(planted(content=2.0), PLACE)
    assert (right == moved).all()  # content has no part in a change of place
    _, moved = tables.moves(planted(), np.zeros(K))
    assert not moved.any()


def test_divided_by_place_a_prompt_tells_contents_apart():
    shares = planted(content=0.2)
    assert tables.content_order(shares) == 1 == tables.content_order(shares, PLACE)
    assert tables.content_order(shares, np.zeros(K)) < 0.75


@pytest.mark.parametrize("before", [0.0, -0.3])
def test_effects_of_neighbours_are_found(before):
    found = tables.neighbour_table({"m": planted(noise=0.05, before=before)}, resamples=200).set_index("side")
    assert found.loc["before", "slope"] == pytest.approx(before, abs=0.06)
    assert found["decided"].tolist() == [-1 if before else 0, 0]


@pytest.mark.parametrize("extra", [0.4, 0.0])
def test_the_later_of_two_copies_is_found(extra):
    shares = planted(content=0.0, noise=0.05)
    where = np.argsort(shares.passage, axis=-1)[..., [0, -1]].max(-1)
    y = shares.y + extra * (np.arange(K) == where[..., None])
    row = tables.copy_table({"m": Shares(y, shares.passage)}, {"m": PLACE}).loc["m"]
    assert row["later"] == pytest.approx(extra, abs=0.05) and (row["low"] > 0) == (extra > 0)
    assert row["low"] < row["later"] < row["high"]

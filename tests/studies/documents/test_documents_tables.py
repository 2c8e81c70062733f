"""Tables of documents: by hand, and what they must not find in noise."""

import numpy as np
import pytest
import xarray as xr

from studies.documents import tables

RNG = np.random.default_rng(0)


def entry(values):
    return xr.Dataset({"x": (("context", "asked", "document"), values)})


def test_the_asked_document_and_the_others_share_every_number():
    values = RNG.random((3, 4, 4))
    gold, others = tables.of_gold(entry(values), "x"), tables.of_place(entry(values), "x")
    assert gold[1, 2] == values[1, 2, 2] and others[1, 2] == pytest.approx(values[1, [0, 1, 3], 2].mean())
    assert np.allclose(gold + 3 * others, values.sum(1))


def test_a_predictor_that_is_the_score_has_its_order_and_noise_does_not():
    score = np.linspace(0, 1, 8) + 0.1 * RNG.standard_normal((30, 8))
    noise = RNG.standard_normal((30, 8))
    table = tables.rank_table({"score": score, "noise": noise, "known": score.mean(0)[None]}, score)
    assert table.loc[["score", "known"], "rank"].tolist() == [1, 1] and table.loc["score", "low"] > 0.5
    assert table.loc["noise", "low"] < 0 < table.loc["noise", "high"]


def test_place_is_divided_out_by_the_other_contexts():
    place, content = np.array([1.0, 2, 4]), RNG.random((4, 3, 3)) + 0.5
    shares = place * content
    expected = [shares[0, 1, k] / shares[1:, :, k].mean() for k in range(3)]
    assert np.allclose(tables.divide_place(shares)[0, 1], expected)


def test_the_source_of_right_and_wrong_answers():
    source = np.array([[0, 1, 0], [0, -1, 2]])
    correct = np.array([[1.0, 1, 0], [1, 0, 1]])
    right = np.eye(3)[np.maximum(source, 0)]
    first = np.tile([1.0, 0, 0], (2, 3, 1))
    table = tables.source_table({"deletion": right, "first": first}, source, correct)
    assert table.loc["deletion", ["prompts", "all", "right", "wrong"]].tolist() == [5, 1, 1, 1]
    assert table.loc["first", ["prompts", "all", "right", "wrong"]].round(2).tolist() == [5, 0.6, 0.5, 1]
    assert table.loc["deletion", ["low", "high"]].tolist() == [pytest.approx(0.025 ** (1 / 2)), 1]  # two contexts agree


def test_intervals_of_the_source_are_over_contexts():
    source, hits = np.zeros((3, 4), int), np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0]])
    source[2, 3] = -1
    row = tables.source_table({"some": np.stack([hits, 1 - hits], -1)}, source, hits * 1.0).loc["some"]
    off = np.array([3 - 4 * 7 / 11, 2 - 4 * 7 / 11, 2 - 3 * 7 / 11]) / (11 / 3)  # 7 of 11, in contexts of 4, 4 and 3
    half = 4.302653 * off.std(ddof=1) / 3**0.5  # Student's t with two degrees of freedom
    assert row[["low", "all", "high"]].tolist() == pytest.approx([7 / 11 - half, 7 / 11, 7 / 11 + half])


def test_orders_are_permutations_and_move_what_is_best_to_the_ends():
    for order, place in tables.ORDERS.items():
        assert sorted(place(8)) == list(range(8)), order
    # LangChain's own loop, on documents ranked 0 to 7
    langchain = []
    for k, document in enumerate(reversed(range(8))):
        langchain.append(document) if k % 2 else langchain.insert(0, document)
    places = tables.ORDERS["both ends, best last"](8)
    assert langchain[-1] == 0 and langchain[0] == 1 and [langchain.index(k) for k in range(8)] == places.tolist()

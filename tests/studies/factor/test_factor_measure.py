"""Prompts of passages in balanced orders, and the influence that is read of them."""

import numpy as np
import pytest

from posbias.measure.corpus import Corpus, document_units
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.factor.measure import QUESTION, PassagesSession, balanced_orders, measure_factor


def session(model="reference/bloom-8", sets=2, length=64, passages=3):
    return PassagesSession(Settings(Source(model), Corpus(), sets, length, 4), passages)


@pytest.mark.parametrize("K", [3, 4, 5, 6, 8])
def test_orders_are_balanced(K):
    orders = balanced_orders(K, np.random.default_rng(K))
    halves = [orders[:K], orders[K:]]
    for half in halves:
        assert (np.sort(half, axis=0) == np.arange(K)[:, None]).all() and (np.sort(half) == np.arange(K)).all()
    for rows in halves if K % 2 == 0 else [orders]:
        behind = np.zeros((K, K), int)
        np.add.at(behind, (rows[:, :-1], rows[:, 1:]), 1)
        assert (behind[~np.eye(K, dtype=bool)] == (1 if K % 2 == 0 else 2)).all()


@pytest.mark.parametrize("model", ["reference/bloom-8", "reference/llama-12"])
def test_prompts_are_whole_passages_in_their_orders_before_the_question(model):
    it = session(model)
    front, tokens = len(it.front), it.tokens
    assert (front, tokens) == ((1, 16) if "llama" in model else (0, 16))
    ids = it.prompts.ids.reshape(2, 6, -1)
    placed = ids[..., front : front + 3 * tokens].reshape(2, 6, 3, tokens)
    for s in range(2):
        texts = {k: {tuple(x) for x in placed[s][it.orders[s] == k]} for k in range(3)}
        assert all(len(found) == 1 for found in texts.values())  # a passage is the same in all orders
        assert len(set.union(*texts.values())) == 3
    asked = ids[..., front + 3 * tokens :].reshape(-1, 16 - front)
    assert (asked == asked[0]).all() and QUESTION.endswith(it.tokenizer.decode(asked[0]).lstrip())
    units = document_units(it.documents.ravel(), "builtin")
    assert np.unique(units).size == units.size == 2 * 3 and it.documents.min() >= 256


@pytest.fixture(scope="module")
def measured():
    return measure_factor(Settings(Source("reference/llama-12"), Corpus(), 1, 64, 3), 3)


def test_influence_is_summed_over_the_tokens_of_each_passage(measured):
    it = session("reference/llama-12", sets=1)
    g = it.instrument.measure(it.ids[4:5]).influence.numpy()[0]
    found = measured.isel(set=0, order=4)
    np.testing.assert_allclose(found["influence"], g[1:49].reshape(3, 16).sum(1), rtol=1e-3)
    np.testing.assert_allclose([found["start"], found["question"]], [g[0], g[49:].sum()], rtol=1e-3)
    assert found["passage"].values.tolist() == it.orders[0, 4].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"passages": 2}, "passages: expected at least three passages of two tokens"),
        ({"length": 20}, "passages: expected at least three passages of two tokens"),
        ({"length": 194, "passages": 60, "sets": 1}, "length: expected less: at most"),
        ({"sets": 100}, "dataset builtin: expected passages of 300 units"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        session(**changes)

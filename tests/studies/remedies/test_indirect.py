"""Answers that no search finds: how their prompts are made, and what is counted of them."""

import numpy as np
import pytest
import xarray as xr

from studies.documents import unstated
from studies.remedies import indirect


@pytest.mark.parametrize("seed", range(5))
def test_no_document_has_the_figures_and_one_has_them_in_words(seed):
    asks = indirect.make_reworded(np.random.default_rng(seed))
    for k, ask in enumerate(asks):
        assert not any(digit in text for text in ask.documents for digit in "0123456789")
        holding = [j for j, text in enumerate(ask.documents) if f" {indirect.in_words(ask.answer)}." in text]
        assert holding == [k] and ask.begin.startswith("In figures, the ") and len({a.answer for a in asks}) == 8


@pytest.mark.parametrize("seed", range(5))
def test_two_documents_lead_to_the_answer(seed):
    asks, pairs = indirect.make_chained(np.random.default_rng(seed))
    for ask, (first, second) in zip(asks, pairs, strict=True):
        museum = ask.begin.split(" director of the ")[1].split(" museum")[0]
        person = ask.documents[first].split(" is called ")[1].split(".")[0]
        assert f"The director of the {museum} museum is called" in ask.documents[first]
        assert f"The telephone number of {person} is {ask.answer}." in ask.documents[second]
        assert sum(ask.answer in text for text in ask.documents) == 1
    assert len({second for _, second in pairs}) == 4


def test_what_is_named_is_counted_by_hand():
    """Two sets of two documents: three of four in other words; of three sources two, and one bridge second."""
    removed = np.array([[[-3.0, 0], [0, -1]], [[-2, -1], [-1, 0]]])
    rows = {"correct": [[1, 0], [0, 0]], "reader": [[0, 1], [1, 1]], "fetched": [[0, 1], [0, 1]]}
    two = {"two_correct": [[1, 0], [0, 0]], "two_source": [[0, 1], [0, -1]], "two_bridge": [[1, 0], [1, 0]]}
    two |= {"two_reader": [[0, 0], [0, 0]], "two_fetched": [[1, 0], [0, 0]]}
    arrays = {name: (("set", "question"), x) for name, x in rows.items()}
    arrays |= {name: (("set", "chain"), x) for name, x in two.items()}
    arrays["removed"] = ("set", "question", "document"), removed
    arrays["two_removed"] = ("set", "chain", "document"), np.array([[[-3.0, -1], [-2, 0]], [[-1, 0], [-1, 0]]])
    real = {"source": ("answer", [1, 0, -1]), "removed": (("answer", "document"), removed[:, 0].repeat(2, 0)[:3])}
    kept = {unstated.INDIRECT: xr.Dataset(arrays), unstated.REAL: xr.Dataset(real)}
    found = unstated.numbers(kept)
    assert [found[f"reworded_{x}"] for x in ("prompts", "right", "deletion", "reader", "fetched")] == [4, 1, 3, 3, 4]
    assert [found[f"steps_{x}"] for x in ("prompts", "right", "known", "deletion", "reader")] == [4, 1, 3, 2, 2]
    assert [found[f"steps_{x}"] for x in ("bridge", "second", "fetched")] == [1, 2, 3]
    assert (found["real_sources"], found["real_sources_named"]) == (2, 1)

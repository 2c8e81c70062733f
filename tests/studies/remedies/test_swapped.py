"""Exchanged values: which document has another one, and what is counted of the answers."""

import numpy as np
import pytest
import xarray as xr

from posbias.lookup.contexts import make_contexts
from posbias.lookup.tasks import Task
from studies.documents import swaps
from studies.remedies import swapped


@pytest.mark.parametrize("document", [0, 5, 7])
def test_one_document_has_another_value_of_its_kind(document):
    for k, context in enumerate(make_contexts(Task("documents", 8), 12, 0)):
        asks = context.asks["competing"]
        value = swapped.other_value(np.random.default_rng(k), asks)
        assert value.isdigit() == asks[0].answer.isdigit() and len(value) < 20
        assert not any(value in text for text in asks[0].documents)
        for before, after in zip(asks, swapped.exchanged(asks, document, value), strict=True):
            pairs = list(zip(before.documents, after.documents, strict=True))
            assert [old == new for old, new in pairs] == [k != document for k in range(8)]
            assert asks[document].answer not in after.documents[document]
            assert f" {value}." in after.documents[document] and after.question == before.question


def entry(follows, sets=40):
    """Return sets of two documents; both answers are from the first, and follow in so many sets."""
    outcome = np.zeros((sets, 2, 2), int)
    outcome[:, :, 0] = np.where(np.arange(sets) < follows, swaps.FOLLOWS, 2)[:, None]
    outcome[0, 0, 1] = 2
    became = np.where(outcome == swaps.FOLLOWS, 0, np.where(outcome == 2, 1, -1))
    arrays = {"source": (("set", "question"), np.zeros((sets, 2), int))}
    arrays |= {"outcome": (("set", "question", "document"), outcome)}
    return xr.Dataset(arrays | {"became": (("set", "question", "document"), became)})


def test_what_becomes_of_answers_is_counted_by_hand():
    found = swaps.numbers(entry(16))
    assert [found[f"swap_{x}"] for x in ("known", "changed", "follows", "turned")] == [80, 80, 32, 48]
    assert (found["swap_turned_other"], found["swap_turned_right"]) == (48, 24)
    assert [found[f"swap_{x}_said"][:5] for x in ("follows", "right", "wrong")] == ["40% ("] * 3
    assert found["swap_others_said"].startswith("1% (")


@pytest.mark.parametrize(("follows", "passed", "undecided"), [(40, True, False), (12, False, False), (35, True, True)])
def test_the_check_of_exchanged_values_can_fail(follows, passed, undecided):
    found = swaps.swap_check(entry(follows))
    assert (found.passed, found.how["undecided"]) == (passed, undecided)
    assert not any(found.broken["a document named at random"])

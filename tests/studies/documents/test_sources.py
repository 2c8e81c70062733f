"""Which document an answer came from: limits that one half sets, heads that are chosen, and what a check notices."""

import numpy as np
import pytest
import xarray as xr

from posbias.prompts import Prompt, Span
from studies.documents import heads, source_checks, sources


def test_a_limit_is_set_on_one_half_and_judged_on_the_other():
    first = {
        "one source": np.array([9.0, 9.0, 3.0, 9.0]),
        "two sources": np.array([2.0, 1.0, 5.0, 1.0]),
        "no source": np.array([0.5, 0.5, 0.5, 6.0]),
        "made-up answer": np.array([8.0]),
    }
    found = sources.judged_limit(sources.Falls(first, {}, 0.0, 0))
    assert found["source_half_limit"] == 2.0 and found["source_half_found"] == 1.0
    assert (found["source_half_false"], found["source_half_others"]) == (2, 4)
    assert (found["source_half_none"], found["source_half_none_of"]) == (1, 2)


@pytest.fixture
def seen():
    """Return sources: one head points at all of them from the answer, another at some of the first half."""
    rng = np.random.default_rng(0)
    source = rng.integers(8, size=(6, 8))
    source[0, 0] = -1
    question, answer = rng.integers(8, size=(2, 6, 8, 19, 9))
    answer[..., 3, 1] = source
    answer[3:, :, 3, 1] = source[3:]
    question[:3, :, 4, 2] = np.where(np.arange(8) < 7, source[:3], (source[:3] + 1) % 8)
    fall = -np.eye(8)[source.clip(0)]
    dims = ("context", "asked", "document")
    correct = np.arange(48).reshape(6, 8) % 2
    used = {"source": (dims[:2], source), "correct": (dims[:2], correct), "removed": (dims, fall)}
    used |= {way: (dims, rng.random((6, 8, 8))) for way in sources.WAYS}
    names = ("integrated gradients", "integrated gradients, signed", "attention, inseq")
    others = {name: (dims, rng.random((6, 8, 8))) for name in names}
    at = ("context", "asked", "layer", "head")
    pointing = {"question": (at, question), "answer": (at, answer)}
    kept = {"used": used, "others": others, "pointing": pointing}
    return sources.Sources({name: xr.Dataset(x) for name, x in kept.items()})


def test_the_head_that_reads_is_chosen_on_the_first_half(seen):
    assert seen.reader == ((3, 1), "answer")
    table = seen.fair_table
    assert table.loc[sources.READERS, "all"] == table.loc["deletion", "all"] == 1
    assert table["prompts"].iloc[0] == 24 and table.loc["influence", "all"] < 0.6


def test_deletion_leads_unless_a_rival_is_as_good(seen):
    check = source_checks.fair_check(seen)
    assert not check.passed and sources.READERS in check.figure
    rest = {name: x for name, x in seen.fair.items() if name != sources.READERS}
    assert source_checks.leads(rest, seen.source)
    assert source_checks.deletion_check(seen).passed
    assert not any(source_checks.leads(rest, x) for x in source_checks.drawn_sources(seen.source))


def test_an_answer_is_watched_from_the_token_before_it():
    spans = (Span("document", 0, 2), Span("question", 2, 4))
    found = heads.with_answer(Prompt("abcd", "ef", (1, 2, 3, 4), (), spans), (5, 6))
    assert found.ids == (1, 2, 3, 4, 5)
    assert [(x.part, x.start, x.stop) for x in found.spans] == [("document", 0, 2), ("question", 3, 5)]

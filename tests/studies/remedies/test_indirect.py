"""Answers that no search finds: how their prompts are made, and what is counted of them."""

import numpy as np
import pytest
import xarray as xr

from studies.documents import unstated
from studies.remedies import indirect, naming, real_sources
from studies.results import load


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


@pytest.mark.parametrize(
    "line, names",
    [
        ("The tower was built by Gustave Eiffel in 1889.", ["Gustave Eiffel", "1889"]),
        ("Paris.", []),  # in the question
        ("Rome", []),  # a first word alone may be any word
        ("Marie Curie won two", ["Marie Curie"]),
        ("14 December 1972 UTC", ["14 December 1972 UTC"]),
        ("", []),
    ],
)
def test_names_and_numbers_are_read_from_a_line(line, names):
    assert naming.new_names(line, "who built it in Paris?") == names


def test_a_passage_holds_all_names_as_whole_words():
    passages = ["Built by gustave  Eiffel, 1889-90.", "Eiffel; 1889", "Gustave Eiffelson 1889"]
    assert [naming.holds_all(["Gustave Eiffel", "1889"], one) for one in passages] == [True, False, False]
    assert not naming.holds_all([], passages[0])


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
    falls = removed[:, 0].repeat(2, 0)[:3]
    real = {"source": ("answer", [1, 0, -1]), "question": ("answer", [4, 4, 7]), "right": ("answer", [1, 1, 0])}
    real |= {"at": ("answer", [0, 1, 1]), "reader": ("answer", [0, 1, 1]), "fetched": ("answer", [1, 1, 1])}
    real |= {name: (("answer", "document"), x) for name, x in (("removed", falls), ("removed_short", -falls))}
    kept = {unstated.INDIRECT: xr.Dataset(arrays), unstated.REAL: xr.Dataset(real, attrs={"prompts": 100})}
    first = {"question": [4, 4], "at": [0, 1], "right": [1, 1], "searched": [0, 0]}
    first |= {"searched_next": [1, 1], "apart": [1, 0], "apart_by": [1, 0], "apart_right": [1, 0]}
    first |= {"named_by": [1, 1], "named_right": [1, 0]}
    kept[unstated.SEARCH] = xr.Dataset({name: ("answer", x) for name, x in first.items()})
    wrong = {"right": [0, 0, 1, 0], "apart": [2, 0, 1, 1], "apart_by": [1, 0, 1, 2], "named_by": [1, 1, 1, 2]}
    kept[unstated.WRONG] = xr.Dataset({name: ("answer", x) for name, x in wrong.items()})
    found = unstated.numbers(kept)
    right, hits = found["right_before"], found["right_before"] * 1 / 2 + (200 - found["right_before"]) * 1 / 3
    assert found["hits_all"] == pytest.approx(hits) and found["hits_base"] == right / 200
    assert found["hits_said"].startswith(f"{right / 2 / hits:.0%} (")
    assert [found[f"wrong_{x}"] for x in ("asked", "names", "one", "several", "none")] == [3, 2, 1, 1, 1]
    assert (found["right_first_rule"], found["wrong_first_rule"]) == (1, 2)
    assert (found["right_searched"], found["right_again"]) == (1, 2)
    assert [found[f"reworded_{x}"] for x in ("prompts", "right", "deletion", "reader", "fetched")] == [4, 1, 3, 3, 4]
    assert [found[f"steps_{x}"] for x in ("prompts", "right", "known", "deletion", "reader")] == [4, 1, 3, 2, 2]
    assert [found[f"steps_{x}"] for x in ("bridge", "second", "fetched")] == [1, 2, 3]
    assert (found["real_sources"], found["real_sources_named"]) == (2, 1)
    assert [found[f"right_{x}"] for x in ("answers", "questions", "deletion", "short")] == [2, 1, 1, 1]
    assert [found[f"right_{x}"] for x in ("reader", "fetched", "last")] == [2, 1, 1]
    assert [found[f"right_{x}"] for x in ("not_last", "not_last_missed")] == [1, 0]


class Decoding:
    """Decode words as they are."""

    class tokenizer:
        @staticmethod
        def decode(ids):
            return "".join(ids)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["It ", "was ", "the ", "Wright", " brothers", " in ", "1903", "."], (3, 5)),
        (["Wright", " brothers"], (0, 2)),
        (["Wright", " or ", "the ", "Wright", " brothers", ", ", "Wright", " brothers"], (3, 5)),
    ],
)
def test_the_short_answer_is_the_first_one_without_more(words, expected):
    assert real_sources.short_answer(Decoding, words, ["Orville", "Wright brothers"]) == expected


def test_the_check_of_right_answers_can_fail():
    at = np.arange(40) % 8
    falls = -np.eye(8)[at]
    arrays = {"removed": falls, "removed_short": falls}
    arrays = {name: (("answer", "document"), x) for name, x in arrays.items()}
    rows = {"question": np.arange(40) // 2, "right": np.ones(40, int), "at": at, "reader": at, "fetched": at}
    entry = xr.Dataset(arrays | {name: ("answer", x) for name, x in rows.items()})
    found = unstated.right_check(entry)
    assert found.passed and not found.how["undecided"] and not any(found.broken["passages named at random"])
    assert not unstated.right_check(entry.assign(at=("answer", (at + 1) % 8))).passed


def test_wrong_answers_are_drawn_once_each_and_are_wrong():
    right = load("questions")["smollm2.eight"]["correct"].sel(place=list(real_sources.AT)).values == 1
    drawn = real_sources.answers_asked(100, 60)
    assert len({*map(tuple, drawn.tolist())}) == 60 and not right[*drawn.T].any()
    known = real_sources.answers_asked(100, 0)
    assert {*map(tuple, np.argwhere(right).tolist())} <= {*map(tuple, known.tolist())}


def test_what_is_known_without_passages_is_counted_by_itself(monkeypatch):
    closed = xr.DataArray(np.array([[1, 0, 0]]), {"given": ["none"]}, ("given", "question"))
    monkeypatch.setattr(unstated, "load", lambda _: {unstated.FLOORS: {"correct": closed}})
    question, hits = np.array([0, 0, 1, 2, 2]), np.array([True, False, True, True, False])
    found = unstated.remembered_numbers(question, hits)
    assert (found["known"], found["known_named"], found["known_questions"]) == (2, 1, 1)
    assert (found["unknown"], found["unknown_named"]) == (3, 2) and found["unknown_said"].startswith("67%")


def test_a_search_and_deletion_are_compared_answer_by_answer():
    falls = -np.eye(3)[[0, 1, 2, 0]]
    names = {"removed": falls, "removed_short": falls}
    rows = {"question": [0, 0, 1, 2], "right": [1, 1, 1, 0], "at": [0, 1, 0, 0], "reader": [0] * 4, "fetched": [0] * 4}
    arrays = {name: (("answer", "document"), x) for name, x in names.items()}
    entry = xr.Dataset(arrays | {name: ("answer", x) for name, x in rows.items()})
    rows |= {"searched": [0, 2, 0], "searched_next": [1, 0, 2], "apart": [2, 1, 0]}
    rows |= {"apart_by": [1, 2, 0], "apart_right": [1, 1, 0], "named_by": [1, 1, 2], "named_right": [0, 1, 1]}
    found = unstated.search_numbers(entry, xr.Dataset({name: ("answer", x[:3]) for name, x in rows.items()}))
    assert [found[f"right_{x}"] for x in ("searched", "searched_two", "deletion_two")] == [2, 2, 3]
    assert [found[f"right_{x}"] for x in ("neither", "either", "names", "looked_one")] == [0, 3, 2, 1]
    assert (found["right_looked_one_right"], found["right_first_rule"]) == (1, 1)
    assert found["right_all"] >= found["right_then"] == 2
    assert found["right_looked_none"] == 0

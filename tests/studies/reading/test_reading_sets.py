"""Lists of competing documents: what stands where, and what is asked."""

import pytest

from studies.reading import sets


def kinds(listing):
    stated = zip(listing.competing, listing.answers, strict=True)
    return "".join("c" if competes else "o" if answer else "n" for competes, answer in stated)


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (sets.competing(4, 0), "cccc"),
        (sets.with_neutral("between", 0), "cn" * 8),
        (sets.with_neutral("around", 0), "nnnnccccccccnnnn"),
        (sets.with_neutral("ends", 0), "nccccccccn"),
        (sets.with_neutral("inside", 0), "cccccccc"),
        (sets.other_kinds(), "cccccccc"),
    ],
)
def test_each_competing_document_states_one_answer_and_is_asked_for(made, shape):
    for (listing,) in made(2):
        assert kinds(listing) == shape
        assert list(listing.asked) == [k for k, x in enumerate(shape) if x == "c"]
        for ask, place in zip(listing.asks, listing.asked, strict=True):
            assert ask.documents == listing.documents and ask.answer == listing.answers[place]
            assert f"{ask.begin} {ask.answer}." in listing.documents[place]
            assert sum(ask.answer in text for text in listing.documents) == 1


def test_neutral_sentences_inside_double_a_document():
    ((short,),) = sets.competing(8, 3)(1)
    ((long,),) = sets.with_neutral("inside", 3)(1)
    assert short.answers == long.answers
    ratios = [len(y) / len(x) for x, y in zip(short.documents, long.documents, strict=True)]
    assert 1.7 < sum(ratios) / 8 < 2.7


def test_two_compete_at_each_distance_and_the_others_are_of_other_kinds():
    (lists,) = sets.one_competitor()(1)
    assert [x.asked[1] - x.asked[0] for x in lists] == [1, 2, 3, 4, 5, 6, 7]
    for listing in lists:
        assert kinds(listing).count("c") == 2 and kinds(listing).count("o") == 6
        begins = {" ".join(ask.begin.split()[:2]) for ask in listing.asks}
        assert len(begins) == 1 and len({*listing.answers}) == 8


def test_look_alikes_apart_and_together_are_the_same_documents():
    first, second = sets.apart()(2)
    assert [kinds(x) for x in first] == ["cocococo", "ccccoooo"]
    assert [kinds(x) for x in second] == ["ococococ", "oooocccc"]
    for kept_apart, together in (first, second):
        assert sorted(kept_apart.documents) == sorted(together.documents)
        assert [a.question for a in kept_apart.asks] == [a.question for a in together.asks]

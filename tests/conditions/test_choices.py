"""Which documents a condition keeps, in which order, by what an engine says of them, without a model."""

import pytest

from posbias.conditions import read_condition
from posbias.conditions.each.order import arranged
from posbias.conditions.each.rotated import votes
from posbias.engines import Generated, Likelihood
from posbias.prompts import Ask

ASK = Ask(("a", "b", "c"), "which?", "1")


class Answering:
    """An engine that says so many tokens of so many nats in all to each document alone."""

    name, has_loglikelihood, has_gradients = "answering", False, False

    def __init__(self, *answers):
        self.answers = answers

    def loglikelihood(self, prompts):
        assert all(one.answer for one in prompts), "an empty answer is none"
        yield from [Likelihood(-1.0, False)] * len(prompts)

    def generate(self, prompts, most, until=""):
        for _, (tokens, nats) in zip(prompts, self.answers, strict=True):
            yield Generated("so" * (tokens > 0), tuple(range(tokens)), nats, tokens)


def kept(name, engine, ask=ASK):
    return read_condition(name)[1].choose(ask, engine, lambda one: one).documents


WITHOUT_ARGUMENTS = {
    "sharper": {"factor": 1.5, "heads": None},
    "sink-off": {"layers": None},
    "one-by-one": {"by": "likelihood", "keep": 1},
    "rotated": {"rotations": 4, "by": "vote"},
    "fetched:heads=0.1": {"how": "alone", "heads": [(0, 1)], "keep": 1},
    "order:ends": {"kind": "ends", "keep": None},
    "order-shuffled": {"order": "shuffled"},
}


@pytest.mark.parametrize("name", WITHOUT_ARGUMENTS)
def test_what_a_condition_is_without_arguments(name):
    own = vars(read_condition(name)[1])
    assert {field: own[field] for field in WITHOUT_ARGUMENTS[name]} == WITHOUT_ARGUMENTS[name]


def test_the_best_documents_stay_in_their_order():
    assert kept("one-by-one:confident,keep=2", Answering((1, -2.0), (1, -3.0), (1, -1.0))) == ("a", "c")


def test_nothing_is_asked_where_there_is_nothing_to_choose():
    assert kept("one-by-one:keep=3", None) == ASK.documents and kept("one-by-one", None, Ask(("a",), "", "")) == ("a",)
    assert kept("rotated", None, Ask(("a",), "", "")) == ("a",) and kept("rotated", None, Ask((), "", "")) == ()
    assert kept("fetched:heads=0.0", None, Ask(("a",), "", "")) == ("a",)


def test_an_empty_answer_is_not_kept_unless_all_are():
    engine = Answering((0, float("nan")), (1, -2.0), (0, float("nan")))
    engine.has_loglikelihood = True
    assert kept("rotated:3,by=mean", engine) == ("b", "c", "a")
    engine.answers = ((0, float("nan")),) * 3
    assert kept("rotated:3,by=mean", engine) == kept("rotated:3", engine) == ("a", "b", "c")


def test_an_engine_that_does_not_say_how_likely_answers_are_is_refused():
    with pytest.raises(ValueError, match="engine: expected one that tells how likely its answers are, rec.*answering"):
        kept("one-by-one:confident", Answering((1, -2.0), (1, float("nan")), (1, -1.0)))
    with pytest.raises(ValueError, match="engine: expected one with log-probabilities"):
        kept("one-by-one", Answering())


@pytest.mark.parametrize(
    ("name", "documents"),
    [
        ("reversed,keep=2", "cb"),
        ("ends,keep=2", "cb"),
        ("best-last,keep=2", "bc"),
        ("reversed", "cba"),
        ("ends", "cab"),
    ],
)
def test_the_best_by_score_are_put_in_an_order(name, documents):
    asked = Ask(("a", "b", "c"), "which?", "1", scores=(1.0, 2.0, 3.0))
    assert read_condition(f"order:{name}")[1].rewrite(asked).documents == tuple(documents)


@pytest.mark.parametrize("scores", [[1], [1, 2, 3]])
def test_as_many_scores_as_documents_are_wanted(scores):
    with pytest.raises(ValueError, match=f"scores: expected 2, one for each document, received {len(scores)}"):
        arranged(2, scores, "ends")


def test_of_answers_as_many_turns_give_the_one_that_is_likeliest_in_one_of_them_wins():
    given = [Generated("", (), nats, 1) for nats in (-0.1, -5.0, -1.0, -1.0, 0.0)]
    found = votes(["x", "x", "y", "y", "z"], given)
    assert found["x"] > found["y"] > 2 > found["z"], "a certain answer of one turn is not that of two"
    unknown = [Generated("", (), float("nan"), 1)] * 3
    assert votes(["x", "y", "y"], unknown) == {"x": 1, "y": 2}

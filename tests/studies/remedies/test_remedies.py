"""A study's engine gives what the package's does; its tables say what was measured."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from lookup_worlds import TEMPLATE, byte_tokenizer
from measuring import make

from posbias.conditions import read_condition
from posbias.engines.local import LocalEngine
from posbias.prompts import Ask, write_prompt
from studies.questions.asks import write_ask
from studies.questions.rows import Passage, Question
from studies.remedies.engine import SetEngine
from studies.remedies.likely_orders import ORDERS, put_in_orders
from studies.remedies.questions import AT, CHOSEN, PLACES, Ranked
from studies.remedies.tables import judge_alarm, pointed_right, remedy_table

TEXTS = ("one is 1", "two is 22", "three is 3")


@pytest.fixture(scope="module")
def world():
    tokenizer = byte_tokenizer()
    return make("llama", vocab_size=len(tokenizer), max_position_embeddings=2048).eval(), tokenizer


def test_prompts_read_together_are_answered_as_one_by_one(world):
    model, tokenizer = world
    asks = [Ask(TEXTS, f"what is {name}?", "22") for name in ("one", "two", "all three")]
    asks += [Ask(TEXTS[:1], "what is one?", "1")]
    prompts = [write_prompt(tokenizer, "documents", ask, False, True) for ask in asks]
    alone, together = LocalEngine(model, tokenizer), SetEngine(model, tokenizer)
    for some in (prompts[:3], prompts[1:2], prompts):
        expected = list(alone.loglikelihood(some))
        for one, other in zip(together.loglikelihood(some), expected, strict=True):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            assert one.is_greedy == other.is_greedy
        expected = list(alone.generate(some, 5, "\n"))
        for one, other in zip(together.generate(some, 5, "\n"), expected, strict=True):
            assert one.ids == other.ids and one.text == other.text
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)
    assert (together.requests, together.tokens) == (alone.requests, alone.tokens)


def entry(correct):
    scores = {"correct": (("set", "question"), np.array(correct, dtype=float))}
    for name in ("kept", "requests", "tokens_read"):
        scores[name] = ((), 1.0)
    return xr.Dataset(scores)


def test_a_remedy_helps_if_it_does_in_nearly_every_set():
    half, rng = np.tile([1, 0], (20, 1)), np.random.default_rng(0)
    kept = {"as-is": half, "oracle": half * 0 + 1, "good": half * 0 + 1, "bad": half * 0}
    kept["same"] = rng.permuted(half, axis=1)
    table = remedy_table({f"smollm2.{name}": entry(x) for name, x in kept.items()})
    verdicts = table["verdict"].to_dict()
    assert {name: verdicts[name] for name in ("good", "bad", "same", "as-is")} == {
        "good": "helps", "bad": "does harm", "same": "undecided", "as-is": "undecided",
    }  # fmt: skip
    assert table.loc["good", "gain"] == 0.5 and table.loc["same", "worst"] < 0.9
    plain = table.loc["oracle", "p"]
    assert table.loc["good", "p"] == pytest.approx(3 * plain), "Holm over three, not over floors"


def test_an_alarm_is_judged_by_errors_found_and_false_alarms():
    wrong = np.array([[1, 1, 0, 0]] * 10, dtype=bool)
    rings = np.array([[1, 0, 0, 0]] * 10, dtype=bool)
    found = judge_alarm(rings, wrong)
    assert (found.found, found.false) == (0.5, 0.0) and found.low > 0


def test_heads_point_at_what_is_asked_for():
    attention = np.zeros((1, 2, 1, 2, 2))
    attention[0, 0, 0, :, 0] = attention[0, 1, 0, 0, 1] = attention[0, 1, 0, 1, 0] = 1
    assert pointed_right(attention).mean((0, 1)).tolist() == [[1.0, 0.5]]


def test_passages_are_ordered_by_the_likelihood_and_two_of_them_kept():
    ask = Ask(tuple("ABCDEFGH"), "who?", "me")
    scores = {"search": [[*range(8, 0, -1)]], "likelihood": [[0, 7, 1, 6, 2, 5, 3, 4]]}
    ranked = SimpleNamespace(asks=[ask], scores=scores)
    found = dict(zip(ORDERS, ("".join(one.documents) for one in put_in_orders(ranked, ORDERS)), strict=True))
    assert found == {
        "likely-last": "ACEGHFDB", "likely-first": "BDFHGECA", "likely-two": "DB", "search-two": "BA",
    }  # fmt: skip


CONDITIONS = {
    "one-by-one-likely": "one-by-one:likelihood",
    "one-by-one-likely-2": "one-by-one:likelihood,keep=2",
    "heads-alone": "fetched:alone,heads=0.1+1.0",
    "heads-alone-2": "fetched:alone,heads=0.1+1.0,keep=2",
}


@pytest.mark.parametrize("rank", [0, 3])
def test_passages_are_chosen_as_the_conditions_choose_them(world, rank):
    model, tokenizer = world
    tokenizer.chat_template = TEMPLATE
    passages = [Passage(f"T{k}", "ab" * (k + 1)) for k in range(PLACES)]
    question = Question("ab?", ("ab",), passages[4], (*passages[:4], *passages[5:]), rank)
    engine, write = SetEngine(model, tokenizer), partial(write_ask, tokenizer)
    ranked = Ranked(question, engine, write, "0.1+1.0")
    for name, text in CONDITIONS.items():
        condition = read_condition(text)[1]
        before = engine.requests, engine.tokens
        expected = [condition.choose(ask, engine, write) for ask in ranked.asks]
        requests, tokens = ranked.costs[CHOSEN[name][0]]
        assert [x.documents for x in ranked.chosen(name)] == [x.documents for x in expected]
        assert requests == (engine.requests - before[0]) / len(AT)
        assert tokens == (engine.tokens - before[1]) / len(AT)
    first = ranked.asks[0].documents[0] if rank == 0 else f"(Title: T0) {passages[0].text}"
    assert [x.documents for x in ranked.chosen("search-alone")] == [(first,)] * len(AT)

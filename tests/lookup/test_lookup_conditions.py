"""A lookup under conditions: each beside what is as it is, with the numbers of the condition by itself."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lookup_worlds import byte_tokenizer
from measuring import make, status

import posbias
from posbias import conditions
from posbias.engines.local import Reader
from posbias.lookup.asking import told_of_rows
from posbias.lookup.conditioned import choose_condition
from posbias.lookup.contexts import choose_contexts, read_rows
from posbias.lookup.scores import flip_p_value
from posbias.lookup.tasks import Task
from posbias.prompts import Ask, write_prompt

ROWS = []
for _k in range(1, 5):
    documents = [f"one is {_k}", f"two is {_k}7", f"three is {_k}9"]
    ROWS.append({"documents": documents, "question": "two?", "answer": f"{_k}7", "begin": "It"})
ASKED = ["sharper:2.0", "order:reversed", "parallel-windows", "one-by-one"]


@pytest.fixture(scope="module")
def world():
    tokenizer = byte_tokenizer()
    network = make("llama", vocab_size=len(tokenizer), max_position_embeddings=2048).eval()
    return posbias.open(network, tokenizer=tokenizer), network, tokenizer


def test_every_condition_is_beside_as_it_is(world, tmp_path):
    model, network, tokenizer = world
    plain = model.lookup(rows=ROWS, arms="competing").results["log_probability"].values
    found = model.lookup(rows=ROWS, arms="competing", conditions=ASKED)
    told = found.results["log_probability"]
    assert told.dims == ("condition", "arm", "context", "place")
    assert told["condition"].values.tolist() == ["as is", *ASKED]
    assert np.allclose(told.sel(condition="as is"), plain, atol=1e-4)
    reversed_ = told.sel(condition="order:reversed", arm="competing").values
    ask = Ask(("three is 19", "two is 17", "one is 1"), "two?", "17", "It")
    prompt = write_prompt(tokenizer, "documents", ask, False, True)
    assert reversed_[0, 1] == pytest.approx(Reader(network, False).answer(prompt.ids, prompt.answer_ids)[0], abs=1e-4)
    prompt = write_prompt(tokenizer, "documents", Ask(ask.documents[::-1], *("two?", "17", "It")), False, True)
    with conditions.sharper(network, 2.0):
        sharp = Reader(network, False).answer(prompt.ids, prompt.answer_ids)[0]
    assert float(told.sel(condition="sharper:2.0")[0, 0, 1]) == pytest.approx(sharp, abs=1e-4)
    alone = told.sel(condition="one-by-one")[0]
    assert np.allclose(alone, alone[:, :1], atol=1e-4), "each document alone has no place"
    table = found.compare_conditions()
    assert table["requests"].tolist() == [1, 1, 1, 1, 4], "each of three documents alone, then the best of them"
    again = posbias.load_lookup(found.save(tmp_path / "f.nc"))
    assert "one-by-one: right " in repr(again) and "by Holm" in repr(again)
    assert found.figure(tmp_path / "f.png").exists() and "The middle is lost" in again.verdict


def test_the_order_of_a_row_is_that_of_a_search_wherever_the_right_document_is_put(world):
    model, network, tokenizer = world
    ways = ["order:best-first", "order:best-last", "order:best-first,keep=1"]
    told = model.lookup(rows=ROWS[:1], conditions=ways).results["log_probability"].sel(arm="competing")
    own = ROWS[0]["documents"]
    for name, documents in zip(ways, (own, own[::-1], own[:1]), strict=True):
        prompt = write_prompt(tokenizer, "documents", Ask(tuple(documents), "two?", "17", "It"), False, True)
        by_hand = Reader(network, False).answer(prompt.ids, prompt.answer_ids)[0]
        assert told.sel(condition=name).values[0] == pytest.approx([by_hand] * 3, abs=1e-4)


def test_rows_asked_once_are_as_they_are_given(world, tmp_path):
    model, network, tokenizer = world
    found = model.lookup(rows=ROWS, places=1, arms="competing,oracle", conditions=["order:best-last"])
    told = found.results["log_probability"]
    assert told.sizes["place"] == 1 and found.results.attrs["right_first"] == 0
    for name, order in {"as is": 1, "order:best-last": -1}.items():
        ask = Ask(tuple(ROWS[2]["documents"][::order]), "two?", "37", "It")
        prompt = write_prompt(tokenizer, "documents", ask, False, True)
        by_hand = Reader(network, False).answer(prompt.ids, prompt.answer_ids)[0]
        assert float(told.sel(condition=name, arm="competing")[2, 0]) == pytest.approx(by_hand, abs=1e-4)
    said = repr(posbias.load_lookup(found.save(tmp_path / "f.nc")))
    assert "the row's documents" in said and "cannot tell from rows that are asked once" in said
    assert "best document" not in said and "answers is first in 0 of 4" in said
    with pytest.raises(ValueError, match="each row asked once"):
        _ = found.reading
    assert found.figure(tmp_path / "f.png").exists()


def test_what_is_printed_names_the_condition_to_choose():
    columns = {"right": [0.2, 0.6, 0.9, 0.7], "low": [np.nan, 0.2, -0.1, 0.3], "p": [np.nan, 0.05, 0.01, 0.06]}
    columns |= {"gain": [np.nan, 0.4, 0.7, 0.5], "visible": [np.nan, 0.2, 1.4, 0.2]}
    table = pd.DataFrame(columns | {"tokens": [9.0, 9, 9, 9]}, index=["as is", "one", "two", "three"])
    cheaper = pd.concat([table, table.loc[["one"]].rename(index={"one": "less"}).assign(tokens=3.0)])
    assert choose_condition(cheaper, 20).startswith("Choose less: "), "of equals the one that reads less"
    assert choose_condition(table, 20) == "Choose one: of what is shown to help it has most right answers, 60%"
    none = choose_condition(table.drop(index="one"), 20)
    assert none == "None of these is shown to help; to see a gain of +0.70 takes about 80 rows", "twice what is seen"
    assert choose_condition(table.assign(gain=-0.1, low=-0.2), 20) == "None of these is shown to help"


def test_a_question_costs_what_it_would_alone(world):
    """By hand: each document is read with the question, and the one that is kept once more, whatever its place was."""
    model, _, tokenizer = world
    found = model.lookup(rows=ROWS[:1], arms="competing", conditions=["one-by-one"])
    cost = found.compare_conditions()["tokens"]

    def read(ask):
        prompt = write_prompt(tokenizer, "documents", ask, False, True)
        return len(prompt.ids) + len(prompt.answer_ids) - 1

    asks = [Ask((text,), "two?", "17", "It") for text in ROWS[0]["documents"]]
    layout = ("instruction", "documents")
    choosing = [read(replace(ask, question="", answer="two?", begin="Question:", layout=layout)) for ask in asks]
    kept = [read(ask) for ask in asks]
    assert cost["one-by-one"] - sum(choosing) in kept and len({*kept}) == 3
    assert cost["as is"] == read(Ask(tuple(ROWS[0]["documents"]), "two?", "17", "It"))


def test_gains_are_paired_over_contexts_and_adjusted_for_how_many_there_are(world):
    found = world[0].lookup(rows=ROWS, arms="competing", conditions=ASKED[:2])
    right = np.zeros((3, 1, 4, 3))
    right[1, 0, :, 0] = 1
    right[2, 0, 0, 1] = 1
    found.results["correct"][:] = right
    table = found.compare_conditions()
    assert table["gain"].tolist()[1:] == pytest.approx([1 / 3, 1 / 12]) and table["worst"].tolist() == [0, 0, 0]
    assert table["worst_place"].tolist() == [1, 2, 1]
    assert "With all documents: accuracy 0.00 0.00 0.00; " in str(found), "as it is"
    assert "sharper:2.0: right 0.33, worst 0.00 at place 2, gain +0.33 (" in str(found)
    raw = flip_p_value(np.full(4, 1 / 3))
    assert raw == pytest.approx(1 / 8, abs=0.03), "of sixteen patterns of signs two are as extreme"
    assert table["p"].iloc[0] != table["p"].iloc[0] and table["p"].iloc[1] == pytest.approx(2 * raw)


def test_gains_are_over_what_a_search_sends_if_it_is_asked(world):
    found = world[0].lookup(rows=ROWS, arms="competing", conditions=["order:best-first", "order:best-last"])
    right = np.zeros((3, 1, 4, 3))
    right[1, 0, :2] = 1
    right[2, 0, :3] = 1
    found.results["correct"][:] = right
    table = found.compare_conditions()
    assert table["gain"].tolist()[2] == pytest.approx(1 / 4), "and not 3/4, which is over the documents as they are"
    assert table["gain"].isna().tolist() == table["p"].isna().tolist() == [True, True, False]
    assert table["p"].iloc[2] == pytest.approx(flip_p_value(np.array([0.0, 0, 1, 0])))
    lines = str(found).splitlines()
    assert "gain" not in next(line for line in lines if line.startswith("as is: right"))
    assert "gains are over this" in next(line for line in lines if line.startswith("order:best-first: right"))
    assert "gain +0.25 (" in next(line for line in lines if line.startswith("order:best-last: right"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"conditions": ["nothing"]}, "condition: expected one of adapter"),
        ({"conditions": ["sharper:heads=9.9"]}, "condition: heads: expected layers from 0 to"),
        ({"conditions": ["numbered"], "task": "kv"}, "condition: expected one that changes the model, for the task kv"),
        ({"conditions": ["order-shuffled"]}, "condition: expected one for what is asked; this one is for measure"),
    ],
)
def test_conditions_that_cannot_be_are_refused(world, more, expected):
    rows = {} if "task" in more else {"rows": ROWS}
    with pytest.raises(ValueError) as error:
        world[0].lookup(**rows, **more)
    assert str(error.value).startswith(expected) and "\n" not in str(error.value)


def test_a_condition_whose_prompts_are_too_long_is_refused_by_its_name(world):
    tokenizer = world[2]
    network = make("llama", vocab_size=len(tokenizer), max_position_embeddings=200)
    opened = posbias.open(network, tokenizer=tokenizer)
    assert "order:reversed: " in opened.preview_lookup(rows=ROWS, conditions=["order:reversed"])
    expected = "^condition repeated:everything: prompt 1: length: expected at most 200 tokens, the model's context"
    with pytest.raises(ValueError, match=expected):
        opened.lookup(rows=ROWS, conditions=["order:reversed", "repeated:everything"])


def test_the_command_lists_what_there_is(capsys):
    code, out, _ = status(capsys, ["lookup", "--condition", "list"])
    assert code == 0 and "parallel-windows: Documents do not see one another" in out and "one-by-one: " in out


def test_it_is_counted_where_the_order_of_the_rows_has_the_right_document_first():
    given = [("it is 12", "no", "none"), ("no", "it is 12", "none"), ("no", "none", "it is 12")]
    rows = read_rows([{"question": "which?", "answer": "12", "documents": one, "begin": "It is"} for one in given])
    contexts = choose_contexts(Task("documents", score="exact"), rows, 3, 0)
    assert told_of_rows(contexts, {"score": "exact", "rows": "given"}) == {"right_first": 1}

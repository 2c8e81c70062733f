import gzip
import json

import numpy as np
import pytest
from lookup_worlds import TEMPLATE, byte_tokenizer

from posbias.conditions import read_condition
from posbias.engines import Generated
from posbias.lookup.answers import contains, normalise
from posbias.prompts import apply_template
from studies.questions import measure
from studies.questions.asks import as_ask, write_ask
from studies.questions.rows import Passage, Question, make_rows, read_questions, write_message

WORDS = ("river", "mountain", "castle", "harbour", "violin", "comet")


def write_file(path, broken=()):
    """Write questions as Liu et al.'s file has them; of those in ``broken`` the passage holds no accepted answer."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for k, word in enumerate(WORDS):
            text = f"The {word} is known, and its number is {'lost' if k in broken else 100 + k}."
            passage = {"title": word.title(), "text": text, "isgold": True, "hasanswer": True}
            row = {"question": f"what number has the {word}", "answers": [f"{100 + k}"], "ctxs": [passage]}
            file.write(json.dumps(row) + "\n")
    return path


def test_competitors_are_mixed_and_the_right_passage_stays_where_it_is_put():
    others = tuple(Passage(f"T{k}", "") for k in range(7))
    question = Question("?", ("a",), Passage("R", "a"), others)
    one, again, other = (measure.mix_competitors(question, seed) for seed in (0, 0, 1))
    assert one == again and one.competitors != others != other.competitors != one.competitors
    assert {*one.competitors} == {*others} and one.at(3)[3] == question.passage


@pytest.mark.parametrize(
    "text, answers, found",
    [
        ("The answer: Wilhelm Conrad Röntgen.", ("wilhelm conrad röntgen",), True),
        ("an  U.S. state", ("us state",), True),
        ("In 1901", ("1902", "1903"), False),
        ("", ("a river",), False),
    ],
)
def test_the_metric_is_that_of_squad(text, answers, found):
    assert contains(text, answers) is found
    assert normalise(normalise(text)) == normalise(text)


def test_rows_have_the_competitors_that_a_search_ranks_highest(tmp_path):
    questions = read_questions(write_file(tmp_path / "q.jsonl.gz", broken={2}))
    rows = make_rows(questions, 6, 3)
    assert len(rows) == 5 and "castle" not in {row.passage.title.lower() for row in rows}
    for row in rows:
        assert row.rank == 0  # the passage has the question's rarest word
        assert len(row.competitors) == 2 and row.passage not in row.competitors
        assert not any(contains(str(one), row.answers) for one in row.competitors)
        for place in range(3):
            assert row.at(place).index(row.passage) == place
            assert [one for one in row.at(place) if one != row.passage] == list(row.competitors)


def test_a_passage_that_holds_an_accepted_answer_is_no_competitor(tmp_path):
    questions = read_questions(write_file(tmp_path / "q.jsonl.gz"))
    other = questions[1].passage
    first = Question(questions[0].text, (*questions[0].answers, "101"), questions[0].passage)
    rows = make_rows([first, *questions[1:]], 6, 5)
    beside = next(row for row in rows if row.text == first.text).competitors
    assert len(beside) == 4 and other not in beside


def test_another_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="questions: expected lost_in_the_middle/nq-open-oracle.jsonl.gz"):
        read_questions()
    (tmp_path / "lost_in_the_middle").mkdir()
    write_file(tmp_path / "lost_in_the_middle" / "nq-open-oracle.jsonl.gz")
    with pytest.raises(ValueError, match="expected the file with the SHA-256 6a7f72b846f6"):
        read_questions()


class Letters:
    """A tokenizer whose tokens are letters, and an engine that says the same whatever it is asked."""

    def __init__(self, said):
        self.said = said

    def apply_chat_template(self, messages, **_):
        return messages[0]["content"]

    def __call__(self, text, **_):
        return {"input_ids": [ord(letter) for letter in text]}

    def generate(self, prompts, most, until):
        for _ in prompts:
            yield Generated(self.said[:most], tuple(self.said[:most]), 0.0, len(self.said[:most]))


@pytest.mark.parametrize(
    "said, correct, source, written",
    [("It is 7.\nOr 8.", 1, 0, 14), ("number 8", 0, 1, 8), ("x" * 200, 0, -1, measure.MOST), ("\n7", 1, 0, 2)],
)
def test_only_the_first_line_of_an_answer_is_scored(said, correct, source, written):
    passages = (Passage("A", "It is 7, the number."), Passage("B", "It has number 8."))
    question = Question("which", ("7",), passages[0])
    letters = Letters(said)
    found = measure._answer(letters, letters, question, [passages, ()])
    tokens = [len(write_message(question, some)) for some in (passages, ())]
    assert found["line"].tolist() == [said[:100].strip().split("\n")[0]] * 2
    assert found["correct"].tolist() == [correct] * 2 and found["source"].tolist() == [source, -1]
    assert found["holding"].tolist() == [int(source >= 0), 0]
    assert found["tokens"].tolist() == tokens and found["written"].tolist() == [written] * 2


def test_what_was_kept_of_real_questions():
    from studies import results

    found = results.load("questions")["smollm2.floors"]
    assert found["given"].values.tolist() == ["none", "right"] and found.sizes["question"] == 150
    none, right = found["correct"].values.mean(0)
    assert none < 0.1 < 0.3 < right
    assert (np.diff(found["tokens"].values, axis=1) > 0).all()


def test_a_prompt_is_that_which_was_published_and_knows_its_passages(tmp_path):
    row = make_rows(read_questions(write_file(tmp_path / "q.jsonl.gz")), 1, 3)[0]
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    for place in range(3):
        ask = as_ask(row, place)
        prompt = write_ask(tokenizer, ask)
        assert prompt.text == apply_template(tokenizer, write_message(row, row.at(place)))
        for passage, span in zip(row.at(place), prompt.of("document"), strict=True):
            text = tokenizer.decode(prompt.ids[span.start : span.stop])
            assert text.startswith("Document [") and passage.text in text
        assert max(ask.scores) == ask.scores[place] == 0  # the search has it first
        (question,) = prompt.of("question")
        assert row.text in tokenizer.decode(prompt.ids[question.start : question.stop])


def test_conditions_change_a_published_prompt(tmp_path):
    row = make_rows(read_questions(write_file(tmp_path / "q.jsonl.gz")), 1, 3)[0]
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE

    def written(condition):
        return write_ask(tokenizer, read_condition(condition)[1].rewrite(as_ask(row, 2))).text

    assert written("repeated:question").count(f"Question: {row.text}") == 2
    assert written("repeated:question").count("Answer:") == 1
    assert "Document 3 of 3: (Title: " in written("numbered") and "[3]" not in written("numbered")
    assert written("order:best-last") == write_ask(tokenizer, as_ask(row, 2).with_documents([1, 0, 2])).text

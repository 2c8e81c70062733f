import gzip
import json

import numpy as np
import pytest

from posbias.engines import Generated
from posbias.lookup.answers import contains, normalise
from studies.questions import measure
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
    assert found["tokens"].tolist() == tokens and found["written"].tolist() == [written] * 2


def test_what_was_kept_of_real_questions():
    from studies import results

    found = results.load("questions")["smollm2.floors"]
    assert found["given"].values.tolist() == ["none", "right"] and found.sizes["question"] == 100
    none, right = found["correct"].values.mean(0)
    assert none < 0.1 < 0.3 < right
    assert (np.diff(found["tokens"].values, axis=1) > 0).all()

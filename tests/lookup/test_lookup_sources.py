"""From which document each answer of a lookup is: of an engine that is told what to say, and what is said of that."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from posbias.engines import Generated
from posbias.lookup import sources
from posbias.lookup.contexts import make_contexts, move_first, row_contexts
from posbias.lookup.reading import shares
from posbias.lookup.tasks import Task
from posbias.prompts import Ask, Prompt


def bare(text):
    return Prompt(text, "", (), (1, 2))


class Says:
    """Answer each prompt with what is known to follow its text."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def generate(self, prompts, most, until=""):
        for prompt in prompts:
            self.asked.append((prompt.text, most))
            yield Generated(self.answers[prompt.text], (), np.nan, 1)


def test_made_up_answers_are_found_by_what_each_document_states():
    (context,) = make_contexts(Task("documents", places=3), 1, 0)
    asks = context.asks["competing"]
    engine = Says({"b": f" {asks[0].answer}", "c": " nobody knows"})
    found = sources.find_sources(engine, [asks], [[*map(bare, "abc")]], np.array([[1, 0, 0]]))
    assert found.tolist() == [[0, 0, -1]] and engine.asked == [("b", 2), ("c", 2)]


def test_the_answer_of_a_pair_is_its_value():
    (context,) = make_contexts(Task("kv", places=4), 1, 0)
    asks = context.asks["competing"]
    assert sources.stated_by(f'{asks[2].answer}"', asks, 0) == 2
    assert sources.stated_by(f"{asks[2].answer}x", asks, 0) == -1


def test_answers_to_a_users_rows_are_looked_up_in_the_documents_of_that_order():
    ask = Ask(("Bern has 12.", "Rome has 13 or 14.", "Oslo has 14."), "How many?", "12")
    (context,) = row_contexts([ask])
    assert context.asks["competing"] == move_first(ask, ask.documents[1:])
    asks = context.asks["competing"]
    assert [sources.stated_by(" 13", asks, place) for place in range(3)] == [1, 0, 0]
    assert sources.stated_by(" 14", asks, 0) == sources.stated_by(" 1", asks, 0) == -1
    assert sources.stated_by(" bern", asks, 2) == 2


def drawn(sets=30, places=6):
    rng = np.random.default_rng(0)
    p = shares(np.array([1.0, *[0.0] * (places - 2), 1.5]), 0.8)
    source = np.array([[rng.choice(places, p=row) for row in p] for _ in range(sets)])
    return xr.Dataset({"source": (("context", "place"), source)})


def test_the_law_is_said_and_drawn_from_what_a_lookup_kept():
    law = sources.read_law(drawn())
    assert law.sharpness_interval[0] < 0.8 < law.sharpness_interval[1]
    assert sources.law_text(drawn()) == repr(law) and f"{law.near:.0%}" in sources.law_sentence(drawn())
    _, ax = plt.subplots()
    sources.draw_sources(ax, law)
    assert np.allclose(ax.images[0].get_array().sum(1), 1) and ax.get_ylabel() == "place asked for"
    plt.close()


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (drawn(9), "expected 10 sets of competing documents or more, received 9"),
        (xr.Dataset(coords={"place": range(4)}), "expected a lookup that kept which document each answer is from"),
        (drawn() + 5, "expected places -1 to 5"),
        (drawn() * 0 - 1, "10 of them wrong, received 0"),
        (drawn() * 0 + np.arange(6), "10 of them wrong, received 180, of which 0 wrong"),
    ],
)
def test_what_is_missing_is_said_in_one_line(results, words):
    text = sources.law_text(results)
    assert words in text and "\n" not in text and sources.law_sentence(results) == ""
    with pytest.raises(ValueError, match="expected"):
        sources.read_law(results)

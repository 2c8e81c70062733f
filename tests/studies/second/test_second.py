"""A second model is asked in plain text, and what is said of it is what was counted."""

import re

import numpy as np
import pytest
import xarray as xr
from lookup_worlds import TEMPLATE, byte_tokenizer

from posbias.conditions.each.one_by_one import _asking as asking_for
from posbias.lookup.contexts import make_contexts
from posbias.lookup.reading import count_sources
from posbias.lookup.tasks import Task
from posbias.prompts import Ask, write_prompt
from studies.documents.evidence import with_interval
from studies.questions.asks import as_ask, in_template, write_ask
from studies.questions.rows import Passage, Question
from studies.second import checks, evidence

PLACES = np.arange(8)


def test_plain_text_does_not_repeat_the_beginning_of_the_answer():
    """A model of no instructions would write the dots again."""
    [context] = make_contexts(Task("documents", 3), 1, 0)
    ask = context.asks["competing"][1]
    plain, asked = (write_prompt(byte_tokenizer(), "documents", one, False, True).text for one in (ask, TALK))
    assert plain.endswith(f"\n\nQuestion: How does this sentence go on?\nAnswer: {ask.begin}")
    assert "…" not in plain and "What … " in asked
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    assert f"{ask.begin} …" in write_prompt(tokenizer, "documents", ask, True, False).text


TALK = Ask(("a", "b"), "What … is a?", "b", "It is")


def test_a_tokenizer_without_a_template_is_asked_in_plain_text():
    tokenizer, question = byte_tokenizer(), Question("who?", ("me",), Passage("A", "me"), (Passage("B", "b"),))
    assert in_template(tokenizer, "x") == ("x", True)
    prompt = write_ask(tokenizer, as_ask(question, 1))
    assert prompt.text.endswith("Document [2](Title: A) me\n\nQuestion: who?\nAnswer:") and prompt.answer == " me"
    prompt = write_ask(tokenizer, asking_for(as_ask(question, 0)))
    assert prompt.text.endswith("(Title: B) b\n\nQuestion:") and prompt.answer == " who?"
    plain = write_prompt(tokenizer, "documents", asking_for(TALK), False, True).text
    assert plain.endswith("Document 2: b\n Question:") and "Answer:" not in plain


def answers(source):
    """Return an entry of answers from these documents."""
    source = np.asarray(source)
    found = {"source": source, "correct": source == np.arange(source.shape[1])}
    return xr.Dataset({name: (("set", "document"), x.astype(int)) for name, x in found.items()})


def world(rng, sharp=0.9, slip=1):
    """Return 20 sets of 8, 16 and 32 documents: Gemma errs now and then, to a neighbour; SmolLM2 in the middle."""
    kept = {}
    for P in evidence.LENGTHS:
        asked = np.tile(np.arange(P), (20, 1))
        step = np.where(asked == 0, slip, -slip)
        kept[f"gemma3.facts-{P}"] = answers(np.where(rng.random(asked.shape) < sharp, asked, asked + step))
        middle = (asked > 0) & (asked < P - 1) & (rng.random(asked.shape) < 0.8)
        kept[f"smollm2.facts-{P}"] = answers(np.where(middle, P - 1, asked))
    for model in evidence.NAMES:
        kept[f"{model}.facts-16-short"] = kept[f"{model}.facts-16"].assign(tokens=300)
    return kept


def test_places_and_mistakes_are_told_apart(monkeypatch):
    monkeypatch.setattr(evidence, "RESAMPLES", dict.fromkeys(evidence.LENGTHS, 4))
    seen = evidence.Evidence(world(np.random.default_rng(0)))
    places, mistakes = evidence.place_table(seen), seen.mistakes
    assert (places.xs("SmolLM2", level=1)["the middle is"] == "lost").all()
    assert (places.xs("Gemma", level=1)["the middle is"] != "lost").all()
    near = mistakes["from a neighbour"].str.extract(r"(\d+)%")[0].astype(int).unstack()
    assert (near["Gemma"] == 100).all() and (near["SmolLM2"] < 25).all()
    behind = mistakes["from behind"].str.extract(r"(\d+)%")[0].astype(int).unstack()
    assert (behind["SmolLM2"] == 100).all() and (behind["Gemma"] < 40).all()
    found = evidence.place_numbers(seen)
    x = seen.right("gemma3", 8)
    assert found["gemma3_8_first"] == x[:, 0].mean() and found["gemma3_8_middle"] == x[:, 1:-1].mean()
    assert found["gemma3_8_wrong"] == (x == 0).sum()


def test_checks_fail_where_the_opposite_is_so():
    rng = np.random.default_rng(0)
    seen = evidence.Evidence(world(rng))
    found = {check.part: check for check in checks.place_checks(seen, rng)}
    assert found["SmolLM2"].passed and found["Gemma, 8"].passed
    assert not found["Gemma, 32"].passed or found["Gemma, 32"].how["undecided"]
    kept = world(rng)
    for P in evidence.LENGTHS:
        kept[f"gemma3.facts-{P}"], kept[f"smollm2.facts-{P}"] = kept[f"smollm2.facts-{P}"], kept[f"gemma3.facts-{P}"]
    turned = {check.part: check for check in checks.place_checks(evidence.Evidence(kept), rng)}
    assert not turned["Gemma, 8"].passed and turned["Gemma, 32"].passed
    near = count_sources(seen.source("gemma3", 16))
    assert checks.near_more(near) and not checks.near_more(checks.drawn_again(near, rng))
    far = count_sources(evidence.Evidence(world(rng, slip=5)).source("gemma3", 16) % 16)
    assert not checks.near_more(far)


def test_three_heads_are_chosen_on_some_sets_and_judged_on_others():
    shares = np.full((10, 8, 3, 2, 8), 0.1, dtype=np.float32)
    for q in range(8):
        shares[:, q, 1, 0, q] = shares[:, q, 1, 1, q] = shares[:, q, 2, 0, q] = 1  # three heads point right
    judged = shares.copy()
    judged[0, 0, 1:, :, 0] = 0  # but once not
    points = shares.argmax(-1)
    points[..., 0, 0] = (np.arange(80) // 10).reshape(10, 8)  # right only if sets and questions are exchanged
    layers, heads = np.transpose(evidence.best_heads(points))
    kept = {"chosen_on": (("set_a", "question", "layer", "head"), points)}
    kept["judged_on"] = (("set_b", "question", "best", "document"), judged[:, :, layers, heads])
    entry = xr.Dataset(kept)
    best, hit = evidence.Evidence({"gemma3.heads": entry}).pointed("gemma3")
    assert {*best} == {"1.0", "1.1", "2.0"} and (~hit).sum() == 1 and not hit[0, 0]
    assert checks.points(hit) and not checks.points(hit & (PLACES != 3))


def test_what_was_kept_is_what_the_page_says():
    seen = evidence.load_evidence()
    table = evidence.place_table(seen)
    assert table.loc[(8, "SmolLM2"), "the middle is"] == "lost" and table.loc[(8, "Gemma"), "between"] > 0.7
    x = seen.kept["gemma3.facts-8"]
    assert x.attrs["revision"].endswith("6818") or re.search("gemma", x.attrs["model"])
    same = np.mean(x["correct"].values == (x["source"].values == PLACES))
    assert same > 0.98  # greedy answers and the likeliest tokens, but for what follows a number
    lead = seen.real[:, -1] - seen.real[:, 1:-1].mean(1)
    assert evidence.real_numbers(seen)["real_last_said"].startswith(f"{lead.mean():+.2f}")
    assert with_interval(checks.paired_difference(lead), "+.2f") == evidence.real_numbers(seen)["real_last_said"]


def test_the_difference_of_gains_is_that_of_the_second_model_less_the_first():
    table = evidence.way_table(evidence.load_evidence()).drop(evidence.WAYS["as-is"])
    gains = [table[f"{name} (95%)"].str.split().str[0].astype(float) for name in ("gain of SmolLM2", "gain of Gemma")]
    apart = table["difference (95%)"].str.split().str[0].astype(float)
    assert np.allclose(gains[1] - gains[0], apart, atol=0.011) and apart.min() < -0.1


@pytest.mark.parametrize("given, source", [(" 1417", 0), ("1845", 1), (" 18", -1), ("", -1)])
def test_an_answer_is_from_the_document_that_states_it(given, source):
    from studies.second.measure import stated_by

    assert stated_by(given, [Ask(("a", "b"), "?", "1417"), Ask(("a", "b"), "?", "1845")]) == source

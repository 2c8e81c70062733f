"""Where heads point is what attention says, with and without a cache; the table counts it."""

import numpy as np
import pytest
import torch
from lookup_worlds import byte_tokenizer
from measuring import make

import posbias
from posbias.conditions import read_condition
from posbias.engines.local import Reader
from posbias.heads import attended, find_heads, heads_table, point
from posbias.prompts import Ask, write_prompt

ASK = Ask(("one is 1", "two is 22", "three is 3"), "what is two?", "22", "It is")


def world(name):
    tokenizer = byte_tokenizer()
    model = make(name, vocab_size=len(tokenizer), max_position_embeddings=2048).eval()
    other = Ask(ASK.documents, "and what is three?", "3", "It is")
    return model, [write_prompt(tokenizer, "documents", ask, False, True) for ask in (ASK, other)]


@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom", "mistral"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_documents_have_the_attention_that_the_model_reports(name, attention):
    model, prompts = world(name)
    model.set_attn_implementation("eager")
    expected = []
    for prompt in prompts:
        with torch.no_grad():
            found = model(torch.tensor([prompt.ids]), output_attentions=True).attentions
        rows = np.stack([x[0, :, prompt.of("question")[0].start :].mean(1) for x in found])
        spans = prompt.of("document")
        expected.append(np.stack([rows[..., s.start : s.stop].sum(-1) for s in spans], -1))
    model.set_attn_implementation(attention if name != "bloom" else "eager")
    shared, whole = Reader(model), Reader(model, shared=False)
    for prompt, wanted in zip(prompts, expected, strict=True):
        np.testing.assert_allclose(attended(whole, prompt), wanted, atol=1e-5)
        np.testing.assert_allclose(attended(shared, prompt), wanted, atol=1e-5)


def test_of_a_question_that_is_asked_twice_the_last_one_counts():
    model, _ = world("llama")
    ask = read_condition("repeated:question")[1].rewrite(ASK)
    prompt = write_prompt(byte_tokenizer(), "documents", ask, False, True)
    last, spans = prompt.of("question")[-1], prompt.of("document")
    assert len(prompt.of("question")) == 2
    with torch.no_grad():
        weights = model(torch.tensor([prompt.ids]), output_attentions=True).attentions
    rows = np.stack([x[0, :, last.start :].mean(1) for x in weights])
    expected = np.stack([rows[..., s.start : s.stop].sum(-1) for s in spans], -1)
    np.testing.assert_allclose(attended(Reader(model), prompt), expected, atol=1e-5)


def test_the_table_counts_by_place_and_says_where_a_head_leans():
    asked = np.array([0, 1, 2, 2])
    pointed = np.stack([asked, [0, 0, 2, 1]], axis=-1)[:, None]  # one layer, two heads
    table = heads_table(pointed, asked, 3)
    assert table.index.tolist() == ["0.0", "0.1"]
    assert table.loc["0.0"].tolist() == [1, 1, 0, 1, 1, 1]
    assert table.loc["0.1"].tolist() == [0.5, 0, -0.5, 1, 0, 0.5]
    asked = np.array([0, 1, 0, 1])
    pointed = np.stack([[0, 0, 0, 0], [0, 1, 1, 0]], axis=-1)[:, None]  # each right in half, the second at both places
    assert heads_table(pointed, asked, 2).index.tolist() == ["0.1", "0.0"], "of equals the better one at its worst"
    pointed = np.zeros((4, 2, 3), dtype=int)  # two layers of three heads
    pointed[:, 1, 0] = asked
    assert heads_table(pointed, asked, 2).index[0] == "1.0"


def test_what_cannot_be_read_is_said_in_a_line():
    model, _ = world("llama")
    bare = write_prompt(byte_tokenizer(), "documents", Ask((), "why?", "1"), False, True)
    with pytest.raises(ValueError, match="prompt: expected documents with a question behind"):
        attended(Reader(model), bare)
    with pytest.raises(ValueError, match="heads: expected layers from 0 to 0"):
        point(np.ones((1, 2, 3)), [(0, 1), (1, 0)])
    with pytest.raises(ValueError, match="places: expected one for each prompt"):
        find_heads(Reader(model), [], [])


def test_heads_are_looked_for_on_eight_sets_or_all_rows(monkeypatch):
    asked, rows = [], [{"documents": list(ASK.documents), "question": ASK.question, "answer": "22"}] * 3
    seen = lambda settings, task, given, progress: asked.append((given or [0] * settings.prompts, task.arms))  # noqa: E731
    monkeypatch.setattr("posbias.lookup.run.fetching_heads", seen)
    opened = posbias.open(world("llama")[0], tokenizer=byte_tokenizer())
    for how in ({}, {"prompts": 2}, {"rows": rows}, {"rows": rows, "prompts": 1}):
        opened.fetching_heads(**how)
    assert [(len(sets), arms) for sets, arms in asked] == [(n, "competing") for n in (8, 2, 3, 1)]


def test_a_model_finds_heads_on_rows_and_on_invented_facts():
    model, _ = world("llama")
    opened = posbias.open(model, tokenizer=byte_tokenizer())
    made_up = opened.fetching_heads(prompts=1, places=3)
    rows = [{"documents": list(ASK.documents), "question": ASK.question, "answer": "22"}]
    own = opened.fetching_heads(rows)
    for table in (made_up, own):
        assert list(table)[:3] == ["right", "worst", "lean"] and list(table)[-1] == "place 3"
        assert table["right"].is_monotonic_decreasing and table["right"].between(0, 1).all()

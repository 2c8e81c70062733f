"""Prompts that are in memory: texts, tables and conversations, of as many tokens as the shortest has."""

import json

import datasets
import pandas as pd
import pytest
from measuring import arguments, save, status, text
from transformers import AutoTokenizer

import posbias
from posbias.measure.corpus import make_corpus, make_prompts

TEXTS = [text(words, seed) for seed, words in enumerate((20, 5, 5, 33, 12))]
LENGTHS = [21, 6, 6, 34, 13]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.content }} bad {% endfor %}{% if add_generation_prompt %}bar{% endif %}"
)
ASKED = [{"role": "user", "content": "kam kan"}, {"role": "assistant", "content": "lar"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("place") / "llama")


@pytest.fixture(scope="module")
def tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="module")
def model(folder, tokenizer):
    place = folder.with_name("chat")
    save(place)
    tokenizer.save_pretrained(place)
    return posbias.open(place)


def test_texts_are_their_last_tokens_as_many_as_the_shortest_has(model, tokenizer, tmp_path):
    found = model.measure(texts=TEXTS, quantities="influence")
    assert found.length == min(LENGTHS) and found.described == "chat, 5 prompts of 6 tokens (texts in memory)"
    ids = [[0, *tokenizer(one)["input_ids"][-5:]] for one in TEXTS]
    assert found.results["tokens"].values.tolist() == ids and found.results.attrs["rule"] == "last"
    first = model.measure(texts=TEXTS, length=6, rule="first", quantities="influence")
    assert first.results["tokens"].values.tolist() == [tokenizer(one)["input_ids"][:6] for one in TEXTS]
    bare = model.measure(texts=TEXTS, special_tokens=False, quantities="influence")
    assert bare.results["tokens"].values.tolist() == [row[1:] for row in ids]


@pytest.mark.parametrize(
    "rows", [pd.Series(TEXTS), datasets.Dataset.from_dict({"body": TEXTS})["body"], (one for one in TEXTS)]
)
def test_columns_hold_the_same_texts(rows):
    assert make_corpus(rows).given == tuple(TEXTS)


def test_the_last_tokens_and_the_first(tokenizer):
    ids = [tokenizer(one)["input_ids"] for one in TEXTS]
    for rule, cut in (("first", lambda row: row[:6]), ("last", lambda row: [0, *row[-5:]])):
        made = make_prompts(make_corpus(TEXTS), tokenizer, 5, 6, rule=rule)
        assert made.ids.tolist() == [cut(row) for row in ids]


@pytest.mark.parametrize("rule", ["last", "first"])
@pytest.mark.parametrize("texts", [["ban bar bad"], ["<s> ban bar bad"], ["<s><s>ban bar bad"]])
def test_there_is_one_start_token(tokenizer, rule, texts):
    made = make_prompts(make_corpus(texts), tokenizer, 1, 4, rule=rule)
    assert (made.ids == 0).sum() == 1 and made.ids[0, 0] == 0 and made.ids.shape == (1, 4)
    own = tokenizer(texts[0], add_special_tokens=False)["input_ids"]
    bare = make_prompts(make_corpus(texts), tokenizer, 1, len(own), rule=rule, special_tokens=False)
    assert bare.ids[0].tolist() == own


@pytest.mark.parametrize(("said", "expected"), [(ASKED[:1], "<s> kam kan bad bar"), (ASKED, "<s> kam kan bad lar")])
def test_conversations_go_through_the_template(tokenizer, model, said, expected, tmp_path, capsys):
    ids = tokenizer(expected, add_special_tokens=False)["input_ids"]
    both = model.measure(texts=[said, ASKED[:1]])
    assert both.results["tokens"].values[0].tolist() == [0, *ids[-(both.length - 1) :]]
    assert both.length == 5 and model.measure(texts=[said], quantities="influence").length == len(ids)
    (tmp_path / "d.jsonl").write_text("".join(json.dumps({"chat": x}) + "\n" for x in (said, ASKED[:1])))
    words = arguments(None, tmp_path / "m.nc", "--field", "chat", "--rule", "last", length=5, prompts=2, batch_size=1)
    code, _, err = status(capsys, [words[0], model.source.model, "-d", str(tmp_path / "d.jsonl"), *words[1:]])
    assert code == 0, err
    found = posbias.load(tmp_path / "m.nc").results
    assert found.attrs["prompts_sha256"] == both.results.attrs["prompts_sha256"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": []}, "texts: expected one or more, received none"),
        ({"texts": "ban"}, "texts: expected a list or a column of texts or of conversations, received str"),
        ({"texts": ["ban", " "]}, "texts: row 1: expected a text, or messages .*, received ' '"),
        ({"texts": pd.Series(["ban", None])}, "texts: row 1: expected a text, or messages .*, received nan|None"),
        ({"texts": pd.DataFrame({"a": TEXTS})}, "texts: expected a list or a column of texts .*, received DataFrame"),
        ({"texts": ["ban"], "special_tokens": False}, "length: expected an integer of at least 2, received 1"),
        ({"texts": [text(80)]}, "length: expected at most 64 tokens, .*, received 81"),
        ({"texts": TEXTS, "length": 7}, "expected 5 prompts of 7 tokens, received 3 from 5 documents"),
        ({"texts": TEXTS, "rule": "random"}, "texts: expected none with the rule random"),
        ({"texts": TEXTS, "dataset": "builtin"}, "texts: expected none beside dataset, received both"),
        ({"texts": [[{"role": "user"}]]}, "texts: row 0: expected a text, or messages with a role"),
        ({"texts": ["ban \udcff kam lar"]}, "document 0: expected text that UTF-8 can hold"),
        ({"texts": [{"role": "user", "content": "ban \ud800"}]}, "document 0: expected text that UTF-8 can hold"),
        ({"texts": [{"role": "user", "content": None}]}, "texts: row 0: expected a text, or messages with"),
        ({"texts": TEXTS, "target": "next"}, "measure: expected settings among .*, received target"),
        ({"corpus": ["x" * 10**7]}, "measure: expected settings among .*, received corpus"),
        ({"prompts": 2.5}, "prompts: expected an integer, received 2.5"),
        ({"dataset": 5}, "dataset: expected a text, received 5"),
        ({"quantities": 5}, "quantities: expected some of mixing, .*, received 5"),
    ],
)  # fmt: skip
def test_what_is_no_prompt_is_refused_in_a_line(model, given, message):
    with pytest.raises(ValueError, match=message) as refused:
        model.measure(**given)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_a_tokenizer_without_a_template_and_a_template_that_refuses(folder, tokenizer):
    with pytest.raises(ValueError, match="document 0: expected texts, or a tokenizer with a chat template, received"):
        posbias.open(folder).measure(texts=ASKED)
    tokenizer.chat_template = "{{ raise_exception('one system message') }}"
    try:
        with pytest.raises(ValueError, match="expected messages that the chat template takes, received one system"):
            make_prompts(make_corpus(ASKED[:1]), tokenizer, 1, 4)
    finally:
        tokenizer.chat_template = TEMPLATE


def test_a_dry_run_refuses_what_the_run_would(model, tmp_path, capsys):
    words = ["measure", model.source.model, "-N", "2", "-n", "8", "-o", str(tmp_path / "m.nc"), "--dry-run"]
    code, out, _ = status(capsys, words)
    assert (
        code == 0 and out.startswith("memory: weights of ") and "\ndisk: about " in out and "\ntime: about 00:" in out
    )
    code, out, err = status(capsys, [*words, "-N", "1000"])
    assert code == 2 and not out and "expected 1000 prompts of 8 tokens, received 720 from 720" in err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "m.nc").write_text("")
    assert "or --overwrite, received one that is there" in status(capsys, words)[2]

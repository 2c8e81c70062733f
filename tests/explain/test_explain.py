"""One prompt: influence of its parts, deletions, contributions, the page, refusals."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from lookup_worlds import TEMPLATE
from measuring import LLAMA, WORDS, refused, save, status, text
from parsed import Parsed
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, set_seed

import posbias
from posbias.engines.local import Reader as CacheReader
from posbias.engines.local import open_reader
from posbias.explain.explanation import answer
from posbias.explain.measure import LEAST
from posbias.explain.page import _shaded, segment_figure
from posbias.explain.prompt import check_asked, read_ask, token_texts, without_label, write
from posbias.predict import predict
from posbias.prompts import Ask

PARTS = [text(9, 1), text(5, 2), text(7, 3), text(4, 4)]
TEXT = "\n\n".join(PARTS)
N = 26
ONE, OTHER = WORDS[3], WORDS[7]
ANSWER = f"{WORDS[5]} {WORDS[9]} {WORDS[2]}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a model that has a row and one without."""
    root = tmp_path_factory.mktemp("explain")
    save(root / "llama")
    save(root / "persimmon")
    (root / "persimmon" / "model.safetensors").unlink()
    set_seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model("persimmon", **LLAMA))
    network.save_pretrained(root / "persimmon")
    return root


def explained(place, name="llama", **asked):
    return posbias.open(place / name).explain(TEXT, **asked)


def own(place, name, ids, value):
    """Return shares of gradient norms by autograd over the whole model, and the function's value."""
    model = AutoModelForCausalLM.from_pretrained(place / name, attn_implementation="eager").eval()
    x = model.get_input_embeddings()(ids[None]).detach().requires_grad_(True)
    y = value(model(inputs_embeds=x).logits[0])
    (g,) = torch.autograd.grad(y, x)
    size = g[0].norm(dim=-1)[:N]
    return (size / size.sum()).numpy(), float(y.detach())


def tokens(place, words):
    tokenizer = AutoTokenizer.from_pretrained(place / "llama")
    return torch.tensor(tokenizer(words)["input_ids"]), torch.tensor(tokenizer.convert_tokens_to_ids(words.split()))


def answer_value(place):
    answer = tokens(place, ANSWER)[1]
    return lambda z: z[-3:].log_softmax(-1)[range(3), answer].sum()


@pytest.mark.parametrize("name", ["llama", "persimmon"])
@pytest.mark.parametrize("case", ["top", "answer"])
def test_influence_and_deletions_are_those_of_the_model(place, name, case):
    ids = tokens(place, TEXT)[0]
    asked, followed, value = {
        "top": ({}, [], lambda z: z[-1].softmax(-1).amax()),
        "answer": ({"answer": ANSWER}, tokens(place, ANSWER)[1][:-1], answer_value(place)),
    }[case]
    found = explained(place, name, **asked)
    after = torch.tensor([*map(int, followed)], dtype=torch.long)
    share, y = own(place, name, torch.cat([ids, after]), value)
    assert np.allclose(found.tokens["share"], share, rtol=1e-3, atol=1e-6) and np.isclose(found.value, y, atol=1e-5)
    assert "".join(found.tokens["token"][1:]) == TEXT and found.tokens["segment"].tolist()[:2] == [0, 1]
    summed = found.tokens.groupby("segment")["share"].sum()[1:]
    assert np.allclose(found.segments["share"], summed) and found.segments["tokens"].tolist() == [9, 5, 7, 4]

    model = AutoModelForCausalLM.from_pretrained(place / name, attn_implementation="eager").eval()
    segment = found.tokens["segment"].to_numpy()

    def kept(rows):
        with torch.no_grad():
            z = model(torch.cat([ids[rows], after])[None]).logits[0]
        return float(z[-1].log_softmax(-1)[top] if case == "top" else value(z))

    with torch.no_grad():
        top = int(model(ids[None]).logits[0, -1].argmax())
    if case == "top":
        assert found.target.endswith(repr(AutoTokenizer.from_pretrained(place / name).decode([top])))
    whole = kept(segment >= 0)
    assert np.allclose(found.segments["removed"], [kept(segment != k) - whole for k in (1, 2, 3, 4)], atol=1e-4)


@pytest.mark.parametrize("target", [{}, {"answer": ANSWER}])
def test_beginnings_are_read_once_if_that_says_what_the_gradients_pass_did(place, monkeypatch, target):
    readers = []

    def opened(*args, known):
        readers.append((known, open_reader(*args, known=known), open_reader(*args, known=known + 0.01).shared))
        return readers[-1][1]

    monkeypatch.setattr("posbias.engines.local.open_reader", opened)
    found = explained(place, **target)
    known, reader, other = readers[0]
    assert reader.shared and not other, "another number than the gradient's: each prompt is read whole"
    if "answer" in target:
        assert known == pytest.approx(found.value)


def test_the_page_and_the_command(place, tmp_path, capsys):
    (tmp_path / "p.txt").write_text(TEXT.replace(PARTS[1], "<b>" + PARTS[1][3:]) + "\n")
    words = ["explain", str(place / "llama"), "-p", str(tmp_path / "p.txt"), "-o", str(tmp_path / "p.html")]
    code, out, err = status(capsys, words)
    assert code == 0, err
    assert "4 segments" in out and "Of the segments before the last, the target depends most on segment" in out
    page = Parsed((tmp_path / "p.html").read_text())
    fetched = [x.get(name, "#") for _, x in page.tags for name in ("src", "href", "srcset")]
    assert "script" not in page.seen and all(x.startswith(("data:", "#")) for x in fetched) and "b" not in page.seen
    said = page.text
    for part in ("A gradient is local", "<b>", "log-probability", "Contributions follow", "times less likely"):
        assert part in said
    assert said.index("depends most on") < said.index("Segment by segment") < said.index("Token by token")
    assert page.seen.count("span") == 1 + 25 + 2  # <, b and > are a token each, in place of one
    code, _, err = status(capsys, words)
    assert code == 2 and "--overwrite" in err
    (tmp_path / "p.txt").write_text(PARTS[0])
    code, out, err = status(capsys, [*words, "--overwrite", "--dtype", "float32"])
    assert code == 0 and "in 1 segments" in out and "depends most" not in out, err
    assert "nan" not in Parsed((tmp_path / "p.html").read_text()).text


def test_an_answer_without_the_space_that_the_prompt_needs_is_told(tmp_path):
    """Of a byte-level tokenizer, for which a word behind a space is another token."""
    model, page = posbias.open("reference/bloom-8"), tmp_path / "p.html"
    prompt = "The function returns the number of items in the list.\n\nThe method returns"
    word = model.explain(prompt, answer=" it").own_answer.split()[0]
    found = {x: model.explain(prompt, answer=x) for x in (f" {word}", word, "zebra")}
    assert [(x.is_own, x.is_spaced) for x in found.values()] == [(True, False), (False, True), (False, False)]
    told = ["but for a space in front: add it to --answer" in repr(x) for x in found.values()]
    assert told == [False, True, False] and "but for a space" in found[word].report(page).read_text()


def test_what_the_model_itself_answers_is_said(place, tmp_path, capsys, monkeypatch):
    """The likeliest token each time, by hand; the prompt is read no more often for it, the answer once more."""
    tokenizer = AutoTokenizer.from_pretrained(place / "llama")
    network = AutoModelForCausalLM.from_pretrained(place / "llama").eval()
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    n = ids.shape[1]
    with torch.no_grad():
        for _ in range(LEAST + 3):
            ids = torch.cat([ids, network(ids).logits[:, -1:].argmax(-1)], 1)
    likeliest, longer = (tokenizer.decode(ids[0, n:end]).strip() for end in (n + LEAST, None))
    assert not {*tokenizer.all_special_ids} & {*ids[0, n:].tolist()}, "or the answer would end early"
    asked, real = [], CacheReader.logits
    monkeypatch.setattr(CacheReader, "logits", lambda self, *x: asked.append(x) or real(self, *x))
    bare = explained(place)
    read = len(asked)
    assert bare.own_answer is None and bare.is_own is None and "itself" not in repr(bare)
    own = explained(place, answer=" ".join(likeliest.split()[:3]))
    assert own.own_answer == likeliest and own.is_own and len(asked) == 2 * read + LEAST + 1
    assert f"the model itself answers: {likeliest[:20]!r}"[:-1] in repr(own)
    assert "which begins with the answer that is explained" in repr(own)
    assert explained(place, answer=" ".join(WORDS[: LEAST + 3])).own_answer == longer, "as long as what is given"
    words = likeliest.split()
    other = next(word for word in WORDS if word not in words)
    begun = explained(place, answer=f"{words[0]} {other}")
    assert not begun.is_own and ", not the answer that is explained" in repr(begun), "its first token is not enough"
    (tmp_path / "p.txt").write_text(TEXT)
    words = ["explain", str(place / "llama"), "-p", str(tmp_path / "p.txt"), "-o", str(tmp_path / "p.html")]
    code, out, _ = status(capsys, [*words, "--answer", ANSWER])
    assert code == 0 and ", not the answer that is explained\n" in out
    said = Parsed((tmp_path / "p.html").read_text()).text
    assert f"The model itself answers “{' '.join(likeliest.split())}”, not the answer that is explained" in said


def test_a_page_that_cannot_be_written_leaves_the_old_one(place, tmp_path, monkeypatch):
    file = tmp_path / "p.html"
    file.write_text("old")
    found = explained(place)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        found.report(file)
    assert file.read_text() == "old" and [*tmp_path.iterdir()] == [file]


def test_a_file_of_rows_has_one_row(place, tmp_path, capsys):
    row = json.dumps({"documents": PARTS[:3], "question": ONE, "answer": ANSWER})
    (rows := tmp_path / "r.jsonl").write_text(f"{row}\n" * 2)
    words = ["explain", str(place / "llama"), "-p", str(rows), "-o", str(tmp_path / "p.html")]
    refused(capsys, tmp_path, words, "UTF-8; .json(l): messages or one row", there=[rows])


def test_contributions_are_those_of_the_prompt(place, monkeypatch):
    found = explained(place)
    opened = posbias.open(place / "llama")
    alone = opened.measure(texts=[TEXT], length=N, quantities="contributions").results
    p = predict(alone, "contributions")
    summed = [p[found.tokens["segment"] == k].sum() / p.sum() for k in (1, 2, 3, 4)]
    assert np.allclose(found.segments["contributed"], summed, atol=1e-5)
    assert explained(place, "persimmon").segments["contributed"].isna().all(), "a family without a row"
    monkeypatch.setattr("posbias.explain.measure.KERNEL_SIZE", N - 1)
    assert explained(place).segments["contributed"].isna().all(), "matrices that are not kept whole"


def test_a_start_token_that_is_written_in_the_prompt_is_in_no_segment(place):
    """As chat templates write it."""
    tokenizer = AutoTokenizer.from_pretrained(place / "llama")
    bare, found = (write(tokenizer, words, None) for words in (TEXT, f"<s>{TEXT}"))
    assert np.array_equal(found.ids, bare.ids) and np.array_equal(found.segment, bare.segment)
    one, other = (token_texts(tokenizer, prompt) for prompt in (bare, found))
    assert other[2:] == one[2:] and other[1] == f"<s>{one[1]}"
    for template, starts in ((TEMPLATE, 0), (tokenizer.bos_token + TEMPLATE, 1)):
        tokenizer.chat_template = template
        assert write(tokenizer, ROW, None).ids.count(0) == starts, "a template has its own"


def test_documents_are_segments_by_their_headings_and_messages_go_through_the_template(place, tmp_path, capsys):
    row = {"documents": PARTS[:3], "question": ONE, "answer": ANSWER, "begin": OTHER}
    found = posbias.open(place / "llama").explain(row)
    assert found.segments["label"].tolist() == ["segment 1", "Document 1", "Document 2", "Document 3", "segment 5"]
    assert found.segments["text"][3].startswith(f"Document 2: {PARTS[1]}") and found.target.endswith(f"' {ANSWER}'")
    assert without_label(found.segments["text"][3], "Document 2") == PARTS[1] + "\n\n"
    assert without_label("## Costs\nHigh.", "Costs") == "\nHigh." and without_label("It is.", "segment 4") == "It is."
    asked = posbias.open(place / "llama").lookup(rows=[{**row, "gold": 0}], arms="competing").results
    assert found.value == pytest.approx(float(asked["log_probability"][0, 0, 0]), abs=1e-4)
    tokenizer = AutoTokenizer.from_pretrained(place / "llama")
    tokenizer.chat_template = TEMPLATE
    network = AutoModelForCausalLM.from_pretrained(place / "llama")
    messages = [{"role": "user", "content": TEXT}]
    chat = posbias.open(network, tokenizer=tokenizer).explain(messages)
    assert "".join(chat.tokens["token"]).endswith("<assistant>") and len(chat.segments) == 4
    for begun in ("", tokenizer.bos_token):  # a template may write the start token itself
        tokenizer.chat_template = begun + TEMPLATE
        opened, given = posbias.open(network, tokenizer=tokenizer), {**row, "gold": 0}
        asked = opened.lookup(rows=[given], arms="competing").results["log_probability"]
        chat = opened.explain(given)
        assert chat.value == pytest.approx(float(asked[0, 0, 0]), abs=1e-4) and chat.target.endswith(f"' {ANSWER}'")
    network.lm_head.weight.data.zero_()
    with pytest.raises(ValueError, match="^influence: expected gradients above 0, received none in float32"):
        opened.explain(TEXT)
    (tmp_path / "m.json").write_text(json.dumps([*messages, {"role": "assistant", "content": ONE}]))
    words = ["explain", str(place / "llama"), "-p", str(tmp_path / "m.json"), "-o", str(tmp_path / "p.html")]
    refused(capsys, tmp_path, words, "messages: expected a last one that is", there=[tmp_path / "m.json"])


def test_a_row_is_read_as_a_lookup_reads_it():
    """As Liu et al.'s files have it, too, or with its documents as JSON; an answer may come from outside."""
    passages = [{"title": "T", "text": ONE}, {"text": f"{OTHER} {ANSWER}", "isgold": True}]
    documents = [f"(Title: T) {ONE}", f"{OTHER} {ANSWER}"]
    for row, given in (
        ({"ctxs": passages, "answers": ["zzz", ANSWER]}, None),
        ({"ctxs": passages}, f" {ANSWER} "),
        ({"ctxs": passages, "answer": None}, ANSWER),
        ({"documents": json.dumps(documents), "answer": ANSWER}, OTHER),
    ):
        check_asked(row | {"question": ONE}, given)
        assert read_ask(row | {"question": ONE}, given) == Ask((*documents,), ONE, ANSWER)
    passages[0]["text"] = ANSWER
    assert read_ask({"ctxs": passages, "question": ONE}, ANSWER).documents[0] == f"(Title: T) {ANSWER}"
    del passages[1]["isgold"]
    with pytest.raises(ValueError, match="prompt: answer: expected one that stands in one document"):
        check_asked({"ctxs": passages, "question": ONE}, ANSWER)


ROW = {"documents": PARTS[:3], "question": ONE, "answer": ANSWER}


def test_a_condition_on_the_prompt_explains_the_prompt_that_it_writes(place):
    opened = posbias.open(place / "llama")
    found = opened.explain(ROW, condition="order:reversed")
    other = opened.explain({**ROW, "documents": PARTS[2::-1]})
    assert found.segments["text"].tolist() == other.segments["text"].tolist()
    assert np.allclose(found.segments["removed"], other.segments["removed"], atol=1e-4)
    assert np.allclose(found.tokens["share"], other.tokens["share"], rtol=1e-3)
    assert found.model == "llama, under order:reversed"


def test_a_condition_on_the_model_is_there_in_gradient_contributions_and_deletions(place):
    opened = posbias.open(place / "llama")
    plain, found = opened.explain(ROW), opened.explain(ROW, condition="sharper:4")
    assert not np.allclose(found.segments["contributed"], plain.segments["contributed"], atol=1e-3)
    network = AutoModelForCausalLM.from_pretrained(place / "llama").eval()
    with posbias.conditions.sharper(network, 4.0):
        changed = posbias.open(network, tokenizer=str(place / "llama")).explain(ROW)
    assert found.value == pytest.approx(changed.value, abs=1e-4) != pytest.approx(plain.value, abs=1e-3)
    for column in ("removed", "share", "contributed"):
        assert np.allclose(found.segments[column], changed.segments[column], atol=1e-4), column
    assert np.allclose(opened.explain(ROW).segments["removed"], plain.segments["removed"], atol=1e-5), "given back"


def test_documents_side_by_side_are_deleted_side_by_side(place):
    """Where documents have no place, their order changes nothing of what their deletion does."""
    opened = posbias.open(place / "llama")
    found = opened.explain(ROW, condition="parallel-windows")
    other = opened.explain({**ROW, "documents": PARTS[2::-1]}, condition="parallel-windows")
    removed, moved = (x.segments["removed"].to_numpy()[1:4] for x in (found, other))
    assert np.allclose(removed, moved[::-1], atol=1e-4) and found.segments["contributed"].isna().all()
    assert np.allclose(found.segments["share"][1:4], other.segments["share"].to_numpy()[3:0:-1], atol=1e-5)
    assert not np.allclose(removed, opened.explain(ROW).segments["removed"].to_numpy()[1:4], atol=1e-4)


def segments(share, contributed, removed):
    """Return a table of segments of 10 tokens."""
    labels = [f"Document {k}" for k in range(1, len(share) + 1)]
    columns = {"label": labels, "text": [f"part {k}" for k in range(1, len(share) + 1)], "tokens": 10, "share": share}
    columns |= {"contributed": contributed, "removed": removed}
    return pd.DataFrame(columns, index=range(1, len(share) + 1))


def test_the_answer_in_words_leads_with_the_deletion_and_says_who_disagrees():
    said = answer(segments([0.1, 0.4, 0.2, 0.3], [0.5, 0.1, 0.1, 0.3], [-2.5, 0.25, np.nan, -9]))
    assert said[0] == (
        "Of the segments before the last, the target depends most on Document 1 (“part 1”): without it, its "
        "log-probability changes by -2.500 nats. "
        "Without Document 2 (“part 2”) it rises most (+0.250)."
    )
    assert said[1] == "The gradient points to Document 2 instead: trust the deletion, which was tried."
    assert said[2:] == ["All this is among the segments before the last, which has 30% of the influence."]
    both = answer(segments([0.4, 0.1, 0.2, 0.3], [0.5, 0.1, 0.1, 0.3], [-2.5, -1, -1, -9]))
    assert both[1] == "Gradient and contributions agree: the most is on the same segment."
    one = answer(segments([0.4, 0.1, 0.2, 0.3], [0.1, 0.1, 0.5, 0.3], [-2.5, -1, -1, -9]))
    assert one[0].endswith("-2.500 nats.") and one[1].startswith("The contributions point to Document 3 instead:")
    more = answer(segments([0.4, 0.1, 0.2, 0.3], np.nan, [0.5, 1.0, 2.0, -9]))
    assert more[0].startswith("No deletion lowers the target's log-probability. Without Document 3")
    alone = answer(segments([0.1, 0.3, 0.6], [0.3, 0.2, 0.5], np.nan))
    assert alone[:2] == [
        "The gradient points to Document 2 (“part 2”); no deletion was tried.",
        "The contributions point to Document 1 (“part 1”); no deletion was tried.",
    ]
    two = answer(segments([0.4, 0.6], np.nan, [-1.0, -2.0]))
    assert "most on Document 2" in two[0] and two[1:] == ["Gradient agrees: the most is on the same segment."]
    assert answer(segments([1.0], np.nan, np.nan)) == []


def test_the_page_shades_by_share_and_sets_the_last_of_three_aside():
    depths = _shaded(pd.DataFrame({"share": [0.1, 0.025, 0.0]}))["depth"]
    assert depths.tolist() == pytest.approx([0.85, 0.425, 0])
    three, two = (segments([1 / n] * n, [1 / n] * n, [-1.0] * n) for n in (3, 2))
    told = ["the last segment’s aside" in segment_figure(table).caption for table in (three, two)]
    assert told == [True, False]


BAD_PROMPTS = {
    "empty": ({"text": " \n"}, "text: expected a text, messages"),
    "no text": ({"text": 5}, "text: expected a text, messages with a role and a content, or documents"),
    "one token": ({"text": ONE}, "text: expected 2 tokens or more, received 1"),
    "too long": ({"text": f"{text(70)}\n\n{ONE}"}, "length: expected at most 64 tokens, the model's context"),
    "answer too long": ({"answer": text(45)}, "length: expected at most 64 tokens, the model's context"),
    "empty answer": ({"answer": ""}, "answer: expected a text, received ''"),
    "unknown answer": ({"answer": "zzz"}, "answer: expected tokens that the model has"),
    "messages": ({"text": [{"role": "user", "content": ONE}]}, "messages: expected texts, or a tokenizer with a chat"),
    "answered": ({"text": [{"role": "assistant", "content": ONE}]}, "messages: expected a last one that is to be"),
    "one document": ({"text": {"documents": [ONE], "question": ONE}}, "prompt: documents: expected a list of two"),
    "no answer": ({"text": {"documents": [ONE, OTHER], "question": ONE}}, "prompt: answer: expected a text"),
    "answer in two": (
        {"text": {"documents": [ONE, ONE + OTHER], "question": OTHER, "answer": ONE}},
        "prompt: answer: expected one that stands in one document",
    ),
    "condition": ({"condition": "nothing"}, "condition: expected one of adapter"),
    "asking": ({"text": ROW, "condition": "one-by-one"}, "condition: expected one that changes the model or the"),
    "tokens": ({"condition": "order-shuffled"}, "condition: expected one that changes the model or the prompt"),
    "no documents": ({"condition": "order:reversed"}, "condition: expected one that changes the model, for a prompt"),
    "heads": ({"condition": "sharper:heads=9.9"}, "condition: heads: expected layers from 0 to 2"),
    "setting": ({"rule": "cut"}, "explain: expected settings among dtype, device"),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_bad_prompts_are_refused_before_the_model_is_loaded(place, name, monkeypatch):
    monkeypatch.setattr("posbias.models.loading.Source.load_model", None)
    asked, expected = BAD_PROMPTS[name]
    with pytest.raises(ValueError) as error:
        posbias.open(place / "llama").explain(**{"text": TEXT} | asked)
    assert str(error.value).startswith(expected) and "\n" not in str(error.value)

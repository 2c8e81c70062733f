"""Which document heads look at in one prompt, and which one the model's own answer is from."""

import pytest
from measuring import WORDS, save, text

import posbias

TEXT = f"{text(9, 1)}\n\n{text(5, 2)}"
ROW = {"documents": [f"{WORDS[k]} {WORDS[k + 1]} {WORDS[20 + k]}" for k in range(0, 8, 2)], "question": WORDS[40]}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a tiny model."""
    root = tmp_path_factory.mktemp("heads")
    save(root / "llama")
    return root


@pytest.mark.parametrize("where", [0, 3])
def test_heads_say_where_the_model_looked_and_deletion_where_its_own_answer_is_from(place, monkeypatch, where):
    asked = []

    def look(reader, prompt, heads):
        asked.append(heads)
        return where

    monkeypatch.setattr("posbias.explain.measure.looked_at", look)
    opened = posbias.open(place / "llama")
    own = opened.explain({**ROW, "answer": WORDS[1], "gold": 0}).own_answer.split()[0]
    found = opened.explain({**ROW, "answer": own, "gold": 0}, heads="0.0+1.1")
    documents = found.segments[found.segments["label"].str.startswith("Document")]
    source = documents.loc[documents["removed"].idxmin(), "label"]
    assert found.is_own and asked == [[(0, 0), (1, 1)]] and repr(found).endswith(found.looked[0])
    said = f"The model looked at Document {where + 1} and answered from {source}"
    sign = ", which is a sign of a wrong answer."
    assert found.looked == (said + ("." if source == f"Document {where + 1}" else sign),)


@pytest.mark.parametrize(
    "own, source, sign",
    [
        ("gon. Else", "Document 3", ", which is a sign of a wrong answer"),
        (f"{WORDS[2]} {WORDS[3]}", "Document 2", ""),
        ("nowhere", "no document alone", ""),
    ],
)
def test_an_answer_that_is_not_explained_is_from_the_document_that_has_its_words(place, monkeypatch, own, source, sign):
    rows = {**ROW, "documents": [*ROW["documents"][:2], "it is gon", ROW["documents"][3]]}
    monkeypatch.setattr("posbias.explain.measure.PromptReader.answer", lambda self: (own, False, False))
    monkeypatch.setattr("posbias.explain.measure.looked_at", lambda *_: 1)
    found = posbias.open(place / "llama").explain({**rows, "answer": WORDS[0], "gold": 0}, heads="1.0")
    assert found.looked == (f"The model looked at Document 2 and answered from {source}{sign}.",)


@pytest.mark.parametrize(
    "text, heads, said",
    [
        (TEXT, "0.0", "heads: expected none without documents and a question"),
        ({**ROW, "answer": WORDS[0], "gold": 0}, "0.77", "heads: expected layers from 0 to 2 and heads"),
        ({**ROW, "answer": WORDS[0], "gold": 0}, "first", "heads: expected a value that can be read"),
    ],
)
def test_heads_that_are_not_there_or_have_no_documents_are_refused_in_a_line(place, monkeypatch, text, heads, said):
    monkeypatch.setattr("posbias.models.loading.Source.load_model", lambda *_: pytest.fail("loaded"))
    with pytest.raises(ValueError, match=said):
        posbias.open(place / "llama").explain(text, heads=heads)

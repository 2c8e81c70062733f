"""posbias lookup: the file, what it says, changed models, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from lookup_worlds import TEMPLATE, byte_tokenizer, save_network
from measuring import WORDS, refused, save, status
from transformers import AutoModelForCausalLM, AutoTokenizer

import posbias
from posbias.engines import local
from posbias.engines.local import Reader
from posbias.lookup import run as module
from posbias.lookup.file import said_of_heads
from posbias.models.biases import added_biases
from posbias.models.loading import Source


def row(k, places=4, **changes):
    """Return a row whose second document has the answer."""
    words = [f"{WORDS[3 * k + j]} {WORDS[j]} {WORDS[40 + k]}" for j in range(places)]
    words[1] += f" {WORDS[60 + k]}"
    return {"documents": words, "question": WORDS[30 + k], "answer": WORDS[60 + k], "begin": WORDS[20], **changes}


ROWS = [row(k) for k in range(6)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with tiny models and rows; tests write elsewhere."""
    root = tmp_path_factory.mktemp("place")
    save(root / "bloom", "bloom")
    tokenizer = AutoTokenizer.from_pretrained(root / "bloom")
    tokenizer.chat_template = TEMPLATE
    save_network(root / "chat", tokenizer, "llama")
    save_network(root / "whole", byte_tokenizer(), "bloom")
    save_network(root / "window", byte_tokenizer(), "mistral", sliding_window=8, max_position_embeddings=2048)
    (root / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    pd.DataFrame([{**one, "documents": json.dumps(one["documents"])} for one in ROWS]).to_csv(root / "rows.csv")
    pd.DataFrame(ROWS).to_parquet(root / "rows.parquet")
    return root


def by_hand(folder, prompt, answer, front=(0,)):
    """Return an answer's log-probability and whether each token is the likeliest, from plain transformers."""
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = [*front, *tokenizer(prompt, add_special_tokens=False)["input_ids"]]
    more = tokenizer(prompt + answer, add_special_tokens=False)["input_ids"][len(ids) - len(front) :]
    with torch.no_grad():
        logits = network(torch.tensor([ids + more])).logits[0, len(ids) - 1 : -1].double()
    told = logits.log_softmax(-1)[range(len(more)), more].sum()
    return float(told), bool((logits.argmax(-1) == torch.tensor(more)).all())


@pytest.mark.parametrize("name", ["bloom", "chat"])
def test_every_score_is_that_of_its_whole_prompt_in_plain_transformers(place, tmp_path, capsys, name):
    output = tmp_path / "r.nc"
    code, out, err = status(capsys, ["lookup", str(place / name), str(place / "rows.jsonl"), "-o", str(output)])
    assert code == 0 and err == "" and [p.name for p in tmp_path.iterdir()] == ["r.nc"]
    results = posbias.load_lookup(output).results
    assert dict(results.sizes) == {"arm": 3, "context": 6, "place": 4}
    assert all(x.attrs["long_name"] for x in results.data_vars.values())
    for arm, k, p in ((0, 0, 0), (0, 5, 2), (0, 3, 3), (1, 2, 1), (2, 4, 0)):
        here = results.isel(arm=arm, context=k, place=p)
        front = () if name == "chat" else (0,)
        told, right = by_hand(place / name, str(here["prompt"].values), str(here["answer"].values), front)
        assert float(here["log_probability"]) == pytest.approx(told, abs=1e-4) and here["correct"] == right
    first = str(results["prompt"].values[0, 0, 2])
    gold, others = ROWS[0]["documents"][1], [x for k, x in enumerate(ROWS[0]["documents"]) if k != 1]
    places = [first.find(text) for text in (others[0], others[1], gold, others[2])]
    assert -1 not in places and places == sorted(places) and first.endswith(WORDS[20])
    assert first.startswith("<user>" if name == "chat" else "Answer the question") and ROWS[0]["question"] in first
    strange = str(results["prompt"].sel(arm="not_competing").values[0, 0])
    assert gold in strange and ROWS[1]["documents"][0] in strange and others[0] not in strange
    assert not results["twice"].any() and results.attrs["dataset"] == "rows given"
    tokenizer = AutoTokenizer.from_pretrained(place / name)
    size = {
        x: len(tokenizer(x, add_special_tokens=False).input_ids) + len(front) for x in results["prompt"].values.flat
    }
    assert results.attrs["tokens"] == int(np.mean([size[x] for x in results["prompt"].values[0].flat]))
    dry = status(capsys, ["lookup", str(place / name), str(place / "rows.jsonl"), "--dry-run"])[1]
    assert f"{len(size)} prompts of {sum(size.values())} tokens in all" in dry
    closed = results.sel(arm="closed_book", context=2)
    assert len({*closed["prompt"].values}) == 1 and "Document" not in str(closed["prompt"].values[0])
    lines = out.splitlines()
    form = "chat template" if name == "chat" else "plain text"
    assert lines[0].startswith(f"{output}: {name}, questions about documents: 4 documents in a prompt of ")
    assert f"(rows given, {form}), 6 rows" in lines[0] and lines[1].startswith("The middle is lost: ")
    assert lines[2].startswith("With all documents: accuracy ") and lines[4].startswith("Without documents: ")
    code, _, err = status(capsys, ["report", str(output), "-o", str(tmp_path / "r.html")])
    assert code == 2 and "expected a measurement, received a lookup, which posbias.load_lookup and --lookup" in err


def test_what_is_no_number_is_refused_and_nothing_is_written(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Reader, "answer", lambda *_: (float("nan"), False))
    words = ["lookup", str(place / "bloom"), str(place / "rows.jsonl"), "-o", str(tmp_path / "r.nc")]
    refused(capsys, tmp_path, words, "log_probability: expected finite numbers, received nan: Answer the question")


def test_rows_are_the_same_from_every_kind_of_file_and_in_memory(place):
    opened = posbias.open(place / "bloom")
    kinds = [place / f"rows.{end}" for end in ("jsonl", "csv", "parquet")] + [pd.DataFrame(ROWS), ROWS]
    found = [opened.lookup(rows=rows, prompts=2, arms="competing") for rows in kinds]
    assert len({one.results.attrs["prompts_sha256"] for one in found}) == 1


def test_sharing_beginnings_saves_tokens_and_a_window_that_cannot_is_read_whole(place, monkeypatch):
    read, real = [], local.open_reader

    def counted(model, trial, known=None):
        reader = real(model, trial, known)
        model.get_input_embeddings().register_forward_hook(lambda _, args, out: read.append(out.shape[1]))
        return reader

    monkeypatch.setattr(local, "open_reader", counted)
    monkeypatch.setattr(module, "find_sources", lambda engine, asks, prompts, correct, progress: correct)
    for name in ("whole", "window"):
        read.clear()
        found = posbias.open(place / name).lookup("kv", prompts=2, places=3, arms="competing").results
        whole = sum(len(text) for text in found["prompt"].values.ravel())
        assert (sum(read) < 0.6 * whole) == (name == "whole"), (name, sum(read), whole)
        prompt, answer = (str(found[text].values[0, 1, 2]) for text in ("prompt", "answer"))
        told, _ = by_hand(place / name, prompt, answer, front=())
        assert float(found["log_probability"][0, 1, 2]) == pytest.approx(told, abs=1e-4)
    about = {"task": "kv", "what": "key-value lookup", "dataset": "invented words", "rows": "made up"}
    about |= {"form": "plain text", "score": "exact", "seed": 0, "posbias_retrieval": 2, "model": "window"}
    assert about.items() <= found.attrs.items()


def test_a_long_prompt_is_read_in_pieces_to_the_same_answer(place, monkeypatch):
    monkeypatch.setattr("posbias.engines.local.PIECE", 8)
    model, read = AutoModelForCausalLM.from_pretrained(place / "whole").eval(), []
    model.get_input_embeddings().register_forward_hook(lambda _, args, out: read.append(out.shape[1]))
    one, whole = Reader(model), Reader(model, shared=False)
    ids, answer = [int(x) for x in np.arange(23) % 11], (3, 4, 5)
    assert one.answer(ids, answer)[0] == pytest.approx(whole.answer(ids, answer)[0], abs=1e-5)
    assert read == [8, 8, 9, 25], "the last piece holds the answer"
    read.clear()
    ids = [*ids[:5], 9, *ids[6:]]
    assert one.answer(ids, answer)[0] == pytest.approx(whole.answer(ids, answer)[0], abs=1e-5)
    assert read == [8, 8, 4, 25]
    first, second = whole.greedy(ids, 2, lambda *_: False)
    assert [whole.answer(ids, (first, x))[1] for x in (second, second - 1)] == [True, False], "all of it is to be right"


def test_a_dry_run_prints_the_first_prompt_and_reads_no_weights(place, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("loaded"))
    code, out, _ = status(capsys, ["lookup", str(place / "chat"), str(place / "rows.jsonl"), "--dry-run"])
    assert code == 0 and out.startswith("<user>Answer the question") and "54 prompts of" in out
    assert f"{WORDS[20]}[ {WORDS[60]}]" in out and not [*tmp_path.iterdir()]
    words = ["lookup", str(place / "whole"), "-t", "kv", "--arms", "competing", "--dry-run"]
    first, second = (status(capsys, [*words, *more])[1] for more in ((), ("--seed", "1")))
    assert f"\n{40 * 16} prompts of" in first and first != second


def test_a_dry_run_counts_what_conditions_ask_and_refuses_what_the_run_would(place, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("loaded"))
    words = ["lookup", str(place / "chat"), str(place / "rows.jsonl"), "--dry-run"]
    ways = ["order:best-first", "one-by-one", "fetched:heads=0.0"]
    code, out, _ = status(capsys, [*words, *(word for way in ways for word in ("--condition", way))])
    first, alone, fetched = out.rstrip().split("\n")[-3:]
    asked = 6 * 3, 6 * (4 + 3) + 6 * (2 + 1 + 1)  # each arm once; documents alone, then the right one or another first
    assert code == 0 and first.startswith(f"order:best-first: {asked[0]} requests, at most ")
    assert alone.startswith(f"one-by-one: {asked[1]} requests, at most ")
    assert fetched == "fetched:heads=0.0: asked again; costs a request more, of the prompt alone"
    for bad, said in {
        ("--condition", "nowhere"): "condition: expected one of ",
        ("--condition", "fetched:heads=0.9"): "condition: heads: expected layers from 0 to ",
        ("--condition", "order-shuffled"): "condition: expected one for what is asked",
        ("--heads", "0.9"): "condition: heads: expected layers from 0 to ",
        ("--heads", "best"): "heads: expected a value that can be read",
    }.items():
        refused(capsys, tmp_path, [*words, *bad], said)


@pytest.mark.parametrize("changes, lacking", [({}, 0), ({"begin": ""}, 6)])
def test_begin_is_asked_for_only_where_rows_lack_it(place, changes, lacking):
    rows = [row(k, **changes) for k in range(6)]
    found = posbias.open(place / "bloom").lookup(rows=rows, score="exact", arms="competing")
    said = f"; {lacking} rows lack `begin`, the first words of an answer"
    assert "fewer than 5%" in found.verdict and (said in found.verdict) == bool(lacking)
    assert ("begin" in found.verdict) == bool(lacking)


def test_heads_that_look_elsewhere_than_the_answer_is_from_are_counted(place, tmp_path, capsys):
    path = tmp_path / "r.nc"
    words = ["lookup", str(place / "chat"), str(place / "rows.jsonl"), "--arms", "competing", "-o", str(path)]
    code, out, _ = status(capsys, [*words, "--heads", "0.0+0.1"])
    results = posbias.load_lookup(path).results
    model = AutoModelForCausalLM.from_pretrained(place / "chat", attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(place / "chat")
    for k, at in ((0, 0), (3, 2), (5, 3)):
        text = str(results["prompt"].values[0, k, at])
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        with torch.no_grad():
            seen = model(torch.tensor([encoded.input_ids]), output_attentions=True).attentions[0][0, :2].mean(0)
        begins = [*(text.index(f"Document {n}: ") for n in range(1, 5)), text.index("\n\nQuestion: ")]
        starts = torch.tensor([start for start, _ in encoded.offset_mapping])
        mean = seen[starts >= begins[-1]].mean(0)
        shares = [mean[(starts >= a) & (starts < b)].sum() for a, b in zip(begins, begins[1:], strict=False)]
        assert int(results["looked_at"][k, at]) == int(np.argmax(shares))
    assert code == 0 and "\nHeads 0.0+0.1 look at the document that answers in " in out
    hand = results.isel(context=[0, 1]).assign(
        looked_at=results["looked_at"][:2].copy(data=[[0, 1, 2, 3], [1, 1, 1, 1]]),
        source=results["source"][:2].copy(data=[[0, 1, 3, -1], [1, 1, 2, 2]]),
        correct=results["correct"].isel(context=[0, 1]).copy(data=[[[1, 1, 0, 0], [0, 1, 1, 0]]]),
    )
    assert said_of_heads(hand) == [
        "Heads 0.0+0.1 look at the document that answers in 5 of 8 prompts, and at another one than the answer is from "
        "for 2 of 3 wrong answers and 1 of 4 right ones; 1 answers are in no document alone"
    ]


# Models that are changed while they are asked


@pytest.mark.parametrize("description", [{"kind": "alibi", "slope": 1.0}, {"kind": "log", "alpha": 2.0}])
def test_biases_change_what_is_found(place, description):
    opened, name = posbias.open(place / "bloom"), f"bias:{json.dumps(description)}"
    found = opened.lookup(rows=ROWS, arms="competing", conditions=[name]).results
    before, after = (found["log_probability"].sel(condition=x) for x in ("as is", name))
    assert (np.abs(before - after) > 1e-4).all()
    model, one = AutoModelForCausalLM.from_pretrained(place / "bloom").eval(), found.isel(arm=0, context=1, place=2)
    tokenizer = AutoTokenizer.from_pretrained(place / "bloom")
    ids, answer = (tokenizer(str(one[x].values)).input_ids for x in ("prompt", "answer"))
    with added_biases(model, description):
        told, _ = Reader(model, shared=False).answer(ids, answer[1:])
    assert float(after[0, 1, 2]) == pytest.approx(told, abs=1e-4), "the whole prompt's bias"


def test_a_model_in_memory_is_asked_and_given_back(place, tmp_path):
    network = AutoModelForCausalLM.from_pretrained(place / "bloom").train()
    here = posbias.open(network, tokenizer=str(place / "bloom")).lookup(rows=ROWS, prompts=3)
    there = posbias.load_lookup(posbias.open(place / "bloom").lookup(rows=ROWS, prompts=3).save(tmp_path / "r.nc"))
    assert np.allclose(here.results["log_probability"], there.results["log_probability"], atol=1e-4)
    assert network.training and all(one.requires_grad for one in network.parameters())


# What is refused

BAD_ROWS = {
    "row": (3, "a row of documents, question and answer, received 3"),
    "one document": (row(0, documents=["ban"]), "documents: expected a list of two or more"),
    "no list": (row(0, documents="ban"), "documents: expected a list, in a .csv file as JSON"),
    "empty": (row(0, documents=["ban", " "]), "documents: 1: expected a text, received ' '"),
    "same": (row(0, documents=["ban bem", "x", "ban  bem"]), "documents: 2: expected another text than the others"),
    "question": (row(0, question=""), "question: expected a text"),
    "answer": (row(0, answer=None), "answer: expected a text"),
    "no gold": (row(0, answer="zzz"), "gold: expected the answer 'zzz' in one document, or the index"),
    "two golds": (row(0, answer=WORDS[40]), "gold: expected the answer 'gon' in one document, or the index"),
    "list of golds": (row(0, gold=[0, 1]), "gold: expected the index of one document, 0 to 3, received [0, 1]"),
    "gold beyond": (row(0, gold=4), "gold: expected the index of one document, 0 to 3, received 4"),
    "no end": (row(0, gold=float("inf")), "gold: expected the index of one document, 0 to 3, received inf"),
    "a truth": (row(0, gold=True), "gold: expected the index of one document, 0 to 3, received True"),
    "other number": (row(0, places=3), "row 2: expected 4 documents, as many as in the first row, received 3"),
    "unknown": (row(0, gold=1, answer="zzz"), "answer: expected tokens that the model has"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_refused_before_the_model_is_loaded(place, tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("loaded"))
    bad, expected = BAD_ROWS[name]
    with pytest.raises(ValueError) as error:
        posbias.open(place / "bloom").lookup(rows=[ROWS[1], bad])
    assert expected in str(error.value) and "\n" not in str(error.value)
    if name == "same":
        (tmp_path / "b.jsonl").write_text(json.dumps(bad) + "\n")
        words = ["lookup", str(place / "bloom"), str(tmp_path / "b.jsonl"), "-o", str(tmp_path / "r.nc")]
        refused(capsys, tmp_path, words, "b.jsonl: row 1: documents: 2: expected", there=[tmp_path / "b.jsonl"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"task": "sort"}, "task: expected one of documents, kv"),
        ({"task": "kv", "places": 1}, "places: expected an integer of at least 2, received 1"),
        ({"places": 4, "rows": ROWS}, "places: expected 1, or none, beside rows"),
        ({"places": 1}, "places: expected an integer of at least 2 without rows"),
        ({"places": 1, "rows": ROWS, "heads": "0.1"}, "heads: expected none beside places 1"),
        ({"task": "kv", "rows": ROWS}, "rows: expected none with the task kv"),
        ({"task": "kv", "arms": "not_competing"}, "arms: expected some of competing, closed_book"),
        ({"form": "template"}, "form: expected plain for a tokenizer without a chat template"),
        ({"form": "chat"}, "form: expected template or plain"),
        ({"task": "kv", "places": 33}, "places: expected at most 24, for which there are words"),
        ({"rows": []}, "rows: expected a row of documents, question and answer or more, received none"),
        ({"rows": "none.jsonl"}, "rows: expected a file with rows, received none.jsonl, which is not there, or empty"),
        ({"rows": [row(0, question="ban " * 90)]}, "row 1: length: expected at most 64 tokens, the model's context"),
        (
            {"rows": [row(0, gold=1, answer=" ".join(WORDS[:60]))]},
            "row 1: length: expected at most 64 tokens, the model",
        ),
        ({"rule": "cut"}, "lookup: expected settings among dtype, device"),
    ],
)
def test_bad_arguments_are_refused_before_the_model_is_loaded(place, tmp_path, monkeypatch, changes, expected):
    folder = save(tmp_path / "small", "llama", max_position_embeddings=64) if "rows" in changes else place / "bloom"
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("loaded"))
    with pytest.raises(ValueError) as error:
        posbias.open(folder).lookup(**changes)
    assert str(error.value).startswith(expected)


def test_a_file_that_is_no_lookup_is_refused(place, tmp_path):
    found = posbias.open(place / "bloom").lookup(rows=ROWS, arms="competing")
    for change, said in (
        (lambda x: x.attrs.update(posbias_retrieval=1), "a lookup of layout 2, received layout 1"),
        (lambda x: x["log_probability"].values.fill(np.nan), "log_probability: expected finite numbers"),
        (lambda x: x.attrs.pop("form"), "expected a complete lookup, received none of form"),
    ):
        results = found.results.copy(deep=True)
        change(results)
        results.to_netcdf(tmp_path / "broken.nc", engine="h5netcdf")
        with pytest.raises(ValueError, match=said):
            posbias.load_lookup(tmp_path / "broken.nc")

"""A lookup whose answers are the model's own, and the same on a model that is served."""

import json
import re

import numpy as np
import pytest
from lookup_worlds import byte_tokenizer
from measuring import make, refused, status

import posbias
from posbias.cli.served import engine_kept
from posbias.engines.local import LocalEngine
from posbias.lookup.answers import contains
from posbias.lookup.contexts import read_rows
from posbias.lookup.file import Found
from posbias.lookup.rehearsal import Rehearsal
from posbias.lookup.served import look_up_served
from posbias.lookup.tasks import Task
from posbias.prompts import Prompt

DOCUMENTS = {"river": "It has number 101.", "castle": "It has number 102.", "comet": "It has number 103."}


def published(word):
    """Return a row as Liu et al.'s files have it."""
    passages = [
        {"title": name.title(), "text": text, "isgold": name == word, "hasanswer": name == word}
        for name, text in DOCUMENTS.items()
    ]
    number = re.search(r"\d+", DOCUMENTS[word])[0]
    return {"question": f"number of {word}", "answers": ["none", f"the {number}"], "ctxs": passages}


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Reads:
    """An engine that answers from the first document of its prompt, in capitals and on two lines."""

    name, has_gradients, has_loglikelihood = "reads", False, False
    requests = tokens = 0

    def generate(self, prompts: list[Prompt], most, until):
        for prompt in prompts:
            self.requests += 1
            self.tokens += 10
            number = re.search(r"number \d+", prompt.message)
            yield posbias.engines.Generated(f"\n{number[0].upper() if number else 'NOTHING'}!", (), 0.0, 3, False)


def test_rows_are_read_as_they_are_published(tmp_path):
    path = write_rows(tmp_path / "r.jsonl", [published(word) for word in DOCUMENTS])
    rows = read_rows(path)
    assert rows[1].documents[0] == "(Title: Castle) It has number 102."
    assert rows[1].accepted == ("the 102", "none") and rows[1].answer == "the 102"
    both = published("castle")
    for one in both["ctxs"]:
        one["text"] += " Or 102."
    assert read_rows([both])[0].documents[0].startswith("(Title: Castle)"), "the gold one of several with the answer"
    for one in both["ctxs"]:
        del one["isgold"]
    assert read_rows([both])[0].documents[0].startswith("(Title: Castle)"), "or the one that is said to have it"
    with pytest.raises(ValueError, match="row 1: gold: expected the answer 'the 102' in one document, .* 0, 1, 2$"):
        read_rows([both | {"ctxs": [{**one, "hasanswer": True} for one in both["ctxs"]]}])
    assert [row.answer for row in read_rows([published("comet") | {"answers": '["103"]'}])] == ["103"]


def test_an_answer_is_right_where_it_contains_an_accepted_one():
    rows = read_rows([published(word) for word in DOCUMENTS])
    found = look_up_served(Reads(), Task("documents"), rows, conditions=["order:reversed"])
    right = found["correct"].sel(arm="competing")
    assert right.sel(condition="as is").values.tolist() == [[1, 0, 0]] * 3
    assert right.sel(condition="order:reversed").values.tolist() == [[0, 0, 1]] * 3
    assert found["correct"].sel(arm="oracle").values.all() and not found["correct"].sel(arm="closed_book").values.any()
    assert found["source"].values[:, 0].tolist() == [0, 0, 0] and (found["source"].values == 0).all()
    assert found["said"].sel(arm="competing").values[0, 0] == "NUMBER 101!"
    assert found["requests"].values.tolist() == [1, 1] and found.attrs["cut"] == "0 of 15"
    said = repr(Found(found))
    assert (
        "With the document that answers alone: accuracy 1.00\n" in said and "Without documents: accuracy 0.00\n" in said
    )
    assert "log-probability" not in said and "order:reversed: right 0.33" in said


class Cuts(Reads):
    """The same, which has not ended where it says 101."""

    def generate(self, prompts, most, until):
        for one in super().generate(prompts, most, until):
            yield one._replace(is_cut="101" in one.text)


def test_a_file_says_how_it_was_asked():
    engine = Reads()
    found = look_up_served(engine, Task("documents", places=3, score="contains"), None, prompts=2, seed=5)
    about = {"model": "reads", "revision": "unknown", "server": "unknown", "task": "documents", "score": "contains"}
    about |= {"dataset": "invented facts", "rows": "made up", "form": "as the server writes it", "seed": 5}
    assert (about | {"tokens": 10, "tokens_counted": "the server's"}).items() <= found.attrs.items()
    engine.estimated, engine.url = 1, "http://here/v1"
    rows = read_rows([published(word) for word in DOCUMENTS])
    found = look_up_served(engine, Task("documents"), rows, conditions=["rotated:3"])
    about = {"dataset": "rows given", "rows": "given", "server": "http://here/v1", "tokens_counted": "estimated"}
    assert (about | {"tokens": 10}).items() <= found.attrs.items(), "tokens of a question as it is"
    assert found["tokens_read"].sel(condition="rotated:3") > 20


def test_answers_that_were_cut_are_counted_as_it_is():
    """Its own document alone, and first among all, or first of two others in four more; reversed it is first once."""
    rows = read_rows([published(word) for word in DOCUMENTS])
    found = look_up_served(Cuts(), Task("documents"), rows, conditions=["order:reversed"])
    assert found.attrs["cut"] == "6 of 15"
    assert "an accepted answer; 6 of 15 were cut there" in repr(Found(found))


def test_the_same_in_this_process_keeps_and_reads_a_file(tmp_path):
    tokenizer = byte_tokenizer()
    network = make("llama", vocab_size=len(tokenizer), max_position_embeddings=2048).eval()
    model, rows = posbias.open(network, tokenizer=tokenizer), [published(word) for word in DOCUMENTS]
    found = model.lookup(rows=rows, arms="oracle")
    assert found.results.attrs["score"] == "contains" and "log_probability" not in found.results
    again = posbias.load_lookup(found.save(tmp_path / "f.nc"))
    assert repr(again) == repr(found) and "generated tokens contains an accepted answer" in repr(again)
    prompt = Prompt(str(found.results["prompt"].values[0, 0, 0]), "", ())
    ids = tuple(tokenizer(prompt.text).input_ids)
    (one,) = LocalEngine(network, tokenizer).generate([Prompt(prompt.text, "", ids)], 100, "\n")
    line = one.text.strip().split("\n")[0].strip()
    assert found.results["said"].values[0, 0, 0] == line.replace("\0", "")
    assert found.results["correct"].values[0, 0, 0] == contains(line, ["the 101", "none"])
    assert again.figure(tmp_path / "f.png").exists() and list(again.to_pandas().columns)[0] == "correct"
    exact = model.lookup(rows=[row | {"answers": row["answers"][1:]} for row in rows], score="exact", arms="competing")
    assert np.isfinite(exact.results["log_probability"]).all()


BROKEN = [
    ({"answers": ["never"]}, "row 1: answers: expected one or more that stand in a document, received ['never']"),
    ({"answers": []}, "row 1: answers: expected a list of one or more"),
    ({"answers": [3]}, "row 1: answers: 0: expected a text, received 3"),
    ({"answers": ["the"]}, "row 1: answers: expected one or more that stand in a document"),
    ({"ctxs": "none"}, "row 1: ctxs: expected a list"),
    ({"ctxs": [{"title": "t"}, {}]}, "row 1: ctxs: 0: expected a passage with title and text"),
    ({"answers": ["number"], "ctxs": [{"text": "number 1"}, {"text": "number 2"}]}, "in one document, or the index"),
]


@pytest.mark.parametrize(("changes", "expected"), BROKEN)
def test_rows_that_cannot_be_asked_are_refused_in_a_line(changes, expected):
    with pytest.raises(ValueError, match="row 1") as error:
        read_rows([published("river") | changes])
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_a_score_that_rows_cannot_have_and_conditions_that_need_weights_are_refused(tmp_path, capsys):
    rows = read_rows([published("river"), published("comet")])
    with pytest.raises(ValueError, match="score: row 1: expected contains for rows with several accepted answers"):
        look_up_served(Reads(), Task("documents", score="exact"), rows)
    with pytest.raises(ValueError, match="condition: expected one that needs no weights.*received sink-off"):
        look_up_served(Reads(), Task("documents"), rows, conditions=["sink-off"])
    with pytest.raises(ValueError, match="engine: expected one with log-probabilities"):
        look_up_served(Reads(), Task("documents", score="exact"), None, prompts=2)
    engine = Reads()
    with pytest.raises(ValueError, match="engine: expected one with log-probabilities"):
        look_up_served(engine, Task("documents"), rows, conditions=["one-by-one"])
    with pytest.raises(ValueError, match="engine: expected one with a model in this process"):
        look_up_served(engine, Task("documents"), rows, conditions=["fetched:heads=0.1"])
    assert engine.requests == 0, "refused before anything is asked"
    path, here = str(write_rows(tmp_path / "r.jsonl", [published("river"), published("comet")])), [tmp_path / "r.jsonl"]
    served = ["lookup", "--server", "http://127.0.0.1:9/v1", "-o", str(tmp_path / "f.nc")]
    refused(capsys, tmp_path, [*served, path], "--model: expected what the server calls the model", there=here)
    served += ["--model", "m"]
    refused(capsys, tmp_path, [*served, "gpt2", path], "model: expected none beside --server", there=here)
    refused(capsys, tmp_path, [*served, "--form", "plain", path], "form: expected none with --server", there=here)
    refused(capsys, tmp_path, [*served, "--heads", "0.1", path], "heads: expected none with --server", there=here)
    refused(capsys, tmp_path, ["lookup", "--model", "m", "gpt2"], "model: expected a model, or --server", there=here)


def test_a_rehearsal_sends_nothing_and_counts_requests(tmp_path, capsys):
    path = write_rows(tmp_path / "r.jsonl", [published(word) for word in DOCUMENTS])
    command = ["lookup", "--server", "http://127.0.0.1:9/v1", "--model", "m", str(path), "--dry-run"]
    code, out, _ = status(capsys, [*command, "--condition", "one-by-one"])
    assert code == 0 and "Question: number of river" in out and out.rstrip().endswith("Nothing was sent")
    lines = out.splitlines()[-5:-1]
    starts = ["as is: 15 requests, ", "one-by-one: 12 more requests, ", "In all 27 requests, ", "Right will be what "]
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True)), lines
    out = status(capsys, [*command, "--prompts", "1"])[1]
    assert "as is: 5 requests, " in out, "of three rows the first"
    first = {"documents": ["It is 1.", "It was 2."], "question": "what?", "answer": "1", "begin": "It is"}
    write_rows(path, [first])
    assert status(capsys, command)[1].count("tokens; `begin` of the rows is not sent\n") == 1


def test_the_most_that_a_rehearsal_counts_has_whole_answers_in_it():
    """Eight letters are two tokens; equal requests count once."""
    engine, prompt = Rehearsal(), Prompt("What?", " It", (), message="What?")
    said = list(engine.generate([prompt, prompt], 100))
    assert len(said) == 2 and (engine.requests, engine.tokens) == (1, 2 + 100)
    list(engine.loglikelihood([prompt]))
    assert (engine.requests, engine.tokens) == (2, 2 + 100 + 2), "a given answer is counted once"


def test_documents_that_are_made_up_follow_the_seed():
    class Says(Reads):
        def __init__(self):
            self.asked = []

        def generate(self, prompts, most, until):
            self.asked += [prompt.message for prompt in prompts]
            yield from super().generate(prompts, most, until)

    asked = []
    for seed in (0, 1, 1):
        engine = Says()
        look_up_served(engine, Task("documents", places=3, score="contains"), None, prompts=2, seed=seed)
        asked.append(engine.asked)
    assert asked[0] != asked[1] == asked[2]


def test_answers_so_far_stay_where_a_run_breaks_off(tmp_path, monkeypatch):
    """They go once the output is written, and not before."""
    monkeypatch.setattr("posbias.engines.served.ServedEngine", lambda *_, kept, **__: kept.write_text("an answer"))
    serving, output = {"server": "http://localhost:1/v1", "model": "m", "concurrency": 1}, tmp_path / "o.nc"
    for broken in (KeyboardInterrupt, ValueError):
        with pytest.raises(broken), engine_kept(serving, output):
            raise broken
        assert [path.read_text() for path in tmp_path.iterdir()] == ["an answer"]
    with engine_kept(serving, output):
        pass
    assert not [*tmp_path.iterdir()]

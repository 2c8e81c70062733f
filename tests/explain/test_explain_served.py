"""A prompt of a model that is served: deletions as the server scores them, what is refused, and what is sent."""

import json

import numpy as np
import pytest
from measuring import refused, status

pytest.importorskip("openai", reason="the extra server is not installed")
from served_worlds import SECRET, chat, echoed, server

from posbias.engines.served import ServedEngine
from posbias.explain.served import explain_served

TEXT = "It is ONE.\n\nIt is two.\n\nWhat is it?"
ROW = {
    "documents": ["one is 11", "two is 22", "three is 33"],
    "question": "two?",
    "answer": "22",
    "begin": "It is",
}


def scores(prompt):
    """Return a completion in which a letter is as likely as the prompt is long: -1 nat for each 10 letters."""
    found = echoed(prompt)
    logs = found["choices"][0]["logprobs"]
    logs["token_logprobs"] = [None, *[-len(prompt) / 10] * len(prompt)]
    return found


def answer(path, request):
    return 200, scores(request["prompt"]) if path.endswith("/v1/completions") else chat("22!\nYes", logs=False)


def test_deletions_are_those_of_the_server():
    with server(answer) as (url, seen):
        found = explain_served(ServedEngine(url, "m"), TEXT, answer=" two")
    sent = [request["prompt"] for path, request, _ in seen if "chat" not in path]
    cut = [TEXT[12:], TEXT[:12] + TEXT[24:], TEXT[:24]]
    assert set(sent[1:]) == {f"{text} two" for text in (TEXT, *cut)}
    less = [len(TEXT) - len(text) for text in cut]
    assert np.allclose(found.segments["removed"], 0.4 * np.array(less)) and found.own_answer == "22!"
    assert found.is_own is False and found.value == pytest.approx(-0.4 * (len(TEXT) + 4))
    said = repr(found)
    assert "about 9 tokens in 3 segments, m" in said and "gradient" not in said
    assert said.endswith("All this is among the segments before the last.")


def test_documents_are_written_as_in_a_lookup_and_an_answer_need_not_be_given(tmp_path):
    with server(answer) as (url, seen):
        found = explain_served(ServedEngine(url, "m"), ROW)
        assert found.segments["label"].tolist()[1:4] == ["Document 1", "Document 2", "Document 3"]
        assert found.is_own and found.target.endswith("'22'")
        other = explain_served(ServedEngine(url, "m"), ROW | {"answer": "33"}, answer="22")
        bare = explain_served(ServedEngine(url, "m"), {x: ROW[x] for x in ("documents", "question")}, answer="33")
        own = explain_served(ServedEngine(url, "m"), TEXT)
    assert other.target.endswith("'33'") and bare.target.endswith("'33'"), "a row's own answer goes before another"
    prompts = [request["prompt"] for path, request, _ in seen if "chat" not in path]
    assert any(text.endswith("Document 3: three is 33\n\nQuestion: two?\nAnswer: It is 22") for text in prompts)
    assert own.target.endswith("' 22!'") and own.is_own
    page = own.report(tmp_path / "p.html").read_text()
    assert "tokens are estimated" in page and "nan" not in page and "Token by token" not in page


def test_gold_says_which_of_two_documents_is_meant():
    """Where two documents have the answer a row needs it, as in a lookup."""
    row = ROW | {"documents": ["one is 22", "two is 22"]}
    with server(answer) as (url, _):
        engine = ServedEngine(url, "m")
        assert len(explain_served(engine, row | {"gold": 1}).segments) == 4
        with pytest.raises(ValueError, match="prompt: answer: expected one that stands in one"):
            explain_served(engine, row)


def test_one_segment_has_nothing_to_delete():
    with server(answer) as (url, _):
        found = explain_served(ServedEngine(url, "m"), "What is it?", answer=" 3")
    assert found.segments["removed"].isna().all() and "deleted" not in repr(found)


def test_the_command_prints_and_keeps_nothing_but_the_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    prompt = tmp_path / "p.json"
    prompt.write_text(json.dumps(ROW))
    with server(answer) as (url, seen):
        command = ["explain", "--server", url, "--model", "m", "-p", str(prompt)]
        code, out, _ = status(capsys, [*command, "--dry-run"])
        assert code == 0 and not seen and out.rstrip().endswith("Nothing was sent")
        assert "7 requests, at most " in out and "Document 2: about " in out
        code, out, err = status(capsys, [*command, "-o", str(tmp_path / "f.html")])
    assert code == 0 and "the target depends" in out + err or "No deletion lowers" in out
    assert len(seen) == 8, "one request asks whether the server scores answers"
    assert sorted(x.name for x in tmp_path.iterdir()) == ["f.html", "p.json"]
    assert SECRET not in out + err + (tmp_path / "f.html").read_text()


def test_what_cannot_be_explained_there_is_refused_in_a_line(tmp_path, capsys):
    prompt = tmp_path / "p.txt"
    prompt.write_text(TEXT)
    command = ["explain", "-p", str(prompt), "-o", str(tmp_path / "f.html"), "--server", "http://127.0.0.1:9/v1"]
    for words, expected in [
        ([], "--model: expected what the server calls the model"),
        (["--model", "m", "gpt2"], "model: expected none beside --server, received gpt2"),
        (["--model", "m", "--dtype", "float32"], "dtype: expected none with --server"),
        (["--model", "m", "--condition", "sink-off"], "condition: expected none with --server"),
        (["--model", "m", "--heads", "0.1"], "heads: expected none with --server"),
    ]:
        refused(capsys, tmp_path, [*command, *words], expected, there=[prompt])
    refused(capsys, tmp_path, ["explain", "-p", str(prompt)], "model: expected a model, or --server", there=[prompt])
    chats = tmp_path / "p.json"
    chats.write_text(json.dumps([{"role": "user", "content": "What?"}]))
    words = ["explain", "-p", str(chats), "--server", "http://127.0.0.1:9/v1", "--model", "m"]
    refused(capsys, tmp_path, words, "prompt: expected a text, or documents", there=[chats, prompt])


MISBEHAVING = {
    "no log-probabilities": ((404, {"detail": "Not Found"}), "engine: expected one with log-probabilities"),
    "500": ((500, {}), "status 500, also when tried again; what was answered is kept"),
    "breaks-off": ((200, b'{"choices": [...'), "none there, or one that broke off"),
    "no-json": ((200, b"{nothing"), "expected JSON with an answer"),
}


@pytest.mark.parametrize("what", MISBEHAVING)
def test_a_server_that_misbehaves_is_one_line(what):
    said, expected = MISBEHAVING[what]
    with server(lambda path, _: (200, chat()) if "chat" in path else said) as (url, _):
        with pytest.raises((ValueError, OSError), match=expected) as error:
            explain_served(ServedEngine(url, "m", retries=0), TEXT, answer=" two")
    assert "\n" not in str(error.value)


def test_an_answer_without_tokens_of_its_own_is_refused():
    def joined(path, request):
        found = echoed(request.get("prompt", "x"))
        if request.get("prompt", "").endswith("it?two"):
            found["choices"][0]["logprobs"]["text_offset"][-4:-1] = [len(request["prompt"]) - 4] * 3
        return 200, found if "chat" not in path else chat()

    with server(joined) as (url, _), pytest.raises(ValueError, match="answer: expected one that begins where a token"):
        explain_served(ServedEngine(url, "m"), TEXT, answer="two")


def test_a_server_without_chat_explains_an_answer_that_is_given():
    def answer(path, request):
        return (400, {"error": {"message": "no chat"}}) if "chat" in path else (200, scores(request["prompt"]))

    with server(answer) as (url, _):
        found = explain_served(ServedEngine(url, "m"), TEXT, answer=" two")
        with pytest.raises(ValueError, match="status 400: .*no chat"):
            explain_served(ServedEngine(url, "m"), TEXT)
    assert found.own_answer is None and found.is_own is None and "itself" not in repr(found)
    assert np.isfinite(found.segments["removed"]).all()

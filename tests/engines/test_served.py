"""A served model: what it says, what goes wrong on the way, and that nothing is asked twice."""

import math
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import ROOT

pytest.importorskip("openai", reason="the extra server is not installed")
from served_worlds import SECRET, chat, echoed, server

from posbias.engines.served import ServedEngine, served_prompt

PROMPTS = [served_prompt(f"Question: {k}?", "", "Yes") for k in range(3)]


def test_answers_and_likelihoods_are_those_of_the_server(tmp_path):
    def answer(path, request):
        return 200, echoed(request["prompt"]) if path.endswith("/v1/completions") else chat()

    with server(answer) as (url, seen):
        engine = ServedEngine(url, "m", kept=tmp_path / "p")
        (found, *_) = engine.generate(PROMPTS, 100, "\n")
        assert (found.text, found.length, found.is_cut) == ("It is", 1, False) and found.log_probability == -0.5
        assert (engine.requests, engine.tokens, engine.estimated) == (3, 33, 0), "of prompts and answers"
        (whole, *_) = engine.generate(PROMPTS, 100)
        assert (whole.text, whole.log_probability) == ("It is 7.\nNot 8.", -1.0)
        assert engine.has_loglikelihood and not engine.has_gradients
        (told, *_) = engine.loglikelihood(PROMPTS)
        assert told == (-5.0, False), "' Yes' has a capital, which is not the likeliest"
        assert engine.tokens > 0 and engine.estimated == 4, "completions came without a count of tokens"
    body = seen[0][1]
    assert body["messages"] == [{"role": "user", "content": "Question: 0?"}] or len(seen) > 3
    chats = [request for path, request, _ in seen if "chat" in path]
    plain = [request for path, request, _ in seen if "chat" not in path]
    assert {(one["model"], one["max_tokens"], one["temperature"], one["logprobs"]) for one in chats} == {
        ("m", 100, 0, True)
    }
    assert all(one == {**one, "model": "m", "max_tokens": 1, "temperature": 0, "echo": True} for one in plain)


def test_a_server_without_log_probabilities_says_so_and_answers(tmp_path):
    def answer(path, request):
        if "chat" not in path:
            return 404, {"detail": "Not Found"}
        return (400, {"error": {"message": "logprobs?"}}) if request.get("logprobs") else (200, chat(logs=False))

    with server(answer) as (url, seen):
        engine = ServedEngine(url, "m", concurrency=1)
        assert not engine.has_loglikelihood
        (found, *_) = engine.generate(PROMPTS, 100, "\n")
    assert [bool(request.get("logprobs")) for path, request, _ in seen if "chat" in path] == [True, *[False] * 3]
    assert found.text == "It is 7." and math.isnan(found.log_probability) and found.length > 0


WRONG = {
    "wrong-key": ((401, {"error": {"message": f"no {SECRET}"}}), "OPENAI_API_KEY: expected a key that .* takes"),
    "forbidden": ((403, {}), "OPENAI_API_KEY: expected a key that .* takes, received status 403"),
    "wrong-model": ((404, {"error": {"message": "The model `m` does not exist"}}), "model: expected one that .*, rec"),
    "429": ((429, {}), "status 429, also when tried again; what was answered is kept"),
    "500": ((500, {}), "status 500, also when tried again; what was answered is kept"),
    "400": ((400, {"error": {"message": f"too long for {SECRET}"}}), "status 400: .*too long"),
    "breaks-off": ((200, b'{"choices": [...'), "none there, or one that broke off"),
    "no-json": ((200, b"{nothing"), "expected JSON with an answer"),
    "other-json": ((200, {"hello": 1}), "expected JSON with an answer"),
    "no-choices": ((200, {"choices": []}), "expected JSON with an answer"),
    "empty": ((200, chat("", "length")), "answer: expected text among its first tokens, received none within 100"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_goes_wrong_is_one_line_without_the_key(what, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    said, expected = WRONG[what]
    with server(lambda *_: said) as (url, seen):
        engine = ServedEngine(url, "m", kept=tmp_path / "p", retries=1)
        with pytest.raises((ValueError, OSError), match=expected) as error:
            list(engine.generate(PROMPTS[:1], 100, "\n"))
        assert SECRET not in str(error.value) and "\n" not in str(error.value)
        assert seen[0][2] == f"Bearer {SECRET}"
        if what in ("429", "500", "breaks-off"):
            assert len(seen) == 2, "tried again"
    if (tmp_path / "p").exists():
        assert SECRET not in (tmp_path / "p").read_text()


def test_a_model_that_is_not_served_is_refused_with_those_that_are(monkeypatch):
    models = SimpleNamespace(list=lambda: SimpleNamespace(data=[SimpleNamespace(id=name) for name in "abcdefg"]))
    with server(lambda *_: (404, {"error": {"message": "no such model"}})) as (url, _):
        engine = ServedEngine(url, "m", retries=0)
        monkeypatch.setattr(engine._client, "models", models)
        with pytest.raises(ValueError, match=f"model: expected one that {url} serves, such as a, b, c, d, e, received"):
            list(engine.generate(PROMPTS[:1], 100))


def test_no_server_there_is_one_line():
    with server(lambda *_: (200, chat())) as (url, _):
        pass
    with pytest.raises(OSError, match=f"{url}: expected the server to answer, received none there"):
        list(ServedEngine(url, "m", retries=0).generate(PROMPTS, 100))
    with pytest.raises(ValueError, match="server: expected an address such as http"):
        ServedEngine("localhost", "m")


def test_an_empty_answer_and_one_that_is_cut_are_answers():
    with server(lambda *_: (200, chat("", "stop"))) as (url, _):
        assert [x.text for x in ServedEngine(url, "m").generate(PROMPTS, 100, "\n")] == [""] * 3
    with server(lambda *_: (200, chat("It is", "length"))) as (url, _):
        assert all(x.is_cut for x in ServedEngine(url, "m").generate(PROMPTS, 100, "\n"))


def test_status_503_is_tried_again():
    answers = iter([(503, {}), (200, chat())])
    with server(lambda *_: next(answers)) as (url, seen):
        (found,) = ServedEngine(url, "m", retries=2).generate(PROMPTS[:1], 100, "\n")
    assert found.text == "It is" and len(seen) == 2


def test_what_one_model_answered_is_not_taken_for_another(tmp_path):
    """Nor for one of the same name elsewhere."""
    asked = []

    def answer(path, request):
        asked.append(path)
        return 200, chat(f"I am {request['model']} behind {path.split('/')[1]}.")

    with server(answer) as (url, _):
        for place, name in (("here", "a"), ("here", "b"), ("there", "a"), ("here", "a")):
            engine = ServedEngine(url.replace("/v1", f"/{place}/v1"), name, kept=tmp_path / "p")
            assert [x.text for x in engine.generate(PROMPTS[:1], 100)] == [f"I am {name} behind {place}."]
    assert len(asked) == 3, "the last answer was kept"


KILLED = """
import sys
from pathlib import Path
from posbias.engines.served import ServedEngine, served_prompt
prompts = [served_prompt(f"Question: {k}?", "", "Yes") for k in range(400)]
print(sum(1 for _ in ServedEngine(sys.argv[1], "m", kept=Path(sys.argv[2])).generate(prompts, 100)))
"""


def test_a_run_that_is_killed_at_request_200_of_400_goes_on(tmp_path, capsys, monkeypatch):
    kept, done = tmp_path / "f.partial", []

    def answer(path, request):
        done.append(request["messages"][0]["content"])
        if len(done) > 200 and not kept.with_suffix(".go").exists():
            time.sleep(60)
        return 200, chat()

    with server(answer) as (url, _):
        command = [sys.executable, "-c", KILLED, url, str(kept)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        first = subprocess.Popen(command, env=environment)
        while len(done) < 208 or len(kept.read_text().splitlines()) < 200:
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        first.wait()
        lines = kept.read_text()
        kept.write_text(lines + '{"key": "half a l')
        kept.with_suffix(".go").touch()
        begun = len(done)
        monkeypatch.setattr(sys, "argv", ["-c", url, str(kept)])
        exec(KILLED, {})
        assert capsys.readouterr().out.strip() == "400" and len(done) - begun == 200, "nothing is asked a second time"
        exec(KILLED, {})
        assert capsys.readouterr().out.strip() == "400" and len(done) - begun == 200


def test_as_many_requests_go_side_by_side_as_are_asked_for(tmp_path):
    from posbias.cli.served import engine_kept

    with engine_kept({"server": "http://127.0.0.1:1", "model": "m", "concurrency": 3}, tmp_path / "o.nc") as engine:
        assert engine.concurrency == 3

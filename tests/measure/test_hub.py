"""Names that are no directory: a path is told from an id, and the hub is not waited for."""

import socket
import time

import pytest

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

from huggingface_hub import constants

from posbias.measure import hub


@pytest.fixture
def online(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "getproxies", dict)


@pytest.mark.parametrize("name", ["./x", "~/x", "/none/x", "a/b/c", "x/config.json", "m.nc", "models/typo"])
def test_what_looks_like_a_path_is_no_id(online, tmp_path, monkeypatch, name):
    (tmp_path / "models").mkdir()
    monkeypatch.setattr(hub, "answers", lambda endpoint: pytest.fail("asked"))
    said = " in models, which is there" if "typo" in name else ""
    with pytest.raises(ValueError, match=f"model {name}: expected a directory, or an id .*no such directory{said}$"):
        hub.check_id("model", name)


def test_directories_reference_models_and_ids_are_let_pass(online, tmp_path, monkeypatch):
    (tmp_path / "a.json").mkdir()
    monkeypatch.setattr(hub, "answers", lambda endpoint: True)
    for name in ("a.json", "reference/bloom-8", "gpt2", "someone/Model-3.1-8B", ""):
        hub.check_id("model", name)


def test_a_hub_that_does_not_answer_is_not_waited_for(online, monkeypatch):
    hub.answers.cache_clear()

    def never(*_):
        time.sleep(30)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", never)
    monkeypatch.setattr(hub, "PATIENCE", 0.05)
    begun = time.monotonic()
    with pytest.raises(ValueError, match="model someone/x: .* no such directory, and no answer from the hub"):
        hub.check_id("model", "someone/x")
    assert time.monotonic() - begun < 20
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: "config.json")
    hub.check_id("model", "someone/x")  # the client has it


def test_a_server_answers_or_not_and_is_asked_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert hub.answers(f"http://127.0.0.1:{port}")
    assert hub.answers(f"http://127.0.0.1:{port}")
    hub.answers.cache_clear()
    assert not hub.answers(f"http://127.0.0.1:{port}")

"""A real server, ``transformers serve``, on a tiny model: the same answers as in this process."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from lookup_worlds import TEMPLATE, byte_tokenizer, save_network
from measuring import status

import posbias

for _name in ("openai", "fastapi", "uvicorn"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: it comes with the extras server and test")
COMMAND = Path(sys.executable).with_name("transformers")
ROWS = [
    {"documents": ["one is 1", "two is 22", "three is 3"], "question": "two?", "answer": "22"},
    {"documents": ["four is 4", "five is 55", "six is 6"], "question": "five?", "answer": "55"},
]


@contextmanager
def serving(folder):
    """Serve a model's folder, and return the address; skip where it does not start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(COMMAND), "serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    server = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            time.sleep(0.5)
            if server.poll() is not None:
                pytest.skip("transformers serve does not start here")
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                continue
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


@pytest.mark.skipif(shutil.which(str(COMMAND)) is None, reason="there is no command transformers")
def test_a_served_model_answers_as_in_this_process(tmp_path, capsys):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    folder = save_network(tmp_path / "model", tokenizer, max_position_embeddings=2048)
    pairs = "\n".join(str(row).replace("'", '"') for row in ROWS)
    (tmp_path / "rows.jsonl").write_text(pairs)
    here = posbias.open(folder).lookup(rows=tmp_path / "rows.jsonl").results
    command = ["lookup", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "served.nc")]
    with serving(folder) as url:
        command += ["--server", url, "--model", str(folder), "--condition", "order:reversed"]
        code, out, err = status(capsys, command)
        assert code == 0, err
        assert "order:reversed: right " in out and not (tmp_path / "served.nc.partial").exists()
        refused = [*command[:-1], "one-by-one", "--overwrite"]
        assert "engine: expected one with log-probabilities" in status(capsys, refused)[2]
    served = posbias.load_lookup(tmp_path / "served.nc").results
    assert served["said"].values.tolist() == here["said"].values.tolist()
    plain = served["correct"].sel(condition="as is").values
    assert plain.tolist() == here["correct"].values.tolist()
    assert served.attrs["tokens_counted"] == "the server's" and served.attrs["server"] == url

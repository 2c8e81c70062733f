"""Files of the reference models by checksum: in the package, in the cache, and fetched from a server of our own."""

import hashlib
import http.server
import threading
import tomllib
import zipfile

import numpy as np
import pytest
import yaml
from conftest import ROOT

import posbias
from posbias import shipped

FILES = {
    "one/config.json": b"{}",
    "one/model.safetensors": b"weights of one",
    "two/config.json": b"{ }",
    "two/model.safetensors": b"weights of two",
    "held-out.npz": b"documents",
}


def serve(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with the model one and the documents, of a registry that has the model two as well; nothing cached."""
    serve(tmp_path / "package", {name: content for name, content in FILES.items() if "two" not in name})
    entries = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in FILES.items()}
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "package")
    monkeypatch.setattr(shipped, "registry", lambda: entries)
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))
    return tmp_path / "package"


@pytest.fixture
def source(server, monkeypatch):
    """The folder of a server that has what the package lacks, and that models are fetched from."""
    pytest.importorskip("pooch", reason="pooch is not installed")
    folder, url = server
    serve(folder, FILES)
    monkeypatch.setattr(shipped, "URL", url)
    return folder


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def two():
    return {name: content for name, content in FILES.items() if name.startswith("two/")}


def test_the_registry_is_that_of_the_files():
    make = "write it with shipped.REGISTRY.write_text(shipped.registry_text(shipped.FOLDER))"
    assert shipped.registry_text(shipped.FOLDER) == shipped.REGISTRY.read_text(encoding="utf-8"), make
    assert len(shipped.registry()) == 7 * len(shipped.reference_names()) + 1


def test_the_address_is_the_repositorys_and_the_tag_this_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert shipped.REPOSITORY == project["urls"]["Repository"] == config["repository"]["url"]
    assert shipped.URL == f"{shipped.REPOSITORY}/raw/v{posbias.__version__}/posbias/data/reference/"
    assert shipped.FOLDER == ROOT / "posbias" / "data" / "reference"


def test_names_in_the_package_and_names_that_can_be_had(package):
    assert shipped.shipped_names() == ["one"] and shipped.reference_names() == ["one", "two"]
    assert shipped.model_folder("reference/one") == str(package / "one")
    for name in ("three", "", "one/", "held-out.npz", "../package/one"):
        with pytest.raises(
            ValueError, match=f"model: expected reference/ and one of one, two, received reference/{name}"
        ):
            shipped.model_folder(f"reference/{name}")
        with pytest.raises(ValueError, match="reference model: expected one of one, two, received"):
            shipped.download(name)


def test_the_cache_is_the_users_unless_a_folder_is_set(monkeypatch, tmp_path):
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / name))
    monkeypatch.delenv("POSBIAS_DATA", raising=False)
    assert shipped.cache_folder() == tmp_path / "posbias" / "reference"
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "mine"))
    assert shipped.cache_folder() == tmp_path / "mine" / "reference"


def test_a_model_that_is_not_in_the_package_is_fetched_once(package, source, tmp_path, monkeypatch):
    data = tmp_path / "data" / "reference"
    assert shipped.model_folder("reference/two") == str(data / "two")
    assert contents(data) == two()
    monkeypatch.setattr(shipped, "URL", "http://127.0.0.1:1/")
    assert shipped.model_folder("reference/two") == str(data / "two")


def test_only_what_is_missing_is_fetched(package, source, tmp_path):
    data = tmp_path / "data" / "reference"
    serve(data, {"two/config.json": FILES["two/config.json"], "two/notes.txt": b"mine", "three/x": b"mine"})
    (source / "two" / "config.json").unlink()
    shipped.model_folder("reference/two")
    assert contents(data) == {**two(), "two/notes.txt": b"mine", "three/x": b"mine"}


def test_a_file_of_the_users_is_refused_and_left_as_it_is(package, source, tmp_path):
    data = tmp_path / "data" / "reference"
    for name in ("two/model.safetensors", "two/config.json"):
        mine = {name: b"a model of my own"}
        serve(data, mine)
        with pytest.raises(ValueError, match=rf"{data / name}: checksum: .*of 17 bytes; it was left as it is"):
            shipped.model_folder("reference/two")
        assert contents(data) == mine
        (data / name).unlink()


def test_a_link_of_the_users_is_left_as_it_is(package, source, tmp_path):
    link = tmp_path / "data" / "reference" / "two" / "config.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "not mounted")
    with pytest.raises(ValueError, match="received no file; it was left as it is"):
        shipped.model_folder("reference/two")
    assert link.is_symlink() and not (tmp_path / "not mounted").exists()


def test_what_comes_with_another_checksum_is_not_kept(package, source, tmp_path):
    serve(source, {"two/model.safetensors": b"something else"})
    with pytest.raises(ValueError, match=r"two/model.safetensors: checksum: expected sha256:.*; the file was not kept"):
        shipped.model_folder("reference/two")
    assert contents(tmp_path / "data" / "reference") == {"two/config.json": FILES["two/config.json"]}
    serve(source, FILES)
    shipped.model_folder("reference/two")
    assert contents(tmp_path / "data" / "reference") == two()


def test_a_download_that_ends_early_is_not_kept(package, tmp_path, monkeypatch):
    pytest.importorskip("pooch", reason="pooch is not installed")

    class Short(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half of it")

        def log_message(self, *arguments):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Short)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        with pytest.raises(ConnectionError, match="reference/two: expected http.* to answer"):
            shipped.download("two", f"http://127.0.0.1:{running.server_port}/")
    finally:
        running.shutdown()
        running.server_close()
    assert contents(tmp_path / "data" / "reference") == {}


@pytest.mark.parametrize("where", ["refused", "404"])
def test_what_cannot_be_reached_is_said_with_what_works_without(package, source, tmp_path, monkeypatch, where):
    url = "http://127.0.0.1:1/" if where == "refused" else f"{shipped.URL}nowhere/"
    monkeypatch.setattr(shipped, "URL", url)
    with pytest.raises(ConnectionError) as raised:
        shipped.model_folder("reference/two")
    message = str(raised.value)
    assert message.startswith(f"reference/two: expected {url} to answer, received ") and where in message
    assert "reference/one comes with the package" in message and f"git clone {shipped.REPOSITORY}" in message
    assert "\n" not in message and contents(tmp_path / "data") == {}


def test_a_cache_that_cannot_be_written_is_named(package, source, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reference").write_text("a file")
    with pytest.raises(OSError) as raised:
        shipped.model_folder("reference/two")
    assert str(raised.value.filename).startswith(str(tmp_path / "data" / "reference"))


@pytest.mark.parametrize("content", [None, b"", b"weights of on", b"weights of onE"])
def test_a_damaged_file_of_the_package_is_named(package, content):
    bad = package / "one" / "model.safetensors"
    bad.unlink()
    if content is not None:
        bad.write_bytes(content)
    received = "no file" if content is None else rf"sha256:\w+ of {len(content)} bytes"
    with pytest.raises(
        ValueError, match=rf"{bad}: checksum: expected sha256:\w+, received {received}; install posbias"
    ):
        shipped.model_folder("reference/one")


def test_damaged_held_out_documents_are_named(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    documents = [np.arange(5, dtype=np.uint16)] * 3
    (tmp_path / "model").mkdir()
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "model" / "tokenizer.json"))
    shipped.write_held_out(tmp_path, documents)
    file = tmp_path / shipped.HELD_OUT
    whole = file.read_bytes()
    assert len(shipped.held_out_documents(tmp_path)) == 3
    for content in (b"", whole[:10], whole[:-10], b"no archive", whole[:50] + b"x" * 20 + whole[70:]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"{file}: expected token ids and lengths of documents, received"):
            shipped.held_out_documents(tmp_path)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("other.npy", b"")
    with pytest.raises(ValueError, match=f"{file}: expected token ids"):
        shipped.held_out_documents(tmp_path)
    file.write_bytes(whole)
    (tmp_path / "model" / "tokenizer.json").write_bytes(b"{")
    with pytest.raises(ValueError, match="tokenizer.json: expected a tokenizer, received"):
        shipped.held_out_documents(tmp_path)

"""Identity of files: every byte counts, names count, and commits are the identity on the hub."""

import os
import shutil

import pytest
from measuring import save

from posbias.models import loading
from posbias.models.loading import Source, folder_digest


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digest")
    save(folder / "gpt2", "gpt2")
    save(folder / "llama", "llama")
    return folder


@pytest.fixture
def model(place, tmp_path):
    shutil.copytree(place / "gpt2", tmp_path / "gpt2")
    return tmp_path / "gpt2"


def flip(file, at):
    """Change one byte, and the file's time by as little as can be."""
    content, times = bytearray(file.read_bytes()), file.stat()
    content[at] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 1))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_every_byte_of_every_file_counts(model, name):
    before = Source(str(model)).version()
    assert before == Source(str(model)).version() and before.startswith("files-") and len(before) == 22
    for part in (0.0, 0.5, 1.0):
        flip(model / name, int(part * ((model / name).stat().st_size - 1)))
        assert Source(str(model)).version() != before


def test_names_count_and_place_and_other_files_do_not(model, tmp_path):
    before = folder_digest(model)
    assert folder_digest(shutil.copytree(model, tmp_path / "elsewhere")) == before
    (model / "README.md").write_text("words")
    (model / "m.nc").write_bytes(b"a measurement beside the model")
    (model / "inner").mkdir()
    (model / "inner" / "config.json").write_text("{}")
    assert folder_digest(model) == before
    (model / "vocab.txt").write_text("more")
    assert folder_digest(model) != before


def test_a_tokenizer_from_elsewhere_counts(place, model, tmp_path):
    alone = Source(str(model)).version()
    assert Source(str(model), tokenizer=str(model)).version() == alone
    assert Source(str(model), tokenizer=f"{model}/../gpt2").version() == alone
    other = tmp_path / "tokenizer"
    other.mkdir()
    for file in (place / "llama").glob("tokenizer*"):
        shutil.copy(file, other)
    both = Source(str(model), tokenizer=str(other)).version()
    assert both.startswith(f"{alone}, tokenizer files-")
    flip(other / "tokenizer.json", 900)
    assert Source(str(model), tokenizer=str(other)).version() != both


def test_commits_are_the_identity_on_the_hub(model, monkeypatch):
    commits = {"someone/model": "1" * 40, "someone/tokenizer": "2" * 40}

    def cached(name, file, **_):
        if name == "someone/tokenizer" and file != "tokenizer.json":
            return None
        return f"/cache/models/snapshots/{commits[name]}/{file}"

    monkeypatch.setattr(loading, "cached_file", cached)
    assert Source("someone/model").version() == "1" * 40
    assert Source("someone/model", tokenizer="someone/tokenizer").version() == f"{'1' * 40}, tokenizer {'2' * 40}"
    both = Source("someone/model", tokenizer=str(model)).version()
    assert both == f"{'1' * 40}, tokenizer {folder_digest(model)}"

"""Identity of files: every byte counts, and the cache never speaks for a file that may have changed."""

import os
import shutil
import time
from pathlib import Path

import pytest
from measuring import save, write_documents

from posbias.measure import digest, loading, run
from posbias.measure.corpus import Corpus
from posbias.measure.digest import folder_digest
from posbias.measure.loading import Source
from posbias.measure.settings import Settings


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "digests"


@pytest.fixture
def settled(monkeypatch):
    """Let files count as unchanged for long at once; what changed is told by their times alone."""
    monkeypatch.setattr(digest, "SETTLED", -1e9)


@pytest.fixture
def reads(monkeypatch):
    """Return the list of files that were read."""
    seen, read = [], digest._read
    monkeypatch.setattr(digest, "_read", lambda file, progress: seen.append(file.name) or read(file, progress))
    return seen


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
    """Change one byte and put the time of the file back."""
    content, times = bytearray(file.read_bytes()), file.stat()
    content[at] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_every_byte_of_every_file_counts(model, settled, name):
    before = Source(str(model)).version()
    assert before == Source(str(model)).version() and before.startswith("files-") and len(before) == 22
    for part in (0.0, 0.5, 1.0):
        flip(model / name, int(part * ((model / name).stat().st_size - 1)))
        assert Source(str(model)).version() != before


def test_no_run_goes_on_with_a_file_that_was_edited_in_its_middle(tmp_path, monkeypatch):
    model = save(tmp_path / "m", "gpt2", n_positions=40_000)
    weights = model / "model.safetensors"
    assert weights.stat().st_size > 4 * digest.PIECE
    corpus = write_documents(tmp_path / "d.jsonl", [40] * 4)
    settings = Settings(Source(str(model)), Corpus(str(corpus)), 4, 8, 2)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_results", stop)
        with pytest.raises(KeyboardInterrupt):
            run.measure(settings, tmp_path / "m.nc", checkpoint_every=0.0)
    flip(weights, weights.stat().st_size // 2)
    with pytest.raises(ValueError, match="a run with the same settings, received revision=files-"):
        run.measure(settings, tmp_path / "m.nc", resume=True)
    flip(weights, weights.stat().st_size // 2)
    assert run.measure(settings, tmp_path / "m.nc", resume=True) is not None


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

    def cached(name, file, revision=None):
        if name == "someone/tokenizer" and file != "tokenizer.json":
            raise OSError("no such file there")
        return f"/cache/models/snapshots/{commits[name]}/{file}"

    monkeypatch.setattr(loading, "cached_file", cached)
    assert Source("someone/model").version() == "1" * 40
    assert Source("someone/model", tokenizer="someone/tokenizer").version() == f"{'1' * 40}, tokenizer {'2' * 40}"
    both = Source("someone/model", tokenizer=str(model)).version()
    assert both == f"{'1' * 40}, tokenizer {folder_digest(model)}"


def test_what_is_settled_is_read_once(model, settled, reads, cache):
    first = folder_digest(model)
    count = len(reads)
    assert count == len(list(cache.iterdir())) >= 3
    assert folder_digest(model) == first and len(reads) == count
    flip(model / "model.safetensors", 5000)  # whose time and size are as before
    assert folder_digest(model) != first and reads[count:] == ["model.safetensors"]


def test_what_has_just_changed_is_not_kept(model, reads, cache):
    first = folder_digest(model)
    assert folder_digest(model) == first and len(reads) % 2 == 0 and not cache.exists()


def test_a_time_in_the_future_is_not_trusted(model, monkeypatch, reads, cache):
    monkeypatch.setattr(digest.time, "time", lambda: time.monotonic() - 1e6)
    folder_digest(model)
    assert not cache.exists()


def test_a_damaged_cache_is_not_believed(model, settled, reads, cache):
    first = folder_digest(model)
    for content in (b"nonsense", b"\xff" * 64, b"g" * 64):
        count = len(reads)
        for file in cache.iterdir():
            file.write_bytes(content)
        assert folder_digest(model) == first and len(reads) == count + len(list(cache.iterdir()))


def test_a_cache_that_cannot_be_written_stops_nothing(model, settled, tmp_path, monkeypatch):
    first = folder_digest(model)
    (tmp_path / "file").write_text("")
    for data in (tmp_path / "file", tmp_path / "file" / "inner", Path("/proc/none")):
        monkeypatch.setenv("POSBIAS_DATA", str(data))
        assert folder_digest(model) == first

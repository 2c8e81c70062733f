"""The authors' own files: found, fetched, never touched; and the numbers that ship against them where they are."""

import gzip
import hashlib
import json
from collections import Counter

import numpy as np
import pytest
from conftest import served

from posbias import cli
from posbias.published import numbers as published
from studies.published import originals

pytest.importorskip("pooch")
pytest.importorskip("pypdf")

FOUND = Counter(found for *_, found in originals.states())
needs_files = pytest.mark.skipif(
    FOUND["ok"] < FOUND.total(), reason="the authors' files are not in POSBIAS_DATA or the cache"
)


@pytest.fixture
def small_registry(tmp_path, monkeypatch):
    """A registry of two files, none of them there yet."""
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))
    files = {"LICENSE": b"licence", "figures/one.pdf": b"a figure"}
    entries = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in files.items()}
    monkeypatch.setattr(originals, "registry", lambda *_: entries)
    return files


@pytest.fixture
def server(tmp_path):
    """Return a folder and the address under which its files are served."""
    folder = tmp_path / "served"
    folder.mkdir()
    with served(folder) as address:
        yield folder, f"{address}/"


def put(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)


def command(capsys, *arguments):
    """Run ``python -m studies.published`` in this process; return its exit status and what it wrote."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*map(str, arguments)], groups=["studies.published.commands"], name="python -m studies.published")
    return ended.value.code, *capsys.readouterr()


def test_missing_files_are_downloaded_checked_and_then_read(small_registry, server, capsys):
    folder, url = server
    put(folder, small_registry)
    assert originals.state("LICENSE") == "missing"
    paths = originals.download(url)
    assert [path.read_bytes() for path in paths] == list(small_registry.values())
    assert originals.path("figures/one.pdf").read_bytes() == b"a figure" and originals.state("LICENSE") == "ok"
    assert originals.download("http://127.0.0.1:1/") == []  # nothing is missing, nothing is asked for
    assert capsys.readouterr() == ("", "")


def test_a_download_with_another_checksum_is_not_kept(small_registry, server):
    folder, url = server
    put(folder, {**small_registry, "LICENSE": b"something else"})
    with pytest.raises(ValueError, match="hash"):
        originals.download(url)
    assert not (originals.data_dir() / "LICENSE").exists()
    assert not list(originals.data_dir().glob("*")), "what was discarded left something behind"


def test_a_file_of_the_users_survives_everything_and_is_named(small_registry, server, capsys, monkeypatch):
    folder, url = server
    put(folder, small_registry)
    mine = originals.data_dir() / "LICENSE"
    put(originals.data_dir(), {"LICENSE": b"my own notes"})
    with pytest.raises(ValueError, match=r"LICENSE: checksum: expected sha256:.*received sha256:.*left as it is"):
        originals.path("LICENSE")
    with pytest.raises(ValueError, match=r"checksum: expected .*nothing was changed.*LICENSE$"):
        originals.download(url)
    assert originals.state("figures/one.pdf") == "ok"  # the other one came
    monkeypatch.setattr(originals, "URL", url)
    for arguments in (["list"], ["download"], ["verify"], ["rebuild", mine.parent.parent / "out.gz"]):
        status, out, error = command(capsys, *arguments)
        assert (status, error.count("\n")) == ((0, 0) if arguments == ["list"] else (2, 1))
        listed = ["differs", "position-bias/LICENSE"] in map(str.split, out.splitlines())
        assert listed if arguments == ["list"] else str(mine) in error
        assert mine.read_bytes() == b"my own notes"
    assert not (mine.parent.parent / "out.gz").exists()


def test_an_unreachable_server_is_one_line(small_registry, server, capsys, monkeypatch):
    with pytest.raises(OSError, match="could not be reached"):
        originals.download(server[1] + "nowhere/")
    monkeypatch.setattr(originals, "URL", "http://127.0.0.1:1/")
    status, out, error = command(capsys, "download")
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("python -m studies.published: http://127.0.0.1:1/LICENSE: could not be reached")
    assert "only verify and rebuild need it, all else works without it" in error


def test_what_is_not_there_says_how_to_get_it(small_registry):
    with pytest.raises(FileNotFoundError, match="studies.published download"):
        originals.path("LICENSE")
    with pytest.raises(FileNotFoundError, match="from https://github.com/starmpcc"):
        originals.path("LICENSE", "layernorm_recency_bias")
    with pytest.raises(ValueError, match="one of the 2 names.*received other"):
        originals.path("other")


def test_nothing_is_rebuilt_from_less_than_all_files(tmp_path, monkeypatch):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path))
    put(tmp_path / "position-bias", {"LICENSE": b"another"})
    out = tmp_path / "out.gz"
    with pytest.raises(
        ValueError, match=r"authors' files: expected all.*received 40 missing and 1 that differ.*LICENSE"
    ):
        originals.rebuild(out)
    assert not out.exists()


def test_verification_without_files_says_that_they_are_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path))
    assert {check.outcome for check in originals.verify()} == {"missing"}
    status, out, error = command(capsys, "verify")
    assert status == 0 and "0 of 41 files equal what ships" in out and not error


def test_the_registries_are_the_checksums_that_ship():
    for source in published.sources():
        shipped = {file.name: f"sha256:{file.sha256}" for file in source.files}
        assert shipped == originals.registry(source.collection)


def test_numbers_are_kept_in_as_few_digits_as_give_them_back():
    single = float(np.float32(0.1))
    assert originals._packed([[single, 2.0]]) == {"precision": "single", "values": [[0.1, 2.0]]}
    assert originals._packed([[0.1, 2.0]]) == {"precision": "double", "values": [[0.1, 2.0]]}
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 50)) * 10.0 ** rng.integers(-30, 30, size=(40, 50))
    for x in (values.astype(np.float32).astype(float), values):
        packed = json.loads(json.dumps(originals._packed(x.tolist())))
        assert published._numbers(**packed) == x.tolist()


@needs_files
def test_the_file_that_ships_is_what_a_rebuild_writes(tmp_path, capsys):
    first, second = tmp_path / "first.gz", tmp_path / "second.gz"
    originals.rebuild(first)
    assert command(capsys, "rebuild", second)[0] == 0
    assert command(capsys, "rebuild", second)[0] == 2, "a file that is there is replaced with --overwrite alone"
    assert first.read_bytes() == second.read_bytes()
    # the text, not the bytes: another zlib may pack the same text in another way
    assert gzip.decompress(first.read_bytes()) == gzip.decompress(published.SHIPPED.read_bytes())


@needs_files
def test_verification_finds_everything_equal(capsys):
    assert {check.outcome for check in originals.verify()} == {"equal"}
    status, out, _ = command(capsys, "verify")
    assert status == 0 and "41 of 41 files equal what ships" in out


@needs_files
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda x: x["arrays"]["lambda/bloom/wikipedia"]["values"].reverse(), "wikipedia/bloom.yaml"),
        (lambda x: x["curves"]["measured"]["influence"].reverse(), originals.FIGURES["measured"]),
        (lambda x: x["recency"].pop(), "fig3_d16_d64_L3L4.pdf"),
        (lambda x: x["sources"][0]["files"][1].update(tabs=30), "dclm/bloom-7b1.yaml"),
        (lambda x: x["configurations"].pop("config/rollout/example.yaml"), "example.yaml"),
    ],
    ids=["schedule", "curve", "probability", "tabs", "configuration"],
)
def test_verification_finds_what_is_not_equal(tmp_path, monkeypatch, capsys, change, named):
    content = json.loads(gzip.decompress(published.SHIPPED.read_bytes()))
    change(content)
    file = tmp_path / "published.json.gz"
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    monkeypatch.setattr(published, "SHIPPED", file)
    status, out, error = command(capsys, "verify")
    assert [line for line in out.splitlines()[:-1] if not line.startswith("equal ")] == [
        f"other numbers {collection}/{name}" for collection, name, _ in originals.states() if name.endswith(named)
    ]
    assert status == 2 and "other numbers: " in error and named in error and error.count("\n") == 1


def test_the_list_has_what_ships_and_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path))
    status, out, error = command(capsys, "list")
    assert status == 0 and not error and "bloom: 70 layers x 112 heads, 256 tokens" in out
    assert out.count("  missing  ") == 41 and "  ok  " not in out


def test_a_rebuild_replaces_nothing_unasked(tmp_path, capsys):
    (tmp_path / "out.gz").write_bytes(b"mine")
    status, _, error = command(capsys, "rebuild", tmp_path / "out.gz")
    assert status == 2 and "or --overwrite" in error and (tmp_path / "out.gz").read_bytes() == b"mine"

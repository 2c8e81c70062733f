"""The authors' own files: found, fetched, never touched; and the numbers that are kept against them."""

import gzip
import hashlib
import json
from collections import Counter

import numpy as np
import pytest
from conftest import served

from posbias import cli
from posbias.configuration import read_config
from posbias.rollout.profiles import read_profile
from studies.published import numbers, originals

FOUND = Counter(found for *_, found in originals.states())
needs_files = pytest.mark.skipif(
    FOUND["ok"] < FOUND.total(), reason="the authors' files are not in POSBIAS_DATA or the cache"
)


@pytest.fixture
def two_files(tmp_path, monkeypatch):
    """Two files are all that the authors have, none of them there yet."""
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))
    files = {"LICENSE": b"licence", "figures/one.pdf": b"a figure"}
    known = [{"name": name, "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()]
    source = {"collection": originals.PAPER, "commit": "a514e09", "files": known}
    monkeypatch.setattr(numbers, "sources", lambda: [source])
    return files


def state(name):
    return next(state for _, other, state in originals.states() if other == name)


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


def test_missing_files_are_downloaded_and_checked(two_files, server, capsys):
    folder, url = server
    put(folder, two_files)
    assert state("LICENSE") == "missing"
    assert [path.read_bytes() for path in originals.download(url)] == list(two_files.values())
    assert originals.path("figures/one.pdf").read_bytes() == b"a figure" and state("LICENSE") == "ok"
    assert originals.download("http://127.0.0.1:1/") == []  # nothing is missing, nothing is asked for
    assert capsys.readouterr() == ("", "")


def test_a_download_with_another_checksum_is_not_kept(two_files, server):
    folder, url = server
    put(folder, {**two_files, "LICENSE": b"something else"})
    with pytest.raises(ValueError, match="hash"):
        originals.download(url)
    assert not list(originals.path("").glob("*")), "what was discarded left something behind"


def test_a_file_of_the_users_survives_everything_and_is_named(two_files, server, capsys, monkeypatch):
    folder, url = server
    put(folder, two_files)
    mine = originals.path("LICENSE")
    put(originals.path(""), {"LICENSE": b"my own notes"})
    monkeypatch.setattr(originals, "URL", url)
    assert command(capsys, "download")[0] == 0 and state("figures/one.pdf") == "ok"
    status, _, error = command(capsys, "verify")
    assert (status, error.count("\n")) == (2, 1) and "LICENSE" in error
    assert mine.read_bytes() == b"my own notes"


def test_an_unreachable_server_is_one_line(two_files, capsys, monkeypatch):
    monkeypatch.setattr(originals, "URL", "http://127.0.0.1:1/")
    status, out, error = command(capsys, "download")
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("python -m studies.published: http://127.0.0.1:1/: could not be reached")


def test_without_files_all_are_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path))
    status, out, error = command(capsys, "verify")
    assert status == 0 and "0 of 41 files equal what is kept" in out and not error
    status, out, error = command(capsys, "list")
    assert status == 0 and not error and "bloom: 70 layers x 112 heads, 256 tokens" in out
    assert out.count("  missing  ") == 41 and "  ok  " not in out


def test_a_configuration_and_a_curve_are_written(tmp_path, capsys):
    choice = ["write", "bloom", "--content", "mean", "--no-residual", "-o", tmp_path / "c.yaml"]
    assert command(capsys, *choice)[0] == 0
    assert read_config(tmp_path / "c.yaml") == numbers.config("bloom", "mean", residual=False)
    assert command(capsys, *choice)[0] == 2, "a file that is there is replaced with --overwrite alone"
    assert command(capsys, "write", "measured", "-o", tmp_path / "m.csv")[0] == 0
    assert (read_profile(tmp_path / "m.csv") == numbers.measured_profile()).all()


@needs_files
def test_verification_finds_everything_equal(capsys):
    status, out, _ = command(capsys, "verify")
    assert status == 0 and "41 of 41 files equal what is kept" in out


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
    content = json.loads(gzip.decompress(numbers.SHIPPED.read_bytes()))
    change(content)
    file = tmp_path / "published.json.gz"
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    monkeypatch.setattr(numbers, "SHIPPED", file)
    status, out, error = command(capsys, "verify")
    assert [line for line in out.splitlines()[:-1] if not line.startswith("equal ")] == [
        f"other numbers {source['collection']}/{name}" for source, name, _ in originals.states() if name.endswith(named)
    ]
    assert status == 2 and "other numbers: " in error and named in error and error.count("\n") == 1


def test_a_curve_comes_back_from_its_figure(tmp_path):
    from matplotlib import pyplot

    y = np.random.default_rng(0).normal(size=40) * 1e-3 + 5e-3
    with pyplot.style.context("default"):
        fig, ax = pyplot.subplots(figsize=(4, 3))
        ax.plot(y, marker="o")
        ax.grid(True)
        fig.savefig(tmp_path / "figure.pdf")
        pyplot.close(fig)
    assert np.abs(originals.read_curve(tmp_path / "figure.pdf") - y).max() < 1e-9

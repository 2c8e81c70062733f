import json
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT, chapter_source

from bookkit import site
from posbias import cli

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())
GOOD = chapter_source("Good chapter", ":tags: [parameters]\n\nn = 4", "2 * n")
BAD = chapter_source("Bad chapter", "1 / 0")


READS = chapter_source("Reads", ':tags: [parameters]\n\nfile = ""', "open(file).read()")


def test_paths_are_taken_from_where_the_user_is(tmp_path, monkeypatch, make_book, capsys):
    root = make_book(reads=READS)
    folder = tmp_path / "elsewhere"
    (folder / "book").mkdir(parents=True)
    monkeypatch.setattr("bookkit.project.find_root", lambda: root)
    monkeypatch.chdir(folder)
    (folder / "mine.txt").write_text("found")
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "reads", "-p", "file", "mine.txt", "-o", "out.ipynb"])
    assert ended.value.code == 0, capsys.readouterr().err
    assert last_output(folder / "out.ipynb") == ["'found'"]


@pytest.fixture
def posbias(capsys, monkeypatch, make_book):
    """Run a command line in a throw-away book; return (exit status, stdout, stderr)."""
    monkeypatch.chdir(make_book(good=GOOD, bad=BAD))

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(a) for a in arguments])
        return (ended.value.code or 0, *capsys.readouterr())

    return call


def last_output(path):
    return json.loads(path.read_text())["cells"][-1]["outputs"][0]["data"]["text/plain"]


def test_version_and_help(posbias):
    assert posbias("--version")[:2] == (0, "posbias 0.1.0\n")
    status, out, _ = posbias("--help")
    assert status == 0 and all(command in out for command in ("book", "run", "chapters"))
    assert "completion" not in out


def test_chapters_lists_parameters(posbias):
    assert posbias("chapters")[:2] == (0, "good: Good chapter\n    n = 4\nbad: Bad chapter\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nix"], "posbias: chapter: expected one of good, bad, received nix"),
        (["run", "good", "-p", "m", "1"], "posbias: good: parameter: expected one of n, received m"),
        (["run", "good", "-p", "n", "x"], "posbias: good: n: expected int (default 4), received 'x'"),
        (["run", "good", "-p", "n"], "posbias: -p: expected a name and a value, received n"),
        (["run", "good", "-o", "none/x.ipynb"], "no such folder"),
        (["run", "good", "-o", "notebooks/good.ipynb"], "expected a path outside the book's own notebooks/"),
        (["book", "--jobs", "0"], "posbias: jobs: expected at least 1, received 0"),
    ],
)
def test_what_the_user_can_put_right_is_one_line(posbias, arguments, message):
    status, out, err = posbias(*arguments)
    assert (status, out) == (2, "")
    assert message in err and err.count("\n") == 1 and err.startswith("posbias: ")


def test_run_writes_where_it_says(posbias, tmp_path):
    root = tmp_path / "project"
    assert posbias("run", "good")[0] == 0
    committed = (root / "notebooks" / "good.ipynb").read_bytes()
    status, out, _ = posbias("run", "good", "-p", "n", "21")
    assert status == 0 and "wrote good.out.ipynb" in out
    assert last_output(root / "good.out.ipynb") == ["42"]
    assert posbias("run", "good", "-p", "n", "-3", "-o", tmp_path / "mine.ipynb")[0] == 0
    assert last_output(tmp_path / "mine.ipynb") == ["-6"]
    assert (root / "notebooks" / "good.ipynb").read_bytes() == committed


def test_a_chapter_that_fails_ends_with_status_1(posbias):
    status, _, err = posbias("run", "bad")
    assert status == 1 and "1 / 0" in err and "ZeroDivisionError" in err


def test_book_reports_failures_and_exits_1(posbias, monkeypatch, tmp_path):
    monkeypatch.setattr(site, "build", lambda root: root / "_build" / "html" / "index.html")
    status, out, err = posbias("book", "--jobs", "1")
    assert status == 1 and "[1/2] good: written" in out and "[2/2] bad: failed" in out
    assert "these chapters failed, and their committed notebooks were kept: bad" in err
    assert not (tmp_path / "project" / "notebooks" / "bad.ipynb").exists()


def test_a_warning_fails_the_build(make_book):
    root = make_book()
    (root / "_config.yml").write_text("title: T\nauthor: A\nlogo: ''\nonly_build_toc_files: true\n")
    (root / "index.md").write_text("# Index\n")
    (root / "book" / "notation.md").write_text("# Notation\n\n{doc}`nowhere`\n")
    with pytest.raises(site.BuildFailed, match="nowhere"):
        site.build(root)
    (root / "book" / "notation.md").write_text("# Notation\n\n{doc}`/index`\n")
    assert site.build(root).read_text()


def test_outside_a_book_the_message_says_so(posbias, monkeypatch, tmp_path):
    from bookkit import project

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(project, "is_root", lambda folder: False)
    for words in (["book"], ["run", "good"], ["chapters"]):
        status, out, err = posbias(*words)
        assert (status, out) == (2, "") and err.count("\n") == 1
        assert err.startswith("posbias: the book's sources: expected _toc.yml beside book/ in")
        assert f"get them with 'git clone {CONFIG['repository']['url']}', then run 'make book' there" in err


def test_help_loads_nothing_heavy():
    code = "import sys; from posbias.cli import make_app; make_app(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"papermill", "jupytext", "nbformat", "matplotlib", "scipy.stats", "torch"}


def test_format_mends_what_it_can_and_names_the_rest(posbias, tmp_path):
    source = tmp_path / "project" / "book" / "good.md"
    assert posbias("format", "good")[:2] == (0, "nothing to mend\n")
    source.write_text(chapter_source("Good chapter", "x=1\nx", "import os"))
    status, out, _ = posbias("format", "good")
    assert status == 1 and out.startswith("good.md: formatted\ngood.ipynb:cell 3:1:8: F401")
    assert "x = 1\nx" in source.read_text()
    assert posbias("format", "ill")[0] == 2

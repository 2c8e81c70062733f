import json
from subprocess import CompletedProcess

import pytest
from conftest import ROOT, chapter_source

from bookkit import site
from bookkit.project import find_root
from posbias import cli

GOOD = chapter_source("Good chapter", ":tags: [parameters]\n\nn = 4", "2 * n")
BAD = chapter_source("Bad chapter", "1 / 0")


@pytest.fixture
def bookkit(capsys, monkeypatch, make_book):
    """Run a command line in a throw-away book; return (exit status, stdout, stderr)."""
    monkeypatch.chdir(make_book(good=GOOD, bad=BAD))

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(a) for a in arguments], groups=["bookkit.commands"], name="python -m bookkit")
        return (ended.value.code or 0, *capsys.readouterr())

    return call


def last_output(path):
    return json.loads(path.read_text())["cells"][-1]["outputs"][0]["data"]["text/plain"]


def test_chapters_lists_parameters(bookkit):
    assert bookkit("chapters")[:2] == (0, "good: Good chapter\n    n = 4\nbad: Bad chapter\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nix"], "python -m bookkit: chapter: expected a page with code, one of good, bad, received nix"),
        (["format", "nix"], "python -m bookkit: chapter: expected a page with code, one of good, bad, received nix"),
        (["run", "good", "-p", "m=1"], "python -m bookkit: good: parameter: expected one of n, received m"),
        (["run", "good", "-p", "n=x"], "python -m bookkit: good: n: expected int (default 4), received 'x'"),
        (["run", "good", "-p", "n"], "python -m bookkit: -p: expected a name and a value, received n"),
        (["book", "--jobs", "0"], "should be greater than or equal to 1"),
    ],
)
def test_what_the_user_can_put_right_is_one_line(bookkit, arguments, message):
    status, out, err = bookkit(*arguments)
    assert (status, out) == (2, "")
    assert message in err and err.count("\n") == 1 and err.startswith("python -m bookkit: ")


def test_run_writes_where_it_says(bookkit, tmp_path, make_book, monkeypatch):
    root = make_book(
        good=GOOD, reads=chapter_source("Reads", ':tags: [parameters]\n\nfile = ""\nn = 1', "n, open(file).read()")
    )
    committed = root / "notebooks" / "good.ipynb"
    committed.write_text("what was there")
    status, out, _ = bookkit("run", "good", "-p", "n=21")
    assert status == 0 and "wrote good.out.ipynb" in out
    assert last_output(root / "good.out.ipynb") == ["42"] and committed.read_text() == "what was there"
    folder = root / "elsewhere"  # paths are taken from where the user is
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "mine.txt").write_text("found")
    assert bookkit("run", "reads", "-p", "file=mine.txt", "-p", "n=-3", "-o", tmp_path / "mine.ipynb")[0] == 0
    assert last_output(tmp_path / "mine.ipynb") == ["(-3, 'found')"]


def test_a_chapter_that_fails_ends_with_status_1(bookkit):
    status, _, err = bookkit("run", "bad")
    assert status == 1 and "1 / 0" in err and "ZeroDivisionError" in err


def test_book_reports_failures_and_exits_1(bookkit, monkeypatch, tmp_path):
    monkeypatch.setattr(site, "build", lambda root: root / "_build" / "html" / "index.html")
    status, out, err = bookkit("book", "--jobs", "1")
    assert status == 1 and "[1/2] good: written" in out and "[2/2] bad: failed" in out
    assert "these chapters failed, and their committed notebooks were kept: bad" in err
    assert not (tmp_path / "project" / "notebooks" / "bad.ipynb").exists()


def test_a_warning_fails_the_build(make_book, monkeypatch):
    root = make_book()
    (root / "_config.yml").write_text("title: T\nauthor: A\nlogo: ''\nonly_build_toc_files: true\n")
    (root / "index.md").write_text("# Index\n")
    (root / "book" / "notation.md").write_text("# Notation\n\n{doc}`nowhere`\n")
    with pytest.raises(site.BuildFailed, match="nowhere"):
        site.build(root)
    monkeypatch.setattr(site.subprocess, "run", lambda *words, **how: CompletedProcess(words, 0, "", ""))
    with pytest.raises(site.BuildFailed, match="the book was not built"):
        site.build(root)


def test_a_build_gives_its_first_page(make_book, monkeypatch):
    root = make_book()

    def built(command, cwd, **how):
        assert {"build", "-W", "-n", "--all"} <= {*command} and cwd == root
        (root / "_build" / "html").mkdir(parents=True)
        (root / "_build" / "html" / "index.html").write_text("first")
        return CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(site.subprocess, "run", built)
    assert site.build(root).read_text() == "first"


def test_outside_a_book_its_checkout_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_root() == ROOT


def test_the_figures_of_the_first_page_are_the_notebooks(make_book):
    for chapter in site.FIGURES:
        assert (ROOT / site.ASSETS / f"{chapter}.png").read_bytes() == site.figure_of(ROOT, chapter), chapter
    root = make_book()
    (root / "notebooks" / "predictions.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4}')
    with pytest.raises(ValueError, match="expected a figure fig-real with a PNG output, received none"):
        site.refresh_figure(root, "predictions")


def test_format_mends_what_it_can_and_names_the_rest(bookkit, tmp_path):
    source = tmp_path / "project" / "book" / "good.md"
    source.with_name("notation.md").write_text("* - `twin`\n  - the untrained network\n  - –\n")
    said = bookkit("format", "good")
    assert said[:2] == (0, "nothing to mend\n"), said[2]
    source.write_text(chapter_source("Good chapter", "x=1\nx", "import os"))
    status, out, _ = bookkit("format", "good")
    assert status == 1 and out.startswith("good.md: formatted\ngood.ipynb:cell 3:1:8: F401")
    assert "x = 1\nx" in source.read_text()
    assert bookkit("format", "ill")[0] == 2

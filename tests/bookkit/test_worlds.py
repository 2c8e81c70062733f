import platform

import pytest
from conftest import chapter_source

from bookkit import runner, worlds
from posbias import cli

THREADS = chapter_source("Threads", "import os\nthreads = int(os.environ['OMP_NUM_THREADS'])", "print(0.5 + {})")


def book(make_book, shift):
    return make_book(threads=THREADS.replace("{}", shift))


def test_worlds_that_agree_and_one_that_does_not(make_book):
    root = book(make_book, "1e-3 * (threads == 3) + 1e-9 * threads")
    runner.run_chapter(root, "threads")
    before = (root / "notebooks" / "threads.ipynb").read_bytes()
    reports = list(worlds.run_worlds(root, ["here", "threads-2", "threads-3"], ["threads"]))
    assert [bool(report.disagreements) for report in reports] == [False, False, True]
    assert reports[2].disagreements == ["threads-002: stdout: expected 0.500000001, received 0.501000003"]
    assert worlds.describe(reports[2]).startswith("threads-3: threads differs (")
    assert (root / "notebooks" / "threads.ipynb").read_bytes() == before


def test_a_chapter_that_fails_in_a_world_differs_there(make_book):
    root = book(make_book, "1 / (3 - threads)")
    runner.run_chapter(root, "threads")
    (report,) = worlds.run_worlds(root, ["threads-3"], [])
    assert "ZeroDivisionError" in report.disagreements[0]


def test_the_command_ends_with_1_where_a_world_differs(make_book, monkeypatch, capsys):
    root = book(make_book, "(threads == 2)")
    runner.run_chapter(root, "threads")
    monkeypatch.chdir(root)
    for world, status in (("here", 0), ("threads-2", 1), ("x", 2)):
        with pytest.raises(SystemExit) as ended:
            cli.main(["portable", "threads", "--world", world], groups=["bookkit.commands"], name="python -m bookkit")
        assert (ended.value.code or 0) == status
    said = capsys.readouterr()
    assert "1 of 1 runs agree" in said.out and "0 of 1 runs agree" in said.out
    assert "world: expected one of here, prescott, haswell" in said.err and said.err.count("\n") == 1


def test_unit_tests_that_fail_in_a_world_are_named(tmp_path):
    code = "import os\ndef test_here(): pass\ndef test_sums(): assert os.environ.get('POSBIAS_UNALIGNED') != '24'\n"
    (tmp_path / "test_world.py").write_text(code)
    eight, other = worlds.run_units(tmp_path, ["unaligned-8", "unaligned-24"], ["test_world.py"])
    assert eight.disagreements == [] and worlds.describe(eight).startswith("unaligned-8: unit tests agrees (")
    assert len(other.disagreements) == 1 and "FAILED test_world.py::test_sums" in other.disagreements[0]


def test_worlds_of_other_processors_have_no_x86_names(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert worlds.world_names(worlds.WORLDS) == ["here", "threads-2", "threads-3"]
    assert "plain" not in worlds.world_names(worlds.UNIT_WORLDS)

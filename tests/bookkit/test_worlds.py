import platform

import nbformat
import pytest
from conftest import chapter_source

from bookkit import runner, worlds
from bookkit.chapters import find_chapter
from posbias import cli

SHIFTS = chapter_source(
    "Threads", "import os\nthreads = int(os.environ['OMP_NUM_THREADS'])", "print(0.5 + 1e-9 * threads + (threads == 3))"
)
FAILS = chapter_source("Fails", "import os\n1 / (3 - int(os.environ['OMP_NUM_THREADS']))")


def portable(*words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["portable", *words], groups=["bookkit.commands"], name="python -m bookkit")
    return ended.value.code or 0


def test_the_command_ends_with_1_where_a_world_differs(make_book, monkeypatch, capsys):
    root = make_book(threads=SHIFTS, fails=FAILS)
    monkeypatch.chdir(root)
    notebook = runner.source_notebook(find_chapter(root, "threads"))
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="0.500000001\n")]
    nbformat.write(notebook, root / "notebooks" / "threads.ipynb")
    before = (root / "notebooks" / "threads.ipynb").read_bytes()
    assert portable("threads", "--world", "threads-2") == 0
    said = capsys.readouterr().out
    assert "threads-2: threads agrees (" in said and "1 of 1 runs agree" in said
    assert portable("--world", "threads-3") == 1
    said = capsys.readouterr().out
    assert "threads-3: threads differs (" in said and "0 of 2 runs agree" in said
    assert "threads-002: stdout: expected 0.500000001, received 1.500000003" in said
    assert "threads-3: fails differs (" in said and "ZeroDivisionError" in said
    assert portable("threads", "--world", "x") == 2
    said = capsys.readouterr().err
    assert "world: expected one of here, prescott, haswell" in said and said.count("\n") == 1
    assert (root / "notebooks" / "threads.ipynb").read_bytes() == before


def test_unit_tests_that_fail_in_a_world_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # to start them takes longer than the tests
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    code = "import os\ndef test_here(): pass\ndef test_sums(): assert os.environ.get('POSBIAS_UNALIGNED') != '24'\n"
    (tmp_path / "test_world.py").write_text(code)
    eight, other = worlds.run_units(tmp_path, ["unaligned-8", "unaligned-24"], ["test_world.py"])
    assert eight.disagreements == [] and worlds.describe(eight).startswith("unaligned-8: unit tests agrees (")
    assert len(other.disagreements) == 1 and "FAILED test_world.py::test_sums" in other.disagreements[0]


def test_worlds_of_other_processors_have_no_x86_names(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert worlds.world_names(worlds.WORLDS) == ["here", "threads-2", "threads-3"]
    assert "plain" not in worlds.world_names(worlds.UNIT_WORLDS)

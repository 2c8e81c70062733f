import json
import os
import re

import pytest
from conftest import chapter_source

from bookkit import runner
from bookkit.chapters import find_chapter, list_chapters

PARAMETERS = ':tags: [parameters]\n\nn = 4  # tokens\nslope = 0.5\nmodel = "bloom"\nexact = True\nlengths = [8, 16]'
GOOD = chapter_source("Good", PARAMETERS, "import sys\nprint('a')\nprint({'x', 'y', 'z'})\nprint('b')", "n * slope")
BAD = chapter_source("Bad", "1 + 1", "boom = 1 / 0")


def cells(path):
    return json.loads(path.read_text())["cells"]


def test_two_runs_give_identical_bytes(make_book):
    root = make_book(good=GOOD)
    notebook = root / "notebooks" / "good.ipynb"
    assert runner.run_chapter(root, "good").status == "written"
    first, inode = notebook.read_bytes(), notebook.stat().st_ino
    assert runner.run_chapter(root, "good").status == "unchanged"
    assert notebook.stat().st_ino == inode
    notebook.unlink()
    runner.run_chapter(root, "good")
    assert notebook.read_bytes() == first


def test_notebook_is_tidy(make_book):
    root = make_book(good=GOOD)
    runner.run_chapter(root, "good")
    text = (root / "notebooks" / "good.ipynb").read_text()
    written = json.loads(text)
    assert [cell["id"] for cell in written["cells"]] == ["good-000", "good-001", "good-002", "good-003"]
    assert not re.search(r"papermill|execution\"|iopub|injected|duration", text)
    assert written["metadata"]["language_info"]["pygments_lexer"] == "ipython3"
    streams = written["cells"][2]["outputs"]
    assert [output["output_type"] for output in streams] == ["stream"]
    assert written["cells"][3]["outputs"][0]["data"]["text/plain"] == ["2.0"]


def test_tidying_twice_changes_nothing_and_merges_streams():
    import nbformat

    stream = {"output_type": "stream", "name": "stdout"}
    notebook = nbformat.v4.new_notebook(metadata={"widgets": {}, "papermill": {}, "mystnb": {"x": 1}})
    cell = nbformat.v4.new_code_cell("1", metadata={"papermill": {}, "tags": []})
    cell.outputs = [nbformat.from_dict({**stream, "text": text}) for text in ("a", "b")]
    notebook.cells = [cell]
    once = runner.notebook_text(runner.tidy(notebook, "s"))
    assert runner.notebook_text(runner.tidy(nbformat.reads(once, 4), "s")) == once
    assert json.loads(once)["cells"][0]["outputs"] == [{**stream, "text": ["ab"]}]
    assert set(json.loads(once)["metadata"]) == {"kernelspec", "language_info", "mystnb"}
    assert json.loads(once)["cells"][0]["metadata"] == {}


def test_kernel_runs_in_the_project_folder(make_book):
    root = make_book(where=chapter_source("Where", "import os\nprint(os.getcwd())"))
    runner.run_chapter(root, "where")
    assert cells(root / "notebooks" / "where.ipynb")[1]["outputs"][0]["text"] == [f"{root}\n"]


def test_chapters_are_read_in_order_with_their_parameters(make_book):
    root = make_book(b=GOOD, a=BAD)
    first, second = list_chapters(root)
    assert (first.stem, second.stem) == ("b", "a")
    assert first.title == "Good"
    assert first.parameters == {"n": 4, "slope": 0.5, "model": "bloom", "exact": True, "lengths": [8, 16]}
    assert second.parameters == {}


@pytest.mark.parametrize("cell", ["n = 1 + x", "n: int"])
def test_parameters_must_be_literals(make_book, cell):
    root = make_book(odd=chapter_source("Odd", f":tags: [parameters]\n\n{cell}"))
    with pytest.raises(ValueError, match="odd.md: the parameters cell: expected only lines"):
        find_chapter(root, "odd")


def test_unknown_need_and_missing_source_are_refused(make_book):
    root = make_book(odd=chapter_source("Odd", "1", extra="posbias:\n  needs: [gpu]\n"))
    with pytest.raises(ValueError, match="expected some of records, received gpu"):
        find_chapter(root, "odd")
    (root / "book" / "odd.md").unlink()
    with pytest.raises(FileNotFoundError, match="odd.md"):
        list_chapters(root)


def test_failed_notebook_is_not_promoted(make_book):
    root = make_book(bad=BAD)
    kept = root / "notebooks" / "bad.ipynb"
    kept.write_text("what was there")
    outcome = runner.run_chapter(root, "bad")
    assert outcome.status == "failed"
    assert "boom = 1 / 0" in outcome.message and "ZeroDivisionError" in outcome.message
    assert kept.read_text() == "what was there"


def test_a_dead_kernel_is_a_failure_of_its_chapter(make_book):
    root = make_book(dead=chapter_source("Dead", "import os\nos._exit(3)"))
    assert runner.run_chapter(root, "dead").status == "failed"
    assert not (root / "notebooks" / "dead.ipynb").exists()


def test_book_goes_on_after_a_failure_and_reads_records_last(make_book):
    reads = chapter_source(
        "Reads",
        "from pathlib import Path\nPath('notebooks/good.ipynb').is_file()",
        extra="posbias:\n  needs: [records]\n",
    )
    root = make_book(reads=reads, bad=BAD, good=GOOD)
    lines = []
    outcomes = runner.run_book(root, jobs=2, echo=lines.append)
    assert [(o.stem, o.status) for o in outcomes] == [("bad", "failed"), ("good", "written"), ("reads", "written")]
    assert cells(root / "notebooks" / "reads.ipynb")[1]["outputs"][0]["data"]["text/plain"] == ["True"]
    assert re.match(r"\[2/3\] good: written \(\d+\.\d s\)", lines[1])


def test_other_parameters_never_touch_the_book(make_book, tmp_path):
    root = make_book(good=GOOD)
    runner.run_chapter(root, "good")
    before = {path: path.read_bytes() for folder in ("book", "notebooks") for path in (root / folder).iterdir()}
    out = tmp_path / "out.ipynb"
    outcome = runner.run_chapter_to(root, "good", {"n": 6, "slope": 2}, out)
    assert outcome.status == "written"
    assert cells(out)[-1]["outputs"][0]["data"]["text/plain"] == ["12.0"]
    after = {path: path.read_bytes() for folder in ("book", "notebooks") for path in (root / folder).iterdir()}
    assert after == before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"m": "3"}, "parameter: expected one of n, slope, model, exact, lengths, received m"),
        ({"n": "many"}, "n: expected int"),
        ({"slope": ".nan"}, "slope: expected a finite number"),
        ({"exact": "1"}, "exact: expected bool"),
    ],
)
def test_wrong_parameters_are_refused(make_book, values, message):
    chapter = find_chapter(make_book(good=GOOD), "good")
    with pytest.raises(ValueError, match=re.escape(message)):
        runner.parse_parameters(chapter, values)


def test_parameters_are_yaml_literals_of_the_type_of_the_default(make_book):
    chapter = find_chapter(make_book(good=GOOD), "good")
    given = {"n": "64", "slope": "1e-3", "model": "7", "exact": "false", "lengths": "[1, 2]"}
    assert runner.parse_parameters(chapter, given) == {
        "n": 64, "slope": 0.001, "model": "7", "exact": False, "lengths": [1, 2]
    }  # fmt: skip
    widened = runner.parse_parameters(chapter, {"slope": "2"})["slope"]
    assert type(widened) is float


def test_outputs_that_cannot_be_written_are_refused_before_the_run(make_book, tmp_path, monkeypatch):
    root = make_book(good=GOOD)
    monkeypatch.setattr(runner, "_execute", lambda *_: pytest.fail("executed"))
    for output, error in [
        (root / "notebooks" / "x.ipynb", ValueError),
        (root / "book" / "x.ipynb", ValueError),
        (tmp_path / "x.html", ValueError),
        (tmp_path / "none" / "x.ipynb", FileNotFoundError),
    ]:
        with pytest.raises(error):
            runner.run_chapter_to(root, "good", {}, output)
    (tmp_path / "folder.ipynb").mkdir()
    with pytest.raises(IsADirectoryError):
        runner.run_chapter_to(root, "good", {}, tmp_path / "folder.ipynb")


SHAKEN = chapter_source(
    "Shaken",
    "import os\nshift = float(os.environ.get('SHIFT', 0))",
    "print('sum', 0.5 + shift)",
    ":tags: [nbval-ignore-output]\n\nprint('machine', shift)",
)


def test_running_where_last_digits_differ_changes_nothing(make_book, monkeypatch):
    root = make_book(shaken=SHAKEN)
    notebook = root / "notebooks" / "shaken.ipynb"
    runner.run_chapter(root, "shaken")
    first = notebook.read_bytes()
    monkeypatch.setenv("SHIFT", "1e-9")
    assert runner.run_chapter(root, "shaken").status == "unchanged"
    assert notebook.read_bytes() == first
    monkeypatch.setenv("SHIFT", "1e-3")
    assert runner.run_chapter(root, "shaken").status == "written"
    assert "sum 0.501" in notebook.read_text() and "machine 0.001" in notebook.read_text()


def test_other_text_or_code_keeps_the_outputs_of_other_cells(make_book, monkeypatch):
    root = make_book(shaken=SHAKEN)
    runner.run_chapter(root, "shaken")
    make_book(shaken=SHAKEN.replace("# Shaken", "# Shaken again").replace("print('sum", "0\nprint('sum"))
    monkeypatch.setenv("SHIFT", "1e-9")
    assert runner.run_chapter(root, "shaken").status == "written"
    text = (root / "notebooks" / "shaken.ipynb").read_text()
    assert "# Shaken again" in text and "sum 0.500000001" in text and "machine 1e-09" in text


def test_outputs_of_the_machine_are_kept_only_with_all_code_above(make_book):
    cells = ("x = 1", "x = 2", ":tags: [nbval-ignore-output]\n\nprint(x)")
    root = make_book(x=chapter_source("X", *cells))
    runner.run_chapter(root, "x")
    make_book(x=chapter_source("X", cells[1], cells[0], cells[2]))
    runner.run_chapter(root, "x")
    assert json.loads((root / "notebooks" / "x.ipynb").read_text())["cells"][-1]["outputs"][0]["text"] == ["1\n"]


def test_a_value_that_is_kept_has_the_number_of_its_cell(make_book):
    root = make_book(x=chapter_source("X", "1 + 1"))
    runner.run_chapter(root, "x")
    make_book(x=chapter_source("X", "0", "1 + 1"))
    runner.run_chapter(root, "x")
    cell = json.loads((root / "notebooks" / "x.ipynb").read_text())["cells"][-1]
    assert cell["execution_count"] == cell["outputs"][0]["execution_count"] == 2


@pytest.mark.parametrize("there", ["what was there", "{}"])
def test_a_notebook_that_cannot_be_read_is_replaced(make_book, there):
    root = make_book(good=GOOD)
    (root / "notebooks" / "good.ipynb").write_text(there)
    assert runner.run_chapter(root, "good").status == "written"
    assert cells(root / "notebooks" / "good.ipynb")


def test_environment_of_a_run_is_put_back(make_book, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    root = make_book(env=chapter_source("Env", "import os\nprint(os.environ['OMP_NUM_THREADS'])"))
    runner.run_chapter(root, "env")
    assert cells(root / "notebooks" / "env.ipynb")[1]["outputs"][0]["text"] == ["1\n"]
    assert os.environ["OMP_NUM_THREADS"] == "7" and "PYTHONHASHSEED" not in os.environ

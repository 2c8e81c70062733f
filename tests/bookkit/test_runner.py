import json
import os
import re

import pytest
from conftest import chapter_source

from bookkit import runner
from bookkit.chapters import find_chapter, list_chapters

PARAMETERS = ':tags: [parameters]\n\nn = 4  # tokens\nslope = 0.5\nmodel = "bloom"\nexact = True\nlengths = [8, 16]'
SPEAKS = "import os\nprint('a')\nprint({'x', 'y', 'z'})\nprint(os.getcwd(), os.environ['OMP_NUM_THREADS'])"
SPEAKS += "\nimport warnings\nwarnings.warn('IProgress not found.', stacklevel=2)"  # stays off the page
GOOD = chapter_source("Good", PARAMETERS, SPEAKS, "n * slope")
BAD = chapter_source("Bad", "1 + 1", "boom = 1 / 0")


def cells(path):
    return json.loads(path.read_text())["cells"]


def test_two_runs_give_identical_bytes(make_book, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    root = make_book(good=GOOD)
    notebook = root / "notebooks" / "good.ipynb"
    notebook.write_text("{}")  # is replaced: it cannot be read
    assert runner.run_chapter(root, "good").status == "written"
    first, inode = notebook.read_bytes(), notebook.stat().st_ino
    assert runner.run_chapter(root, "good").status == "unchanged"
    assert notebook.read_bytes() == first and notebook.stat().st_ino == inode
    assert os.environ["OMP_NUM_THREADS"] == "7" and "PYTHONHASHSEED" not in os.environ
    written = json.loads(first)
    assert [cell["id"] for cell in written["cells"]] == ["good-000", "good-001", "good-002", "good-003"]
    assert not re.search(rb"papermill|execution\"|iopub|injected|duration", first)
    assert written["metadata"]["language_info"]["pygments_lexer"] == "ipython3"
    (stream,) = written["cells"][2]["outputs"]
    assert stream["output_type"] == "stream" and stream["text"][2] == f"{root} 1\n"
    assert written["cells"][3]["outputs"][0]["data"]["text/plain"] == ["2.0"]
    out = root / "out.ipynb"
    assert runner.run_chapter_to(root, "good", {"n": 6, "slope": 2.0}, out).status == "written"
    assert cells(out)[-1]["outputs"][0]["data"]["text/plain"] == ["12.0"]
    assert notebook.read_bytes() == first and (root / "book" / "good.md").read_text() == GOOD


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


def test_book_goes_on_after_failures_keeps_what_was_there_and_reads_records_last(make_book):
    reads = chapter_source(
        "Reads",
        "from pathlib import Path\nPath('notebooks/good.ipynb').is_file()",
        extra="posbias:\n  needs: [records]\n",
    )
    dead = chapter_source("Dead", "import os\nos._exit(3)")
    root, lines = make_book(reads=reads, bad=BAD, dead=dead, good=GOOD), []
    for stem in ("bad", "good"):
        (root / "notebooks" / f"{stem}.ipynb").write_text("what was there")
    outcomes = runner.run_book(root, jobs=2, echo=lines.append)
    assert [(o.stem, o.status) for o in outcomes] == [
        ("bad", "failed"), ("dead", "failed"), ("good", "written"), ("reads", "written")
    ]  # fmt: skip
    assert "boom = 1 / 0" in outcomes[0].message and "ZeroDivisionError" in outcomes[0].message
    assert (root / "notebooks" / "bad.ipynb").read_text() == "what was there"
    assert not (root / "notebooks" / "dead.ipynb").exists()
    assert cells(root / "notebooks" / "reads.ipynb")[1]["outputs"][0]["data"]["text/plain"] == ["True"]
    assert re.match(r"\[3/4\] good: written \(\d+\.\d s\)", lines[2])


def test_parameters_are_json_of_the_type_of_the_default(make_book):
    chapter = find_chapter(make_book(good=GOOD), "good")
    given = {"n": "64", "slope": "1e-3", "model": "7", "exact": "false", "lengths": "[1, 2]"}
    assert runner.parse_parameters(chapter, given) == {
        "n": 64, "slope": 0.001, "model": "7", "exact": False, "lengths": [1, 2]
    }  # fmt: skip
    widened = runner.parse_parameters(chapter, {"slope": "2"})["slope"]
    assert type(widened) is float
    for name, text in {"n": "true", "slope": "NaN", "exact": "1", "lengths": "1, 2"}.items():
        with pytest.raises(ValueError, match=f"good: {name}: expected {type(chapter.parameters[name]).__name__} "):
            runner.parse_parameters(chapter, {name: text})


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


def test_running_where_last_digits_differ_changes_nothing_and_another_text_only_itself(make_book, monkeypatch):
    root = make_book(shaken=SHAKEN)
    notebook = root / "notebooks" / "shaken.ipynb"
    runner.run_chapter(root, "shaken")
    first = notebook.read_bytes()
    monkeypatch.setenv("SHIFT", "1e-9")
    assert runner.run_chapter(root, "shaken").status == "unchanged"
    assert notebook.read_bytes() == first
    make_book(shaken=SHAKEN.replace("# Shaken", "# Shaken again").replace("print('sum", "0\nprint('sum"))
    assert runner.run_chapter(root, "shaken").status == "written"
    text = notebook.read_text()
    assert "# Shaken again" in text and "sum 0.500000001" in text and "machine 1e-09" in text
    monkeypatch.setenv("SHIFT", "1e-3")
    assert runner.run_chapter(root, "shaken").status == "written"
    assert "sum 0.501" in notebook.read_text() and "machine 0.001" in notebook.read_text()


def test_outputs_of_the_machine_are_kept_only_with_all_code_above_and_values_have_their_cells_number(make_book):
    first, second, value = "x = 1", "x = 2", "1 + 1"
    machine = ":tags: [nbval-ignore-output]\n\nprint(x)"
    root = make_book(x=chapter_source("X", first, second, value, machine))
    runner.run_chapter(root, "x")
    make_book(x=chapter_source("X", second, value, first, machine))
    runner.run_chapter(root, "x")
    *_, kept, _, last = cells(root / "notebooks" / "x.ipynb")
    assert kept["execution_count"] == kept["outputs"][0]["execution_count"] == 2
    assert last["outputs"][0]["text"] == ["1\n"]

"""Bad inputs: each is refused in one line that names the field or the file, and nothing is written.

The rows are in :mod:`bad_rows`, and the files in :mod:`bad_files`; what a call of the front door refuses is in the last
table.
"""

import shlex
from functools import cache

import pytest
import typer.main
from bad_files import write_configurations, write_corpora, write_models, write_results
from bad_rows import TABLE

import posbias
from posbias import cli

PROGRAMS = ("bookkit", "studies.icl", "studies.lookup", "studies.published", "studies.reference")
"""First words of a row that run ``python -m PROGRAM``; other rows are of ``posbias``."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return the folder of files that are not as they should be."""
    root = tmp_path_factory.mktemp("place")
    for write in (write_models, write_corpora, write_results, write_configurations):
        write(root)
    return root


@pytest.fixture(scope="module")
def listed(place):
    """Return what is in the folder before the first row."""
    return {path: path.lstat().st_mtime_ns for path in place.rglob("*")}


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Let typer read the signature of each command once, and not again for each row: a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_params_from_function", cache(typer.main.get_params_from_function))
        yield


@pytest.mark.parametrize("row", range(len(TABLE)), ids=[f"{k}-{words[:60]}" for k, (words, _) in enumerate(TABLE)])
def test_bad_input_is_one_line(place, listed, tmp_path, monkeypatch, capsys, row):
    words, expected = TABLE[row]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    given = [word.replace("P/", f"{place}/") for word in shlex.split(words)]
    program = given[0] if given[0] in PROGRAMS else ""
    name = f"python -m {program}" if program else "posbias"
    with pytest.raises(SystemExit) as ended:
        cli.main(given[1:], groups=[f"{program}.commands"], name=name) if program else cli.main(given)
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and out == "", (ended.value.code, out, err)
    assert err.startswith(f"{name}: ") and err.count("\n") == 1 and "Traceback" not in err, err
    for part in expected:
        assert part.replace("P/", f"{place}/") in err, (part, err)
    assert len(err) < 1000, err
    assert list(tmp_path.iterdir()) == []
    assert {path: path.lstat().st_mtime_ns for path in place.rglob("*")} == listed


FRONT = {
    "open nothing": (lambda place: posbias.open(None), "model: expected a path, a name, or a model in memory"),
    "a kernel of no rows": (lambda place: posbias.influence_profile([], [0.5]), "dimension"),
    "no layer": (lambda place: posbias.structured_kernels(0, slope=1.0), "at least 1"),
    "a mean of text": (lambda place: posbias.mean_position("text"), "array of numbers"),
}
"""Calls of the front door, and what the error says."""


@pytest.mark.parametrize("name", FRONT)
def test_the_front_door_says_what_was_expected(place, name):
    call, expected = FRONT[name]
    with pytest.raises(ValueError) as refused:
        call(place)
    assert expected in str(refused.value) and "\n" not in str(refused.value)
    assert "received" in str(refused.value)

"""The code that a page shows is enough to get its numbers, and what it hides can be read."""

import contextlib
import io
import json
import re
from statistics import median

import matplotlib
import numpy as np
import pytest
import xarray as xr
from conftest import ROOT
from limits import cell_lines

from posbias.lookup.file import Found
from posbias.lookup.tasks import LAYOUT, SCHEMA

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
HIDDEN, MEDIAN = 150, 80
"""Lines behind a click: the most on a page, and on half of all pages."""
NOT_YET: set[str] = set()
"""Pages that hide more, or whose code does not run by itself; a page that is rebuilt goes from here."""
BY_ITSELF = {"one_page": "it shows two commands", "verdicts": "it lists what others found"}
"""Pages that show no code to copy."""
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
CODE = [pytest.param(path, id=stem) for stem, path in NOTEBOOKS.items() if stem not in NOT_YET | {*BY_ITSELF}]


OTHERWISE = {
    "depth": {"n": 16, "slope_length": 2.0},
    "design": {"n": 256, "layers": 6, "mixing": 0.1},
    "forces": {"n": 32, "layers": 6, "mixing": 0.2},
    "predictions": {"prompts": 4, "length": 16},
    "rollout": {"model": "reference/llama-12", "prompts": 4, "length": 16},
    "tokens": {"model": "reference/bloom-8", "n": 16},
    "untrained": {"layers": 2, "heads": 2, "width": 32, "n": 16},
}
"""Pages whose code takes parameters, and others than their own."""


def shown_cells(path):
    """Yield source, outputs and tags of the cells of code that a reader sees at once."""
    for cell in json.loads(path.read_text())["cells"]:
        tags = {*cell["metadata"].get("tags", [])}
        if cell["cell_type"] == "code" and not tags & {"hide-input", "hide-cell", "remove-cell", "remove-input"}:
            yield "".join(cell["source"]), cell["outputs"], tags


def run_shown(path, **parameters):
    """Return what the shown cells print if they run one after another, with other parameters where these are given."""
    here, namespace = io.StringIO(), {"__name__": "__main__"}
    with contextlib.redirect_stdout(here):
        for source, _, tags in shown_cells(path):
            exec(compile(source, path.stem, "exec"), namespace)
            if "parameters" in tags:
                assert {*parameters} <= {*namespace}, f"{path.stem} has no such parameter"
                namespace.update(parameters)
    return here.getvalue()


def printed(outputs):
    """Return what a cell printed."""
    return "".join("".join(x["text"]) for x in outputs if x["output_type"] == "stream" and x["name"] == "stdout")


@pytest.mark.parametrize("path", CODE)
def test_copied_code_gives_the_numbers_of_the_page(path, tmp_path, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    cells = list(shown_cells(path))
    here, there = run_shown(path), "".join(printed(outputs) for _, outputs, _ in cells)
    assert 8 <= sum(len(source.splitlines()) for source, *_ in cells), f"{path.stem}: shows hardly any code"
    assert there.strip(), f"{path.stem}: its code prints nothing"
    assert NUMBER.sub("", here) == NUMBER.sub("", there)
    numbers = [np.array(NUMBER.findall(text), float) for text in (here, there)]
    np.testing.assert_allclose(*numbers, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("stem", OTHERWISE)
def test_other_parameters_give_other_numbers(stem, tmp_path, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    there = "".join(printed(outputs) for _, outputs, _ in shown_cells(NOTEBOOKS[stem]))
    assert run_shown(NOTEBOOKS[stem], **OTHERWISE[stem]) != there


def test_a_lookup_of_ones_own_takes_the_place_of_the_answers(tmp_path, monkeypatch):
    """Of five contexts of three places the first is always right, and each other answer is from the place before."""
    monkeypatch.chdir(tmp_path)
    dims, arms = ("arm", "context", "place"), ["competing", "not_competing", "closed_book"]
    arrays = {
        "correct": (dims, np.tile([1.0, 0.0, 0.0], (3, 5, 1))),
        "log_probability": (dims, np.zeros((3, 5, 3))),
        "twice": ("context", np.zeros(5, np.int8)),
        "prompt": (dims, np.full((3, 5, 3), "asked")),
        "answer": (dims, np.full((3, 5, 3), "told")),
        "source": (("context", "place"), np.tile([0, 0, 1], (5, 1)).astype(np.int16)),
    }
    attrs = {"model": "m", "task": "documents", "dataset": "d", "rows": "made up", "form": "plain text", "tokens": 9}
    attrs |= {LAYOUT: SCHEMA, "revision": "1"}
    path = Found(xr.Dataset(arrays, {"arm": arms}, attrs)).save(tmp_path / "found.nc")
    said = run_shown(NOTEBOOKS["documents"], lookup=str(path))
    assert "of 5" in said
    assert "first less middle: 1.00" in said and "last less middle: 0.00" in said
    assert run_shown(NOTEBOOKS["reading"], lookup=str(path)).count("pulls")


@pytest.mark.parametrize("stem", [stem for stem in NOTEBOOKS if stem not in NOT_YET])
def test_page_hides_little(stem):
    hidden = cell_lines(NOTEBOOKS[stem])[1]
    assert hidden <= HIDDEN, f"{stem}: {hidden} lines behind a click"


def test_half_of_all_pages_hide_less():
    assert NOT_YET or median(cell_lines(path)[1] for path in NOTEBOOKS.values()) <= MEDIAN


def test_lists_name_pages():
    assert {*NOT_YET, *BY_ITSELF} <= {*NOTEBOOKS}

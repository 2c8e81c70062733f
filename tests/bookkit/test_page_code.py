"""The code that a page shows is enough to get its numbers, and what it hides can be read."""

import contextlib
import io
import json
import re
from statistics import median

import matplotlib
import numpy as np
import pytest
from conftest import ROOT
from limits import cell_lines

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
HIDDEN, MEDIAN = 150, 80
"""Lines behind a click: the most on a page, and on half of all pages."""
NOT_YET: set[str] = set()
"""Pages that hide more, or whose code does not run by itself; a page that is rebuilt goes from here."""
BY_ITSELF = {"one_page": "it shows two commands", "verdicts": "it lists what others found"}
"""Pages that show no code to copy."""
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
CODE = [pytest.param(path, id=stem) for stem, path in NOTEBOOKS.items() if stem not in NOT_YET | {*BY_ITSELF}]


def shown_cells(path):
    """Yield source and outputs of the cells of code that a reader sees at once."""
    for cell in json.loads(path.read_text())["cells"]:
        tags = {*cell["metadata"].get("tags", [])}
        if cell["cell_type"] == "code" and not tags & {"hide-input", "hide-cell", "remove-cell", "remove-input"}:
            yield "".join(cell["source"]), cell["outputs"]


def printed(outputs):
    """Return what a cell printed."""
    return "".join("".join(x["text"]) for x in outputs if x["output_type"] == "stream" and x["name"] == "stdout")


@pytest.mark.parametrize("path", CODE)
def test_copied_code_gives_the_numbers_of_the_page(path, tmp_path, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    here, there, namespace = io.StringIO(), "", {"__name__": "__main__"}
    cells = list(shown_cells(path))
    with contextlib.redirect_stdout(here):
        for source, outputs in cells:
            there += printed(outputs)
            exec(compile(source, path.stem, "exec"), namespace)
    assert 8 <= sum(len(source.splitlines()) for source, _ in cells), f"{path.stem}: shows hardly any code"
    assert there.strip(), f"{path.stem}: its code prints nothing"
    assert NUMBER.sub("", here.getvalue()) == NUMBER.sub("", there)
    numbers = [np.array(NUMBER.findall(text), float) for text in (here.getvalue(), there)]
    np.testing.assert_allclose(*numbers, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("stem", [stem for stem in NOTEBOOKS if stem not in NOT_YET])
def test_page_hides_little(stem):
    hidden = cell_lines(NOTEBOOKS[stem])[1]
    assert hidden <= HIDDEN, f"{stem}: {hidden} lines behind a click"


def test_half_of_all_pages_hide_less():
    assert NOT_YET or median(cell_lines(path)[1] for path in NOTEBOOKS.values()) <= MEDIAN


def test_lists_name_pages():
    assert {*NOT_YET, *BY_ITSELF} <= {*NOTEBOOKS}

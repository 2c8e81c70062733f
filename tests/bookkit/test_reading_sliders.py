"""The sliders of the law of reading: their formulas under node against Python's, and what was seen against results."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from conftest import ROOT

from studies.reading.tables import count_answers
from studies.results import load
from studies.theorems import reading

GRID = [(gamma, P, left, right) for gamma in (0.05, 0.62, 3.0) for P in (3, 8, 32) for left, right in ((0, 0), (2, -1))]
SCRIPT = """
const law = require(process.argv[1]), grid = JSON.parse(process.argv[2]);
console.log(JSON.stringify({seen: law.SEEN, cases: grid.map(([gamma, places, first, last]) => {
  const rows = law.matrix(gamma, places, first, last), right = rows.map((row, q) => row[q]);
  return {rows, lost: law.isMiddleLost(right), order: law.bestOrder(right), least: law.leastPull(gamma, places),
    turning: law.turningPull(gamma)};
})}));
"""


@pytest.fixture(scope="module")
def told():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    words = [node, "-e", SCRIPT, str(ROOT / "book" / "assets" / "reading.js"), json.dumps(GRID)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("case", range(len(GRID)))
def test_formulas_are_those_of_the_study(told, case):
    (gamma, P, left, right), found = GRID[case], told["cases"][case]
    rows = reading.reading_matrix(gamma, reading.end_pulls(P, left, right))
    assert np.allclose(found["rows"], rows, rtol=1e-12)
    accuracy = rows.diagonal().round(12)
    assert found["lost"] == reading.is_middle_lost(accuracy)
    assert (np.array(found["order"]) - 1).tolist() == reading.best_order(accuracy).tolist()
    assert found["least"] == pytest.approx(reading.least_pull(gamma, P), rel=1e-9, abs=1e-12)
    assert found["turning"] == pytest.approx(reading.turning_pull(gamma), rel=1e-12)


def test_what_was_seen_is_what_is_kept(told):
    kept = load("reading")
    counts = sum(count_answers(kept[name]).sum(0) for name in ("smollm2.eight", "smollm2.eight-new"))
    assert told["seen"] == counts.astype(int).tolist()

"""Check functions that a chapter defines for itself, on the smallest cases that they must tell apart."""

import ast

import numpy as np
import pytest
from conftest import ROOT

from bookkit.chapters import read_markdown
from studies.theorems.case_rollouts import case_rollouts
from studies.theorems.drift import case_drifts


def check_of(stem, name, **known):
    """Return a function as a chapter defines it, with the names that it needs."""
    cells = [cell.source for cell in read_markdown(ROOT / "book" / f"{stem}.md").cells if cell.cell_type == "code"]
    code = ["".join(line for line in cell.splitlines(True) if line[:1] not in "%!:") for cell in cells]
    found = [x for cell in code for x in ast.parse(cell).body if isinstance(x, ast.FunctionDef) and x.name == name]
    exec(compile(ast.Module(found, []), stem, "exec"), known)
    return known[name]


def test_growth_with_depth_is_asked_of_the_first_layer_too():
    drifts = check_of("forces", "depth_drifts", case_rollouts=case_rollouts, case_drifts=case_drifts)
    ahead, causal = np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.5, 0.5]])
    assert drifts(np.array([[ahead], [causal]]), np.ones((2, 1))).tolist() == pytest.approx([-0.5, 0.0])
    assert drifts(np.array([[ahead, causal]]), np.array([[1.0, 0.0]])).tolist() == pytest.approx([-0.5])

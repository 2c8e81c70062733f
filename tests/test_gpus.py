"""The page on GPUs: each number in its table is one that the command prints."""

import importlib.util
import sys

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

SPEC = importlib.util.spec_from_file_location("gpus", ROOT / "benchmarks" / "gpus.py")
gpus = importlib.util.module_from_spec(SPEC)
sys.modules["gpus"] = gpus
SPEC.loader.exec_module(gpus)

PAGE = (ROOT / "book" / "gpus.md").read_text(encoding="utf-8")
ROOM, RATE = 75 * gpus.GIB, 0.4 * 989e12


@pytest.fixture(scope="module")
def rows():
    return {(row.model, row.length): row for row in gpus.rows(1000, ROOM, RATE)}


def test_the_page_shows_what_the_command_prints(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpus.py"])
    gpus.main()
    table, parameters = capsys.readouterr().out.strip().split("\n\n")
    assert table in PAGE and table.count("\n") == 1 + len(gpus.MODELS) * len(gpus.LENGTHS)
    assert "Llama-like 6,738,415,616; 70B" in parameters, "Llama 2's number of parameters"


def test_weights_and_time_by_hand(rows):
    row = rows["7B, Llama-like", 256]
    assert abs(row.need.weights - 2 * 6_738_415_616) < 2**20, "and rotary frequencies"
    passes = 3 * 2 * 6_738_415_616 * 256 * 1000  # forward, once more, and back by activations
    assert passes < row.need.operations < 1.1 * passes
    assert row.seconds == row.need.operations / RATE and row.gpus == 1 and row.at_once > 100


def test_one_layer_may_be_too_large_for_a_gpu(rows):
    assert rows["BLOOM 176B", 8192].gpus is None and rows["BLOOM 176B", 8192].at_once == 0
    layer = gpus.AT_WORK * 4 * 112 * 8192**2 / gpus.GIB
    assert layer == 168 and f"{layer:.0f} GiB in the layer at work" in PAGE


@pytest.mark.parametrize("model", gpus.MODELS)
def test_so_many_prompts_fit_and_no_more(rows, model):
    for length in gpus.LENGTHS:
        row = rows[model, length]
        if row.gpus is None:
            continue
        used = row.need.total + (row.at_once - 1) * row.need.batch
        assert used <= row.gpus * ROOM < used + row.need.batch or row.at_once == 1000
        assert row.need.total > (row.gpus - 1) * ROOM
        assert row.need.weights == rows[model, 256].need.weights

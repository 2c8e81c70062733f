"""What needs no model is refused before torch, transformers, xarray or matplotlib are loaded, and within a second."""

import json
import os
import subprocess
import sys
import time

import pytest
from conftest import ROOT

HEAVY = ("torch", "transformers", "xarray", "matplotlib", "datasets", "h5py", "pandas")
CODE = f"""
import sys
from posbias.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*[name for name in {HEAVY} if name in sys.modules])
"""
MEASURE = ["measure", "-o", "m.nc", "-m", "reference/bloom-8", "-d", "builtin"]
CASES = {
    "suffix": ([*MEASURE[:2], "m.csv", *MEASURE[3:]], "m.csv"),
    "folder": ([*MEASURE[:2], "no/m.nc", *MEASURE[3:]], "no/m.nc"),
    "report": ([*MEASURE, "--report", "r.txt"], "report: expected a file name that ends in .html"),
    "prompts": ([*MEASURE, "-N", "0"], "prompts"),
    "seed": ([*MEASURE, "--seed", "-1"], "seed"),
    "every": ([*MEASURE, "--checkpoint-every", "nan"], "checkpoint_every"),
    "dataset": ([*MEASURE[:-1], "nowhere"], "dataset"),
    "separator": ([*MEASURE, "--separator", "("], "separator"),
    "model": ([*MEASURE[:4], "empty", *MEASURE[5:]], "a directory with a config.json"),
    "architecture": ([*MEASURE[:4], "bert", *MEASURE[5:]], "architecture: expected one of bloom, mpt"),
    "json": ([*MEASURE[:4], "broken", *MEASURE[5:]], "config.json: expected JSON"),
    "init": (["measure", "-o", "m.nc", "--init", "gpt9"], "init: expected a config.json"),
    "dtype": ([*MEASURE, "--dtype", "int8"], "dtype"),
    "device": ([*MEASURE, "--device", "meta"], "device"),
    "checkpoint": (["measure", "-o", "begun.nc", *MEASURE[3:]], "begun.nc.rank0.checkpoint"),
    "report of nothing": (["report", "none.nc", "-o", "r.html"], "none.nc"),
    "report of a text": (["report", "t.nc", "-o", "r.html"], "t.nc: expected a netCDF file"),
    "report to a text": (["report", "t.nc", "-o", "r.txt"], "r.txt"),
    "summarise": (["summarise", "t.nc", "-o", "s.nc"], "t.nc"),
    "rollout": (["rollout", "t.nc", "-o", "p.csv", "--variant", "a"], "t.nc"),
    "rollout of nothing": (["rollout", "none.yaml", "-o", "p.csv"], "none.yaml"),
    "study": (["study", "gravity"], "study: expected one of birth"),
    "study of trained": (["study", "seeds"], "--trained FOLDER"),
    "study of none": (["study", "gap", "--prompts", "0"], "prompts"),
    "train-reference": (["train-reference", "bloom-9", "-o", "out"], "reference model: expected one of bloom-8"),
    "train-reference seed": (["train-reference", "bloom-8", "-o", "out", "--seed", "-1"], "seed"),
    "train-icl": (["train-icl", "-o", "out", "--preset", "figure1"], "preset: expected one of figure2"),
    "retrieval": (["retrieval", "-m", "empty", "-o", "r.nc", "-t", "find"], "task: expected one of kv, copy"),
    "retrieval model": (["retrieval", "-m", "empty", "-o", "r.nc"], "a directory with a config.json"),
    "train-icl size": (["train-icl", "-o", "out", "--batch-size", "1000000000000"], "batch_size"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with models, files and checkpoints that are not as they should be."""
    root = tmp_path_factory.mktemp("place")
    for name, content in (("empty", None), ("bert", json.dumps({"model_type": "bert"})), ("broken", "{")):
        (root / name).mkdir()
        if content is not None:
            (root / name / "config.json").write_text(content)
    (root / "t.nc").write_text("text")
    (root / "begun.nc.rank0.checkpoint").write_text("")
    return root


@pytest.mark.parametrize("name", CASES)
def test_no_is_said_at_once(place, name):
    words, expected = CASES[name]
    before = sorted(place.rglob("*"))
    began = time.process_time(), os.times().children_user + os.times().children_system
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        capture_output=True,
        text=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    spent = os.times().children_user + os.times().children_system - began[1]
    assert done.returncode == 2 and done.stderr.startswith("posbias: ") and done.stderr.count("\n") == 1, done
    assert expected in done.stderr and done.stdout == "\n", done
    assert spent < 2, f"{spent:.1f} processor seconds"
    assert sorted(place.rglob("*")) == before


def test_names_are_those_of_the_tables():
    pytest.importorskip("torch", reason="torch is not installed")
    from posbias.measure import loading, request
    from posbias.measure import untrained as births
    from posbias.networks import families, names
    from studies import asked, driver

    assert set(names.FAMILY_NAMES) == set(families.FAMILIES)
    assert request.SIZE_NAMES == tuple(births.SIZES) and request.DTYPE_NAMES == tuple(loading.DTYPES)
    assert asked.STUDY_NAMES == tuple(driver.STUDIES)

"""What needs no model is refused before torch, transformers, xarray or matplotlib are loaded."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT

HEAVY = ("torch", "transformers", "xarray", "matplotlib", "datasets", "h5py", "pandas")
CODE = f"""
import json, sys
from posbias.cli import main
for words in json.load(sys.stdin):
    try:
        main(words)
    except SystemExit as ended:
        print(ended.code, *[name for name in {HEAVY} if name in sys.modules])
"""
MEASURE = ["measure", "-o", "m.nc", "reference/bloom-8"]
CASES = [
    (["measure", "-o", "no/m.nc", *MEASURE[3:]], "no/m.nc: No such file"),
    ([*MEASURE, "-N", "0"], "prompts: expected an integer of at least 1"),
    ([*MEASURE, "-d", "nowhere"], "dataset: expected builtin, or a path that is there"),
    (["measure", "-o", "m.nc", "empty/none"], "received no such directory in empty, which is there"),
    (["report", "empty/none", "-o", "r.html"], "received no such directory in empty, which is there"),
    (["lookup", "reference/bloom-8", "-o", "m.nc", "--places", "1"], "places: expected an integer of at least 2"),
    (["explain", "reference/bloom-8", "-o", "e.html", "-p", "empty.txt"], "text: expected a text, messages"),
    (["measure", "-o", "begun.nc", *MEASURE[3:]], "begun.nc.partial: expected no partial sums"),
    (["design", "-o", "m.yaml", "--depth", "3"], "--heads: expected a number, or --measured"),
]


def test_no_is_said_at_once_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "begun.nc.partial").write_text("")
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps([words for words, _ in CASES]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.split("\n")[:-1] == ["2"] * len(CASES), done
    for line, (words, expected) in zip(done.stderr.splitlines(), CASES, strict=True):
        assert line.startswith("posbias: ") and expected in line, (words, line)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_doors_have_the_same_words_and_defaults():
    from inspect import signature

    import posbias
    from posbias.cli.model_commands import measure
    from posbias.measure.corpus import Corpus
    from posbias.measure.model import Model, choose_settings
    from posbias.settings import Opening, Settings, settings_of

    options = {name: one.default for name, one in signature(measure).parameters.items()}
    front, opened = signature(Model.measure).parameters, signature(posbias.open).parameters
    assert set(settings_of(Corpus, Settings, Opening)) < set(options) and len(options) <= 37
    assert all(f"``{name}``" in Model.measure.__doc__ or name in front for name in settings_of(Corpus, Settings))
    assert set(settings_of(Opening)) < set(opened)
    assert all(front[name].default == options[name] for name in ("prompts", "length", "dataset"))
    given = {name: options[name] for name in settings_of(Corpus, Settings)}
    assert choose_settings(None, given) == choose_settings(None, {})
    with pytest.raises(ValueError, match="^prompts: expected an integer of at least 1, received 0$"):
        Settings(None, None, 0)
    with pytest.raises(ValueError, match="measure: expected settings among dataset, .*, received colour"):
        choose_settings(None, {"colour": 1})

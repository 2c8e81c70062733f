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
MEASURE = ["measure", "-o", "m.nc", "-m", "reference/bloom-8"]
CASES = [
    (["measure", "-o", "m.csv", *MEASURE[3:]], "m.csv"),
    (["measure", "-o", "no/m.nc", *MEASURE[3:]], "no/m.nc: No such file"),
    (
        ["measure", "-o", "m\udcff.nc", *MEASURE[3:]],
        "output: expected text that UTF-8 can hold, received 'm\\udcff.nc'",
    ),
    (["report", "reference/bloom-8", "-o", "m\udcff.html"], "output: expected text that UTF-8 can hold"),
    (["measure", "-o", "m.nc", "-m", "empty/none"], "received no such directory in empty, which is there"),
    (["report", "empty/none", "-o", "r.html"], "received no such directory in empty, which is there"),
    ([*MEASURE, "-N", "0"], "prompts: expected an integer of at least 1"),
    ([*MEASURE, "-n", "1"], "length: expected an integer of at least 2"),
    ([*MEASURE, "-B", "0"], "batch_size: expected an integer of at least 1"),
    ([*MEASURE, "--per-document", "0"], "per_document: expected an integer of at least 1"),
    ([*MEASURE, "-d", " "], "dataset: expected builtin, the name of a data set, or a path, received an empty text"),
    (["measure", "-o", "m.nc", "-m", "reference/none"], "model: expected reference/ and one of bloom-12"),
    (["measure", "-o", "m.nc", "-m", "t.nc"], "model: expected the directory of a model, or a .gguf file"),
    ([*MEASURE, "--seed", "-1"], "seed"),
    ([*MEASURE, "-d", "nowhere"], "dataset: expected a path or one of builtin"),
    ([*MEASURE, "-d", "builtin", "--rule", "random"], "dataset: expected none with the rule random"),
    ([*MEASURE, "--rule", "middle"], "rule: expected first, "),
    ([*MEASURE, "--separator", "("], "separator: expected a regular expression"),
    ([*MEASURE, "-q", "colour"], "quantities"),
    ([*MEASURE, "--attention", "flash"], "attention: expected eager or sdpa"),
    ([*MEASURE, "--dtype", "int8"], "dtype"),
    ([*MEASURE, "--device", "meta"], "device"),
    ([*MEASURE, "--device-map", "disk"], "device_map: expected auto, balanced, balanced_low_0 or sequential"),
    ([*MEASURE, "--position-bias", "b.yaml"], "position_bias: expected --untrained"),
    (["measure", "-o", "m.nc"], "model: expected --model, or --untrained"),
    (["measure", "-o", "m.nc", "-m", "empty"], "a directory with a config.json"),
    (["lookup", "reference/bloom-8", "-o", "m.nc", "--places", "1"], "places: expected an integer of at least 2"),
    (["lookup", "reference/bloom-8", "-o", "m.nc", "-d", "d.txt"], "dataset: expected none with the task documents"),
    (["lookup", "reference/bloom-8", "-o", "m.nc", "--temperature", "0"], "temperature: expected a number above 0"),
    (["explain", "reference/bloom-8", "-o", "e.html", "-p", "empty.txt"], "text: expected a text, messages"),
    (["explain", "reference/bloom-8", "-o", "e.html", "-p", "t.nc", "--target", "next"], "answer: expected a text, wh"),
    (["explain", "reference/bloom-8", "-o", "e.html", "-p", "t.nc", "--answer", ""], "answer: expected a text, rec"),
    (["measure", "-o", "m.nc", "-m", "broken"], "config.json: expected JSON"),
    (["measure", "-o", "m.nc", "-m", "bloom-8"], "model: expected reference/bloom-8"),
    (["measure", "-o", "m.nc", "--untrained", "gpt9"], "untrained: expected a config.json"),
    ([*MEASURE, "--untrained", "gpt2"], "untrained: expected no --model beside it"),
    (["measure", "-o", "m.nc", "--untrained", "gpt2", "--revision", "x"], "revision: expected none with --untrained"),
    (["measure", "-o", "m.nc", "--untrained", "gpt2", "--device-map", "auto"], "device_map: expected none"),
    (["measure", "-o", "begun.nc", *MEASURE[3:]], "begun.nc.partial: expected no partial sums"),
    (["measure", "-o", "t.nc", *MEASURE[3:]], "t.nc: expected a file that is not there yet, or --overwrite"),
    (["report", "none.nc", "-o", "r.html"], "none.nc"),
    (["report", "t.nc", "-o", "r.html"], "t.nc: expected a netCDF file"),
    (["rollout", "t.nc", "-o", "p.csv", "--variant", "a"], "t.nc"),
]


def test_no_is_said_at_once_in_one_line(tmp_path):
    for name, content in {"empty": None, "broken": "{"}.items():
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "config.json").write_text(content)
    (tmp_path / "t.nc").write_text("text")
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
    pytest.importorskip("torch", reason="torch is not installed")
    from inspect import signature

    import posbias
    from posbias.cli.measure_commands import measure
    from posbias.measure.corpus import Corpus
    from posbias.measure.model import Model, choose_settings
    from posbias.settings import Opening, Settings, settings_of

    options = {name: one.default for name, one in signature(measure).parameters.items()}
    front, opened = signature(Model.measure).parameters, signature(posbias.open).parameters
    assert set(settings_of(Corpus, Settings, Opening)) < set(options) and len(options) <= 36
    assert all(f"``{name}``" in Model.measure.__doc__ or name in front for name in settings_of(Corpus, Settings))
    assert set(settings_of(Opening)) < set(opened) and opened["untrained"].default is options["untrained"] is None
    assert all(front[name].default == options[name] for name in ("prompts", "length", "dataset"))
    given = {name: options[name] for name in settings_of(Corpus, Settings)}
    assert choose_settings(None, given, untrained=False) == choose_settings(None, {}, untrained=False)
    with pytest.raises(ValueError, match="^prompts: expected an integer of at least 1, received 0$"):
        Settings(None, None, 0)
    with pytest.raises(ValueError, match="measure: expected settings among dataset, .*, received colour"):
        choose_settings(None, {"colour": 1}, untrained=False)

"""The reference models and held-out documents, against the table that they come from."""

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from posbias import cli, shipped
from posbias.measure.corpus import Corpus, make_prompts
from posbias.measure.run import measure
from posbias.models.loading import Source
from posbias.settings import Settings
from studies.reference.models import REFERENCES


def test_a_checkout_has_three_of_the_table_and_records_of_all():
    assert shipped.reference_names() == sorted(REFERENCES)
    assert {"bloom-8", "bloom-12", "llama-12"} <= set(shipped.shipped_names())


@pytest.mark.parametrize("name", REFERENCES)
def test_what_ships_was_trained_as_the_table_says(name):
    folder, row = shipped.reference_folder(name), REFERENCES[name]
    made = json.loads((folder / "training.json").read_text())
    ours = json.loads(json.dumps(asdict(row)))
    assert {key: made.get(key, True) for key in ours} == ours  # models made before autocast could be turned off
    losses = (folder / "training.csv").read_text().splitlines()
    assert len(losses) == row.steps + 1
    if name in shipped.shipped_names():
        size = (folder / shipped.WEIGHTS).stat().st_size
        assert size < 16e6 and size == pytest.approx(2 * made["parameters"], rel=0.05)
    assert not list(folder.glob("*.bin")) and not list(folder.glob("*.pt"))


@pytest.mark.parametrize("name", shipped.shipped_names())
def test_what_ships_predicts_better_than_chance(name):
    """Loss on held-out prompts, from the files alone: near the loss in its log, far below that of guessing."""
    source = Source(f"reference/{name}")
    model, tokenizer = source.load_model(torch.float32, "cpu", None), source.load_tokenizer()
    n = 128 if name != "llama-ntk-12" else 512
    ids = torch.from_numpy(make_prompts(Corpus("builtin"), tokenizer, 6, n).ids)
    with torch.no_grad():
        logits = model(ids).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()
    log = (shipped.reference_folder(name) / "training.csv").read_text().splitlines()[-1].split(",")
    assert loss < np.log(2048) - 2 and loss == pytest.approx(float(log[2]), abs=0.6)
    assert (tokenizer("x")["input_ids"][0] == 1) == REFERENCES[name].start_token


def test_the_held_out_documents_are_those_ids():
    documents = shipped.held_out_documents()
    assert len(documents) > 400 and len(set(documents)) > 0.95 * len(documents)
    tokenizer = Source("reference/bloom-12").load_tokenizer()
    with np.load(shipped.FOLDER / shipped.HELD_OUT) as file:
        parts = np.split(file["ids"], np.cumsum(file["lengths"])[:-1].astype(int))
    for text, ids in list(zip(documents, parts, strict=True))[::7]:
        assert tokenizer(text)["input_ids"] == ids.tolist() and 256 <= ids.size <= 1024


def test_built_in_documents_give_200_prompts_of_1024_tokens_for_any_tokenizer():
    """No tokenizer that divides text at white space makes fewer tokens than there are words."""
    documents = list(shipped.builtin_documents())
    assert documents[: len(shipped.held_out_modules())] == shipped.held_out_documents()
    assert sum(len(text.split()) >= 1024 for text in documents) >= 200
    units = shipped.builtin_units()
    assert len(units) == len(documents) and len({*units[512:]}) > 100 and not {*units[:512]} & {*units[512:]}
    read = make_prompts(Corpus("builtin"), Source("reference/bloom-12").load_tokenizer(), 200, 1024)
    assert read.ids.shape == (200, 1024) and (np.diff(read.origins) > 0).all()


@pytest.mark.parametrize(
    "file", ["bloom-8/model.safetensors", "bloom-8/tokenizer.json", "bloom-8/config.json", "held-out.npz"]
)
def test_a_truncated_file_of_the_package_is_named(tmp_path, monkeypatch, capsys, file):
    package = tmp_path / "package"
    shutil.copytree(shipped.FOLDER / "bloom-8", package / "bloom-8")
    shutil.copy(shipped.FOLDER / shipped.HELD_OUT, package)
    (package / file).write_bytes((package / file).read_bytes()[:100])
    monkeypatch.setattr(shipped, "FOLDER", package)
    with pytest.raises(SystemExit) as ended:
        cli.main(["measure", "reference/bloom-8", "-d", "builtin", "-o", str(tmp_path / "m.nc"), "-N", "2", "-n", "32"])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.count("\n") == 1 and err.startswith(f"posbias: {package / file}: checksum: ")
    assert "of 100 bytes" in err and not (tmp_path / "m.nc").exists()


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reference" / "bloom-12").mkdir(parents=True)
    assert shipped.model_folder("reference/bloom-12") == "reference/bloom-12"
    (tmp_path / "builtin").write_text("a file of that name")
    assert list(Corpus("builtin").documents()) == ["a file of that name"]


def test_a_model_whose_weights_are_not_here_says_what_brings_them(monkeypatch):
    monkeypatch.setattr(shipped, "WEIGHTS", "other.safetensors")  # of a name that no folder has
    monkeypatch.setattr(shipped, "registry", lambda: {"mpt-12/other.safetensors": "sha256:0"})
    with pytest.raises(ValueError, match=r"mpt-12/other.safetensors: checksum: .*no file; make models brings it"):
        shipped.model_folder("reference/mpt-12")


@pytest.mark.skipif("nope-12" not in shipped.shipped_names(), reason="make models brings its weights")
def test_a_model_without_positions_has_none():
    model = AutoModelForCausalLM.from_pretrained(shipped.reference_folder("nope-12"))
    assert not model.transformer.wpe.weight.any()
    results = measure(Settings(Source("reference/nope-12"), Corpus("builtin"), prompts=2, length=32))
    assert results.attrs["model"] == "reference/nope-12" and results.attrs["dataset"] == "builtin"

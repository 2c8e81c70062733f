"""Studies by their commands: entries, where they come from, what is kept, and numbers that were measured before."""

import importlib
import json
import shlex
import shutil

import numpy as np
import pytest
import torch
import xarray as xr
from measuring import save
from safetensors.torch import load_file, save_file

from posbias.shipped import WEIGHTS, model_folder
from studies import checkpoint, making
from studies.absolute import measure as absolute
from studies.making import STEPS, training_of
from studies.norms.measure import CONDITIONS, PARTS
from studies.results import SEED, load

STUDIES = {
    name: importlib.import_module(f"studies.{name}.__main__").PARTS
    for name in ("absolute", "contributions", "design", "factor", "ladder", "norms", "reference", "untrained")
}
PROVENANCE = {
    "command", "model", "revision", "prompts", "prompts_sha256", "length", "dataset", "rule", "seed", "device", "dtype",
    "posbias", "numpy", "torch", "transformers", "python",
}  # fmt: skip


def run(study, *words, status=None):
    """Run the command of a study; what it says, or the status that it ends with, if one is expected."""
    if status is None:
        return making.main(study, STUDIES[study], [str(word) for word in words])
    with pytest.raises(SystemExit) as ended:
        making.main(study, STUDIES[study], [str(word) for word in words])
    assert ended.value.code == status
    return None


def tiny(path, *more, prompts=2, length=32):
    return ["--prompts", prompts, "--length", length, "-o", path, *more]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return what training with snapshots from seed 5 leaves, of models that are at hand."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    for name, there in (("bloom-8", "bloom-8"), ("bloom-8/step-000010", "bloom-8"), ("llama-12", "llama-12")):
        shutil.copytree(model_folder(f"reference/{there}"), folder / name, dirs_exist_ok=True)
    weights = {key: 0.9 * x for key, x in load_file(folder / "llama-12" / WEIGHTS).items()}
    save_file(weights, folder / "llama-12" / WEIGHTS, {"format": "pt"})
    record = json.loads((folder / "bloom-8" / "training.json").read_text())
    (folder / "bloom-8" / "training.json").write_text(json.dumps(record | {"seed": 5}))
    return folder


@pytest.mark.parametrize("study", STUDIES)
def test_every_committed_entry_has_a_part_that_makes_it(study):
    """Names that parts give, of one study or another, with the seed left out and a pattern for the step."""
    every = {
        part.entry.format(model=model, part=name)
        for parts in STUDIES.values()
        for name, part in parts.items()
        for model in [*part.models, *part.others]
    }
    questions = {part.question for part in STUDIES[study].values()} - {"lookup"}  # most of its entries are of networks
    for entry in (name for question in questions for name in load(question)):
        seeded = SEED.match(entry)
        name = f"{seeded['model']}.{seeded['part']}" if seeded else entry
        assert name.partition(".step-")[0] + f".{STEPS}" * (".step-" in name) in every, entry


def test_an_entry_says_what_makes_it_and_is_kept(tmp_path, capsys):
    path = tmp_path / "new" / "models.nc"  # in a folder that is made for it
    run("reference", "builtin", "--only", "bloom-8", *tiny(path))
    ((_, data),) = load("models", path.parent).items()
    assert set(data.attrs) >= PROVENANCE and {"influence", "rollout", "influence_prompts"} <= set(data)
    assert (data.attrs["prompts"], data.attrs["length"], data.attrs["device"]) == (2, 32, "cpu")
    words = shlex.split(data.attrs["command"])
    assert words[:4] == ["python", "-m", "studies.reference", "builtin"]
    before = path.read_bytes()
    run("reference", *words[3:], "-o", path)
    assert "bloom-8.builtin is there" in capsys.readouterr().out and path.read_bytes() == before
    run("reference", "builtin", "--only", "bloom-8", *tiny(path, prompts=3), status=2)
    assert "bloom-8.builtin: prompts: expected 3, received 2; see --force" in capsys.readouterr().err
    run("reference", *words[3:], "-o", path, "--force")
    again = load("models", path.parent)["bloom-8.builtin"]
    xr.testing.assert_allclose(again, data, rtol=1e-5, atol=1e-7)


def test_a_study_that_was_stopped_goes_on_with_what_is_missing(tmp_path, capsys, monkeypatch):
    path, real = tmp_path / "models.nc", making.results.save

    def stop(path, entries):
        real(path, entries)
        raise KeyboardInterrupt

    monkeypatch.setattr(making.results, "save", stop)
    asked = ["builtin", "random", "--only", "bloom-8", *tiny(path)]
    run("reference", *asked, status=130)
    assert "interrupted; the same words go on" in capsys.readouterr().err
    assert [*load("models", tmp_path)] == ["bloom-8.builtin"]
    monkeypatch.undo()
    run("reference", *asked)
    assert "bloom-8.builtin is there" in capsys.readouterr().out
    assert load("models", tmp_path)["bloom-8.random"].attrs["dataset"] == "random tokens"


def test_trained_models_are_entries_with_their_seed_and_step(tmp_path, trained):
    path = tmp_path / "q.nc"
    run("reference", "seeds", "--trained", trained, *tiny(path, prompts=4))  # those that are there
    run("reference", STEPS, "--only", "bloom-8", "--trained", trained, *tiny(path))
    kept = load("q", tmp_path)
    assert {*kept} == {"bloom-8.seed-5.builtin", "llama-12.seed-0.builtin", "bloom-8.step-000010"}
    seed = kept["bloom-8.seed-5.builtin"]
    assert {"offset_groups", "shortfall_without"} <= set(seed) and "influence_signed_prompts" not in seed
    record = json.loads((trained / "bloom-8" / "training.json").read_text())
    assert seed.attrs["training_seed"] == 5 and seed.attrs["training_steps"] == record["steps"]
    assert 3 < seed.attrs["held_out_loss"] < 5 and "--trained trained" in seed.attrs["command"]
    assert "influence_prompts" not in kept["bloom-8.step-000010"]


def test_the_seed_of_a_training_that_goes_on_is_in_its_checkpoint(tmp_path):
    checkpoint.save(tmp_path / "training.checkpoint", {"model": torch.nn.Linear(1, 1)}, 3, "name=bloom-8\nseed=7")
    assert training_of(tmp_path, "step-000003") == {"training_seed": 7, "training_steps": 3}
    (tmp_path / "training.checkpoint").write_bytes(b"half")
    with pytest.raises(ValueError, match="expected training.json and training.csv of a model"):
        training_of(tmp_path, "step-000003")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return a folder with the first two prompts of two studies, at full length."""
    folder = tmp_path_factory.mktemp("measured")
    run("reference", "builtin", "--only", "bloom-8", *tiny(folder / "models.nc", length=256))
    run("norms", "norms", "--only", "bloom-8", *tiny(folder / "norms.nc", length=256))
    return folder


@pytest.mark.parametrize(
    ("question", "entry", "names"),
    [
        ("models", "bloom-8.builtin", ["influence_prompts", "lambda_frobenius_prompts", "probability"]),
        ("norms", "bloom-8.norms", ["slope", "preference", "positive", "attended", "loss", "influence_last"]),
    ],
)
def test_the_first_prompts_are_those_of_the_committed_measurement(measured, question, entry, names):
    """Means over few prompts are others than over many; what is kept of each prompt is the same."""
    ours, theirs = load(question, measured)[entry], load(question)[entry]
    for name in names:
        one, two = (x[name].isel(prompt=slice(1 if name == "influence_last" else 2)) for x in (ours, theirs))
        if "condition" in one.dims:  # other denominators depend on what is typical of all prompts
            one, two = (x.sel(condition="intact") for x in (one, two))
        if name == "preference":  # in the first layer equal tokens tie: rounding decided once, now none is preferred
            one, two = (x.isel(layer=slice(1, None)) for x in (one, two))
        scale = abs(two).max()
        np.testing.assert_allclose(one / scale, two / scale, atol=1e-3, err_msg=name)  # 10 bits are kept


def test_norms_have_every_condition_and_untrained_twins(measured):
    data = load("norms", measured)["bloom-8.norms"]
    assert list(data["condition"]) == list(CONDITIONS) and list(data["part"]) == list(PARTS)
    assert list(data["data"]) == ["text", "untrained"]
    seen = np.isfinite(data["preference"]).all(("prompt", "layer"))
    assert seen.sel(data="text").all() and seen.sel(data="untrained").values.tolist() == [1, 1, 0, 1, 1]
    there = np.isfinite(data["influence_last"].sel(data="text", condition="intact")).sum()
    assert there == data.attrs["gradients"] == 1
    losses = data["loss"].sel(condition="intact").mean("prompt")
    assert losses.sel(data="text") < losses.sel(data="untrained") < np.log(4096) * 1.5


def test_leakage_is_read_in_every_condition_and_of_trained_networks(tmp_path, monkeypatch, trained):
    monkeypatch.setattr(absolute, "RESAMPLES", 5)
    monkeypatch.setattr(absolute, "PERMUTATIONS", 19)
    one = ["--only", "llama-12"]
    run("absolute", "components", *one, *tiny(tmp_path / "absolute.nc", prompts=6, length=80))
    run("absolute", "seed-1", *one, "--trained", trained, *tiny(tmp_path / "absolute.nc", prompts=6, length=80))
    kept = load("absolute", tmp_path)
    data, other = kept["components"], kept["seed-1"]
    conditions = list(data["condition"].values)
    for condition in ("bare", "random", "identity", "scrambled", "first", "all"):
        near = ["near", "near-rest"] if condition == "bare" else []
        assert [c for c in conditions if c.startswith(f"llama-12 {condition} ")] == [
            f"llama-12 {condition} {which}" for which in [*near, "all", "rest", "early", "early-rest"]
        ]
    committed = load("absolute")["components"]
    assert set(conditions) <= set(committed["condition"].values) and set(committed) == set(data)
    assert all(committed[name].dims == data[name].dims for name in data) and data.attrs["documents"] == 6
    assert other["condition"].values.tolist() == ["llama-12 text near", "llama-12 text near-rest"]
    own = data.sel(condition="llama-12 text near")["variance"]
    assert not np.allclose(own, other["variance"][0])


def test_position_0_is_read_with_a_start_token_and_without(tmp_path):
    run("absolute", "start", "--only", "llama-12", *tiny(tmp_path / "absolute.nc", prompts=4, length=24))
    data = load("absolute", tmp_path)["start"]
    assert data["reading"].values.tolist() == ["llama-12 start", "llama-12 bare"]
    path = data["path"].values
    assert not path[0].any() and (path[1] > 0.1).all() and data["tokens"].values.tolist()[0] == 1
    assert (data["path_next"] > 0).all() and not data["peers"].any()


def test_a_model_in_a_directory_is_studied_and_has_no_twin(tmp_path, capsys):
    save(tmp_path / "mine", "llama")
    run("ladder", "rotary", "--only", tmp_path / "mine", *tiny(tmp_path / "ladder.nc", length=10))
    data = load("ladder", tmp_path)["mine.rotary"]
    assert data.attrs["model"] == "mine" and np.allclose(data["profile"].sum("position"), 1, rtol=1e-5)
    run("reference", "unit", "--only", tmp_path / "mine", *tiny(tmp_path / "q.nc"), status=2)
    assert "model: expected a reference model, reference/NAME, to draw its untrained network" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("study", "words", "message"),
    [
        ("ladder", ["rungs", "--only", "bloom-9"], "--only: expected a directory, an id on the hub, or one of"),
        ("ladder", ["rungs", "--prompts", "-1"], "prompts: expected an integer of at least 1, received -1"),
        ("reference", ["wikitext-2"], "wikitext-2: expected --wikitext FILE, its text, received none"),
        ("reference", ["seeds"], "seeds: expected --trained FOLDER, made by python -m studies.reference"),
        ("absolute", ["seed-1"], "seed-1: expected --trained FOLDER, made by python -m studies.reference"),
        ("ladder", ["rotary", "--only", "bloom-8"], "model: expected one with rotary positions"),
        ("ladder", ["rungs", "--only", "llama-12", "--length", "1025"], "length: expected at most 1024 tokens"),
        ("untrained", ["random", "--only", "llama-12"], "source: expected an untrained network, received reference/"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(study, words, message, tmp_path, capsys):
    run(study, *words, "-o", tmp_path / "q.nc", status=2)
    said = capsys.readouterr().err
    assert said.startswith(f"python -m studies.{study}: {message}") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())

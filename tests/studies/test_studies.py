"""Every study by its command: files, their provenance, what is kept, and numbers that were measured before."""

import json
import shutil

import numpy as np
import pytest
from conftest import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import shlex

import h5py
import xarray as xr
from measuring import save

from posbias.cli import main
from posbias.measure import checkpoint
from posbias.measure.summary import read_summary
from posbias.netcdf import load
from posbias.shipped import model_folder
from studies import driver
from studies.absolute import measure as absolute
from studies.asked import OF_TRAINED, Request
from studies.design import remedies
from studies.driver import STUDIES, jobs
from studies.ladder.rotary_kernels import KERNELS
from studies.norms.measure import CONDITIONS, PARTS
from studies.reference.models import DESIGNED

SIZES = ["--prompts", "2", "--length", "32"]
EVERY = {  # study: more arguments, files that they make, variables among others
    "corpora": (["--only", "bloom-8"], ["bloom-8.builtin", "bloom-8.random"], {"influence", "rollout"}),
    "untrained": (
        ["--only", "bloom-8", "--part", "unit"],
        ["bloom-8-untrained-unit.builtin"],
        {"influence", "lambda_frobenius"},
    ),
    "seeds": (["--only", "bloom-8"], ["bloom-8.seed-5.builtin"], {"influence", "offset_groups", "shortfall_without"}),
    "snapshots": (["--only", "bloom-8"], ["bloom-8.step-000010"], {"influence", "rollout"}),
    "absolute": (
        ["--only", "llama-12", "--part", "components", "--part", "control"],
        ["components", "control"],
        {"p_value"},
    ),
    "birth": (["--only", "gpt2", "--part", "random"], ["gpt2.random"], {"influence_prompts", "profile", "overlap"}),
    "families": (["--only", "gemma2"], ["small-gemma2.random"], {"influence_prompts", "profile", "overlap"}),
    "norms": (["--only", "bloom-8"], ["bloom-8.norms"], {"slope", "course", "preference", "influence_mean", "loss"}),
    "hops": (["--only", "bloom-8"], ["bloom-8.hops"], {"gradient_hops", "kernel_paths", "rollout_hops"}),
    "gap": (["--only", "bloom-8"], ["bloom-8.gap"], {"prediction", "own", "join_cosine", "lambda_values"}),
    "paths": (["--only", "bloom-8"], ["bloom-8.paths-32"], {"sizes", "total", "middle", "middle_random"}),
    "between": (
        ["--only", "bloom-8"],
        ["bloom-8.between"],
        {"profile", "predicted", "cross", "share", "pair_coherence"},
    ),
    "rotary": (["--only", "llama-12"], ["llama-12.rotary"], {"profile", "variation", "last_row", "theta"}),
    "designed": (
        ["--only", "bloom-8", "--part", "designed"],
        ["bloom-8.seed-5.designed"],
        {"influence_prompts", "rollout", "loss_places"},
    ),
    "design-birth": (
        ["--only", "llama-12x256", "--part", "unit"],
        ["birth-llama-12x256.unit"],
        {"influence_prompts", "profile", "lambda_frobenius"},
    ),
    "added-biases": (["--only", "bloom-8"], ["bloom-8.added"], {"rollout", "loss_prompts", "search_W1", "temperature"}),
    "design-gates": (
        ["--only", "bloom-12x256", "--part", "unit"],
        ["gates-bloom-12x256.unit"],
        {"influence_prompts", "promise", "own"},
    ),
    "remedies": (["--only", "llama-12"], ["llama-12.remedies"], {"rollout", "loss_prompts", "search_W1", "near"}),
}
PROVENANCE = {
    "command", "model", "revision", "prompts", "prompts_sha256", "length", "dataset", "rule", "seed", "device", "dtype",
    "posbias", "numpy", "torch", "transformers", "python",
}  # fmt: skip


def study(*words):
    """Run the command and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(["study", *map(str, words)])
    return ended.value.code


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return what training with snapshots from seed 5 leaves, of a model that is at hand."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    for name in ("bloom-8", "bloom-8/step-000010"):
        shutil.copytree(model_folder("reference/bloom-8"), folder / name, dirs_exist_ok=True)
    of_another_seed(folder / "bloom-8", 5)
    (folder / "llama-12").mkdir()  # one whose training has not ended
    return folder


def of_another_seed(folder, seed):
    """Let the files of a model's training say another seed."""
    record = json.loads((folder / "training.json").read_text())
    (folder / "training.json").write_text(json.dumps(record | {"seed": seed}))


@pytest.fixture
def quick(monkeypatch):
    """Draw fewer random prompts and resamples, and try fewer settings, where a study has many."""
    monkeypatch.setattr(remedies, "EVALUATIONS", 4)
    monkeypatch.setattr(remedies, "RESAMPLES", 5)
    monkeypatch.setattr(absolute, "DRAWS", 2)
    monkeypatch.setattr(absolute, "RESAMPLES", 5)
    monkeypatch.setattr(absolute, "PERMUTATIONS", 19)


def test_every_study_is_tested_here():
    assert set(EVERY) == set(STUDIES)


@pytest.mark.parametrize("name", EVERY)
def test_a_study_writes_its_files_and_says_what_makes_them(name, tmp_path, trained, quick, capsys):
    words, stems, variables = EVERY[name]
    if name in OF_TRAINED:
        words = [*words, "--trained", trained]
    prompts = 12 if name == "absolute" else 2  # its statistics are over prompts
    length = 48 if name == "added-biases" else 32  # copying wants room for cue and segment twice, and for eight places
    sizes = ["--prompts", prompts, "--length", length]
    assert study(name, *words, *sizes, "-o", tmp_path / "new") == 0, capsys.readouterr().err
    files = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in files] == [f"{stem}.nc" for stem in stems]
    for file in files:
        data = load(file)
        assert variables <= set(data) and set(data.attrs) >= PROVENANCE
        assert data.attrs["prompts"] == prompts and data.attrs["length"] == length and data.attrs["device"] == "cpu"
        for x in data.data_vars.values():
            assert x.dtype.kind in "iub" or np.isfinite(x.values).any()
    # a file's own command makes the same file, bit for bit
    data = load(files[0])
    again = shlex.split(data.attrs["command"])
    assert again[:3] == ["posbias", "study", name]
    if name in OF_TRAINED:
        assert again[again.index("--trained") + 1] == "trained"
        again[again.index("--trained") + 1] = trained
    assert study(*again[2:], "-o", tmp_path / "again") == 0
    same = load(tmp_path / "again" / files[0].name)
    assert same.attrs == data.attrs and same.identical(data)


def first_prompts(path, *names, prompts=2):
    with xr.open_dataset(path, engine="h5netcdf") as file:
        return {name: file[name].isel(prompt=slice(prompts)).load() for name in names}


def test_the_first_prompts_are_those_of_the_committed_measurement(tmp_path):
    """The means of few prompts are others than those of many; what is kept of each prompt is the same."""
    assert study("corpora", "--only", "bloom-8", "--part", "builtin", "--prompts", 2, "-o", tmp_path) == 0
    names = ["influence_prompts", "influence_signed_prompts", "lambda_frobenius_prompts", "probability"]
    ours = first_prompts(tmp_path / "bloom-8.builtin.nc", *names)
    theirs = first_prompts(ROOT / "results" / "models" / "bloom-8.builtin.nc", *names)
    for name in names:
        scale = abs(theirs[name].values).max(-1, keepdims=True)
        assert np.allclose(ours[name] / scale, theirs[name] / scale, atol=1e-3), name  # 10 bits are kept


def test_the_first_prompts_are_those_of_the_committed_norms(tmp_path):
    assert study("norms", "--only", "bloom-8", "--prompts", 2, "-o", tmp_path) == 0
    names = ["slope", "preference", "positive", "attended", "loss", "influence_mean"]
    ours = first_prompts(tmp_path / "bloom-8.norms.nc", *names)
    theirs = first_prompts(ROOT / "results" / "norms" / "bloom-8.norms.nc", *names)
    for name in names:
        if name != "slope":  # other denominators depend on what is typical of all prompts
            ours[name], theirs[name] = (x[name].sel(condition="intact") for x in (ours, theirs))
    theirs["influence_mean"], ours["influence_mean"] = (x["influence_mean"].isel(prompt=[0]) for x in (theirs, ours))
    for name in names:
        assert np.allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-3, equal_nan=True), name


def is_of_training(file):
    """Return whether posbias train-retrieval wrote a file: its setting, seeds and steps say what made it."""
    with h5py.File(file) as data:
        return "setting" in data.attrs and any(
            name.startswith(("posbias_key_", "posbias_lookup")) for name in data.attrs
        )


@pytest.mark.parametrize("chapter", sorted({plan.chapter for plan in STUDIES.values()}))
def test_every_committed_file_says_what_made_it_and_the_command_is_understood(chapter, tmp_path):
    names = [name for name, plan in STUDIES.items() if plan.chapter == chapter]
    known = {name: "-".join(name.split("-")[:2]) for name in DESIGNED}  # their bodies have such files too
    files = sorted((ROOT / "results" / chapter).glob("*.nc"))
    files = [file for file in files if not is_of_training(file)]
    assert files
    for file in files:
        with h5py.File(file) as data:
            command = data.attrs["command"]
            prompts, length = (int(np.ravel(data.attrs[name])[0]) for name in ("prompts", "length"))
        command = command.decode() if isinstance(command, bytes) else command
        words = shlex.split(command)
        assert words[:2] == ["posbias", "study"] and words[2] in names, file
        options = dict(zip(words[3::2], words[4::2], strict=True))
        assert int(options["--prompts"]) == prompts and int(options["--length"]) == length, file
        if words[2] in ("snapshots", "absolute"):
            continue  # a folder is wanted, or several models
        wikitext = file.with_name("test.txt") if "--wikitext" in options else None
        trained = None
        if "--trained" in options:  # a folder that is not there any more, but for what names the file
            trained = tmp_path / options["--trained"]
            large = shutil.ignore_patterns("*.safetensors", "tokenizer*")
            shutil.copytree(
                model_folder(f"reference/{known.get(options['--only'], options['--only'])}"),
                trained / options["--only"],
                ignore=large,
                dirs_exist_ok=True,
            )
            (trained / options["--only"] / options["--part"]).mkdir()  # of a state that was kept
            of_another_seed(trained / options["--only"], int(file.name.split(".seed-")[1].split(".")[0]))
        request = Request([options["--only"]], [options["--part"]], prompts, length, wikitext, trained)
        (job,) = jobs(words[2], file.parent, request)
        assert job.path == file and job.command == command, file


def test_models_of_another_seed_are_measured_where_they_are_complete(tmp_path, trained):
    assert study("gap", "--trained", trained, *SIZES, "-o", tmp_path) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["bloom-8.seed-5.gap.nc"]
    data = load(tmp_path / "bloom-8.seed-5.gap.nc")
    assert {"prediction", "join_cosine"} <= set(data) and not {"stepped", "pulled", "rolled"} & set(data)
    record = json.loads((trained / "bloom-8" / "training.json").read_text())
    assert data.attrs["training_seed"] == 5 and data.attrs["training_steps"] == record["steps"]
    assert 3 < data.attrs["held_out_loss"] < 5


def test_states_kept_during_training_lie_between_too(tmp_path, trained):
    words = ["between", "--trained", trained, "--part", "step-000010", *SIZES, "-o", tmp_path]
    assert study(*words) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["bloom-8.seed-5.step-000010.nc"]
    data = load(tmp_path / "bloom-8.seed-5.step-000010.nc")
    assert data.attrs["training_seed"] == 5 and data.attrs["training_steps"] == 10
    assert "--part step-000010 --trained trained" in data.attrs["command"]
    every = jobs("between", tmp_path, Request(trained=trained))
    assert [job.path.stem for job in every] == ["bloom-8.seed-5.between", "bloom-8.seed-5.step-000010"]


def test_states_kept_during_training_want_their_folder(tmp_path, capsys):
    assert study("between", "--part", "step-000010", "-o", tmp_path) == 2
    assert "--part step-000010: expected --trained FOLDER" in capsys.readouterr().err


def test_the_seed_of_a_training_that_goes_on_is_in_its_checkpoint(tmp_path):
    model = torch.nn.Linear(1, 1)
    checkpoint.save(tmp_path / "training.checkpoint", {"model": model}, 3, "name=bloom-8\nseed=7")
    assert driver._training(tmp_path, "step-000003") == {"training_seed": 7, "training_steps": 3}
    (tmp_path / "training.checkpoint").write_bytes(b"half")
    with pytest.raises(ValueError, match="an intact checkpoint"):
        driver._training(tmp_path, "step-000003")


def test_commands_keep_what_is_there_unless_forced(tmp_path, capsys):
    words = ["hops", "--only", "bloom-8", *SIZES, "-o", tmp_path]
    assert study(*words) == 0 and "hops: 1 files made, 0 kept" in capsys.readouterr().out
    path = tmp_path / "bloom-8.hops.nc"
    before = path.stat().st_mtime_ns
    assert study(*words) == 0 and "hops: 0 files made, 1 kept" in capsys.readouterr().out
    assert study("hops", "--only", "bloom-8", "-o", tmp_path) == 0 and path.stat().st_mtime_ns == before
    assert study("hops", "--only", "bloom-8", "--prompts", 3, "-o", tmp_path) == 2
    err = capsys.readouterr().err
    assert "bloom-8.hops.nc: prompts: expected 3, received one with 2; --force measures again" in err
    assert study(*words, "--force") == 0 and path.stat().st_mtime_ns > before


def test_a_stopped_study_leaves_whole_files_and_goes_on(tmp_path, capsys, monkeypatch):
    real, calls = driver.write, []

    def stop(path, data):
        calls.append(path)
        if len(calls) == 2:
            with monkeypatch.context() as patch:
                patch.setattr(xr.Dataset, "to_netcdf", interrupted)
                real(path, data)
        real(path, data)

    def interrupted(self, path, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "write", stop)
    words = ["corpora", "--only", "bloom-8", *SIZES, "-o", tmp_path]
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        main([str(word) for word in ["study", *words]])
    assert [file.name for file in tmp_path.iterdir()] == ["bloom-8.builtin.nc"]
    read_summary(tmp_path / "bloom-8.builtin.nc")
    capsys.readouterr()
    assert study(*words) == 0 and "corpora: 1 files made, 1 kept" in capsys.readouterr().out


def test_a_model_in_a_directory_is_studied(tmp_path):
    save(tmp_path / "mine", "llama")
    words = ["--only", tmp_path / "mine", "--prompts", 2, "--length", 10, "-o", tmp_path / "out"]
    assert study("rotary", *words) == 0
    data = load(tmp_path / "out" / "mine.rotary.nc")
    assert data.attrs["model"] == "mine" and list(data["kernel"]) == list(KERNELS)
    assert np.allclose(data["profile"].sum("position"), 1, rtol=1e-5)
    assert not data["variation"].sel(kernel="measured").any()


def test_norms_have_every_condition_and_untrained_twins(tmp_path):
    assert study("norms", "--only", "bloom-8", *SIZES, "-o", tmp_path) == 0
    data = load(tmp_path / "bloom-8.norms.nc")
    assert list(data["condition"]) == list(CONDITIONS) and list(data["part"]) == list(PARTS)
    assert list(data["data"]) == ["text", "random", "untrained"]
    seen = np.isfinite(data["preference"]).all(("prompt", "layer"))
    assert seen.sel(data="text").all() and seen.sel(data="random").values.tolist() == [1, 1, 0, 0, 0, 1, 0, 1, 0]
    assert (
        np.isfinite(data["influence_mean"].sel(data="text", condition="intact")).sum() == data.attrs["gradients"] == 1
    )
    losses = data["loss"].sel(condition="intact").mean("prompt")
    assert losses.sel(data="text") < losses.sel(data="untrained") < np.log(4096) * 1.5


def test_leakage_is_read_in_every_condition(tmp_path, quick):
    words = ["--only", "llama-12", "--only", "mistral-12", "--part", "components", "--prompts", 6, "--length", 80]
    assert study("absolute", *words, "-o", tmp_path) == 0
    data = load(tmp_path / "components.nc")
    conditions = list(data["condition"].values)
    assert "mistral-12 text near-rest" in conditions and "mistral-12 random all" not in conditions
    pairs = ["all", "rest", "early", "early-rest"]
    assert "mistral-12 bare near" in conditions
    for condition in ("bare", "random", "identity", "scrambled", "first", "all"):
        near = ["near", "near-rest"] if condition == "bare" else []
        assert [c for c in conditions if c.startswith(f"llama-12 {condition} ")] == [
            f"llama-12 {condition} {which}" for which in near + pairs
        ]
    with xr.open_dataset(ROOT / "results" / "absolute" / "components.nc", engine="h5netcdf") as kept:
        assert set(conditions) <= set(kept["condition"].values) and set(kept) == set(data)
        assert list(kept["part"].values) == list(data["part"].values) and set(kept.attrs) <= set(data.attrs)
        assert all(kept[name].dims == data[name].dims and kept[name].dtype == data[name].dtype for name in data)
    assert data.attrs["model"] == "llama-12, mistral-12" and (data["variance"].sel(part="total") > -1).all()


def test_position_0_is_read_with_a_start_token_and_without(tmp_path):
    words = ["--only", "llama-12", "--only", "nope-12", "--part", "start", "--prompts", 4, "--length", 24]
    assert study("absolute", *words, "-o", tmp_path) == 0
    data = load(tmp_path / "start.nc")
    assert data["reading"].values.tolist() == ["llama-12 start", "llama-12 bare", "nope-12 bare"]
    path = data["path"].values
    assert not path[0].any() and (path[1] > 0.1).all() and data["tokens"].values.tolist()[0] == 1
    assert (data["path_next"] > 0).all() and not data["peers"].any()


def test_networks_of_another_seed_are_read_from_their_folder(tmp_path, quick, capsys):
    words = ["--only", "llama-12", "--part", "seed-1", "--prompts", 12, "--length", 24, "-o", tmp_path]
    assert study("absolute", *words) == 2
    assert "--part seed-1: expected --trained FOLDER" in capsys.readouterr().err
    shutil.copytree(model_folder("reference/llama-ntk-12"), tmp_path / "other" / "llama-12")
    assert study("absolute", *words, "--trained", tmp_path / "other") == 0
    data = load(tmp_path / "seed-1.nc")
    assert data["condition"].values.tolist() == ["llama-12 text near", "llama-12 text near-rest"]
    assert data.attrs["command"].split()[-6:-4] == ["--trained", "other"] and data.attrs["documents"] == 12
    assert study("absolute", *words[:2], *words[4:8], "--part", "components", "-o", tmp_path) == 0
    own = load(tmp_path / "components.nc").sel(condition="llama-12 text near")
    assert not np.allclose(own["variance"], data["variance"][0])


def test_the_list_says_what_each_study_asks_and_writes(capsys):
    assert study("--list") == 0
    out = capsys.readouterr().out
    for name, plan in STUDIES.items():
        assert f"{name}: {plan.question}" in out and f"results/{plan.chapter}/{plan.file}" in out
        assert f"about {plan.minutes} minutes" in out and all(f"{part.name} (" in out for part in plan.parts)


def test_parts_follow_the_length(tmp_path):
    def asked(name, *, models=("bloom-8",), **request):
        return [job.path.stem for job in jobs(name, tmp_path, Request(models, **request))]

    assert asked("paths") == ["bloom-8.paths-64", "bloom-8.paths-128"]
    assert asked("paths", models=["bloom-12", "bloom-12"]) == ["bloom-12.paths-64"]
    assert asked("paths", models=["bloom-12"], parts=["paths-128"]) == ["bloom-12.paths-128"]
    assert asked("paths", models=["bloom-12"], parts=["paths-32"], length=32) == ["bloom-12.paths-32"]
    assert asked("paths", length=128) == ["bloom-8.paths-128"] and asked("paths", length=32) == ["bloom-8.paths-32"]
    assert asked("corpora") == ["bloom-8.builtin", "bloom-8.random", "bloom-8.builtin-1024"]
    assert asked("corpora", models=["gpt2-12"]) == ["gpt2-12.builtin", "gpt2-12.random"]
    assert asked("corpora", length=1024) == ["bloom-8.builtin-1024"]
    assert asked("corpora", length=64, parts=["random"]) == ["bloom-8.random"]
    assert asked("rotary", length=64, models=["llama-12"]) == ["llama-12.rotary"]
    assert len(jobs("gap", tmp_path, Request())) == 10 and len(jobs("rotary", tmp_path, Request())) == 6
    assert jobs("gap", tmp_path, Request(["someone/some-model"]))[0].command.split()[4] == "someone/some-model"
    one, control, start = jobs("absolute", tmp_path, Request())
    assert [len(job.settings) for job in (one, control, start)] == [3, 1, 5]
    assert one.command == (
        "posbias study absolute --only llama-12 --only llama-ntk-12 --only mistral-12 --part components "
        "--prompts 128 --length 256"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["depth"], "study: expected one of birth, families, "),
        ([], "study: expected --list, or one of birth, "),
        (["gap", "--only", "bloom-9"], "--only: expected a directory, an id on the hub, or one of bloom-12, "),
        (["paths", "--part", "paths-63"], "--part: expected one of paths-64, paths-128, received paths-63"),
        (["paths", "--part", "paths-64", "--length", "32"], "--length: expected 64 for paths-64, or no --part"),
        (["gap", "--prompts", "0"], "prompts: expected an integer of at least 1, received 0"),
        (["gap", "--length", "1"], "length: expected an integer of at least 2, received 1"),
        (["corpora", "--part", "wikitext-2"], "--part wikitext-2: expected --wikitext FILE, its text, received none"),
        (["snapshots"], "snapshots: expected --trained FOLDER, made by posbias train-reference --snapshots"),
        (["seeds"], "seeds: expected --trained FOLDER, made by posbias train-reference --seed S, received none"),
        (["seeds", "--trained", "."], "seeds: expected models that have the parts asked for, received none"),
        (
            ["snapshots", "--trained", ".", "--part", "step-7"],
            "snapshots: expected models that have the parts asked for, received none",
        ),
        (["rotary", "--only", "bloom-8", *SIZES], "model: expected one with rotary positions"),
        (["gap", "--only", "gpt2-12", "--length", "257"], "length: expected at most 256 tokens"),
        (["added-biases", "--only", "bloom-8", "--length", "44"], "length: expected at least"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(words, message, tmp_path, capsys):
    assert study(*words, "-o", tmp_path / "new") == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"posbias: {message}") and captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_twins_are_those_of_reference_models(tmp_path, capsys):
    save(tmp_path / "mine", "bloom")
    assert study("untrained", "--only", tmp_path / "mine", "-o", tmp_path / "new") == 2
    assert "model: expected a reference model, reference/NAME, to make its untrained twin" in capsys.readouterr().err

"""posbias lookup: the file, what it says, changed models, and what is refused."""

from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from lookup_worlds import byte_tokenizer, named_tokenizer, save_network
from measuring import refused, save, status, write_documents
from transformers import AutoModelForCausalLM

import posbias
from posbias.lookup import run as module
from posbias.lookup.file import does_task, read_lookup, summary_lines, write_lookup
from posbias.lookup.prompts import PlacedPrompts
from posbias.lookup.run import assemble, look_up
from posbias.lookup.tasks import Task
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.models.loading import Source
from posbias.settings import Settings


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with tiny models and documents; tests write elsewhere."""
    root = tmp_path_factory.mktemp("place")
    save(root / "bloom", "bloom")
    save_network(root / "named", named_tokenizer(), "llama")
    save_network(root / "letters", byte_tokenizer(), "gpt2")
    write_documents(root / "d.jsonl", [40] * 12)
    return root


def asked_of(place, prompts=12, batch_size=4):
    """Return the settings of a lookup: three batches of scores."""
    return Settings(Source(str(place / "bloom")), Corpus(), prompts=prompts, batch_size=batch_size)


@pytest.fixture(scope="module")
def found(place, tmp_path_factory):
    """Return the file of a lookup of five pairs."""
    path = tmp_path_factory.mktemp("found") / "r.nc"
    write_lookup(path, look_up(asked_of(place), Task("kv", pairs=5), profile_prompts=6))
    return path


def arguments(place, output, *more, task="kv", **changes):
    """Return a command line."""
    own = {"pairs": 5} if task == "kv" else {"length": 28, "segment": 5, "cue": 2, "dataset": place / "d.jsonl"}
    options = {"model": place / "bloom", "task": task, **own, "prompts": 12, "profile_prompts": 6, "batch_size": 4}
    options |= {"output": output, **changes}
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items()]
    return ["lookup", *(word for pair in pairs for word in pair), *more]


# The file and what the command says


@pytest.mark.parametrize("task", ["kv", "copy"])
def test_the_command_writes_scores_and_profiles_and_says_them(place, tmp_path, capsys, task):
    output = tmp_path / "r.nc"
    code, out, err = status(capsys, arguments(place, output, task=task))
    assert code == 0 and err == "" and {p.name for p in tmp_path.iterdir()} == {"r.nc"}
    results = read_lookup(output)
    assert all(x.attrs["long_name"] for x in results.data_vars.values())
    lines = out.splitlines()
    assert lines[0].startswith(f"{output}: bloom, ")
    assert ("places are not told apart (p " in lines[2]) == any(x.startswith("places are not told ap") for x in lines)
    assert lines[3].startswith("rank correlation of ") and "measured influence" in lines[3]
    if task == "kv":
        assert "5 pairs (keys of 1 token, values of 1 token, no separators), 12 prompts of 13 tokens" in lines[0]
        assert np.isin(np.bincount(results["place"]), [2, 3]).all()
        assert np.isclose(results.attrs["chance"], 0.2) and "chance 0.2" in lines[1]
    else:
        assert "segments of 5 tokens after a cue of 2 (d.jsonl), 12 prompts of 28 tokens" in lines[0]
        assert np.allclose(results["gain"], results["loss_without"] - results["loss"])
        assert (results["gain"] != 0).all(), "the control changes what the model sees"
    assert {"measured", "a", "b", "c", "kernels", "own"} == set(results["profile_name"].values)
    assert (results["profile"].values > 0).all()
    code, _, err = status(capsys, ["report", str(output), "-o", str(tmp_path / "r.html")])
    assert (
        code == 2 and "r.nc: expected a measurement, received a lookup, which posbias.load_lookup and --lookup" in err
    )
    code, _, err = status(capsys, arguments(place, output, task=task))
    assert code == 2 and "r.nc: expected a file that is not there yet, or --overwrite" in err


@pytest.mark.parametrize(("low", "done"), [(0.19, False), (0.21, True)])
def test_a_model_that_guesses_does_not_do_the_task(found, low, done):
    results = read_lookup(found).copy(deep=True)
    results["overall"].loc[{"score": "accuracy_among"}] = [0.3, low, 0.4]
    assert does_task(results) == done
    assert any(line.startswith("does not do this task: ") for line in summary_lines(results)) != done


def test_the_profile_is_that_of_the_same_prompts_up_to_the_answer(place, found):
    results = read_lookup(found)
    ids = torch.from_numpy(results["prompt_tokens"].values[results["profile_index"].values]).long()
    influence = Instrument(asked_of(place).source.load_model(torch.float32, "cpu", None)).measure(ids).influence
    starts, width = results["place_start"].values, int(np.diff(results["place_start"].values)[0])
    expected = np.stack([influence.numpy()[:, s : s + width].sum(1) for s in starts], axis=1)
    assert np.allclose(results["influence_places"], expected, rtol=1e-4)
    share = expected.sum(0) / float(influence.sum())
    assert np.allclose(results["profile"].sel(profile_name="measured"), share, rtol=1e-4)
    edges = np.append(results["group_first"].values, len(starts))
    groups = [share[a:b].mean() for a, b in zip(edges[:-1], edges[1:], strict=True)]
    assert np.allclose(results["profile_group"].sel(profile_name="measured"), groups, rtol=1e-4)


def test_a_resample_draws_the_profile_of_its_own_prompts():
    """Of two kinds of documents one has rising scores and profiles, the other falling ones: their order goes together.

    Each resample has more of one kind or of the other, and scores and profile of its prompts rise or fall alike.
    """
    P, units = 8, np.repeat(range(9), 8)
    kind = np.where(units < 6, 1.0, -1.0)
    places = np.tile(np.arange(P), 9)
    influence = (10 + kind[:, None] * (np.arange(P) - 3.5)) / 80
    prompts = PlacedPrompts(
        ids=np.zeros((72, P), dtype=np.int64), answers=np.zeros((72, 1), dtype=np.int64), places=places,
        starts=np.arange(P), width=1, units=units,
    )  # fmt: skip
    measured = xr.Dataset({"influence_prompts": (("prompt", "position"), influence)})
    measured["influence"] = measured["influence_prompts"].mean("prompt")
    measured["lambda_frobenius"] = "layer", np.array([0.5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "available", lambda _: [])
        results = assemble(prompts, {"gain": kind * places}, measured, np.arange(72), {"change": "none"})
    assert np.allclose(results["rank_correlation"].sel(profile_name="measured", score="gain"), [1, 1, 1])


def test_without_a_profile_and_without_a_start_token(place, tmp_path, capsys):
    for more, tokens in (([], 12), (["--no-special-tokens"], 11)):
        output = tmp_path / f"{tokens}.nc"
        code, out, _ = status(capsys, arguments(place, output, *more, model=place / "named", profile_prompts=0))
        results = read_lookup(output)
        assert code == 0 and "rank correlation" not in out and "profile" not in results
        assert results["prompt_tokens"].shape == (12, tokens) and (results["prompt_tokens"][0, 0] == 0) == (not more)


def test_one_prompt_has_no_interval_and_is_counted_as_one(place, tmp_path, capsys):
    code, out, err = status(capsys, arguments(place, tmp_path / "r.nc", prompts=1, profile_prompts=1))
    assert code == 0 and err == "" and "1 prompt of 13 tokens" in out
    results = read_lookup(tmp_path / "r.nc")
    assert np.isnan(results["log_probability_low"]).all() and np.isfinite(results["log_probability_mean"]).all()
    assert np.isnan(results["overall"].sel(score="log_probability").values[1:]).all()


def test_other_batches_agree(place, found):
    one, other = read_lookup(found), look_up(asked_of(place, batch_size=5), Task("kv", pairs=5), profile_prompts=6)
    for name in ("log_probability", "accuracy", "profile", "rank_correlation", "influence_places"):
        assert np.allclose(one[name], other[name], rtol=1e-4, atol=1e-5, equal_nan=True), name


# Models that are changed while they are asked


def test_a_change_wraps_the_whole_measurement_and_is_taken_back(place, monkeypatch):
    seen = []

    @contextmanager
    def silenced(model):
        embedding = model.get_output_embeddings()
        handle = embedding.register_forward_hook(lambda module, args, out: seen.append(1) or out * 0)
        try:
            yield
        finally:
            handle.remove()
            seen.append("end")

    monkeypatch.setattr(module, "make_change", lambda *_: ("nothing said", silenced))
    two = look_up(asked_of(place), Task("kv", pairs=5), profile_prompts=0)
    assert seen == [1, 1, 1, "end"] and np.allclose(two["log_probability"], -np.log(97))
    assert two.attrs["change"] == "nothing said"
    monkeypatch.setattr(module, "make_change", lambda *_: ("as it is", lambda model: nullcontext()))
    profiled = look_up(asked_of(place), Task("kv", pairs=5), profile_prompts=6)
    assert set(profiled["profile_name"].values) == {"measured", "kernels", "own"}, "no formula knows of the change"


def test_content_is_sharpened_while_the_model_is_asked(place, found, tmp_path, capsys):
    """A small temperature makes attention differ more between prompts: its rollout is rough."""
    output = tmp_path / "t.nc"
    words = arguments(place, output, "--temperature", "0.25")
    assert "changed by temperature" in status(capsys, words)[1]
    results = read_lookup(output)
    assert results.attrs["change"] == "temperature 0.25"
    kernels = [x["profile"].sel(profile_name="kernels").values for x in (read_lookup(found), results)]
    before, after = (np.abs(np.diff(np.log(p), 2)).max() for p in kernels)
    assert before < after


def test_a_bias_is_added_while_the_model_is_asked(place, found, tmp_path, capsys):
    """A slope of 1 moves the rollout's profile towards the last pairs, one of -1 towards the first."""
    results = {"none": read_lookup(found)}
    for bias in ("alibi:1", "alibi:-1"):
        code, said, _ = status(capsys, arguments(place, tmp_path / f"{bias}.nc", "--bias", bias))
        assert code == 0 and "changed by" in said
        results[bias] = read_lookup(tmp_path / f"{bias}.nc")
    kernels = {bias: x["profile"].sel(profile_name="kernels").values for bias, x in results.items()}
    means = {bias: np.arange(5) @ p / p.sum() for bias, p in kernels.items()}
    assert means["alibi:-1"] + 0.5 < means["none"] < means["alibi:1"] - 0.5
    assert results["none"].attrs["change"] == "none" and "slope" in results["alibi:1"].attrs["change"]


def test_a_bias_may_differ_between_layers(place):
    bias = [[{"kind": "alibi", "slope": float(slope)}] * 4 for slope in (0.5, 1, 2)]
    asked = {"pairs": 5, "prompts": 4, "profile_prompts": 4, "bias": bias}
    results = posbias.open(place / "bloom").lookup(**asked).results
    profile = results["profile"].sel(profile_name="kernels").values
    assert results.attrs["change"].count("slope") == 12 and profile[-1] > profile[0]


# From Python


def test_python_finds_what_the_command_finds(place, found, tmp_path, capsys):
    asked = {"pairs": 5, "prompts": 12, "profile_prompts": 6, "batch_size": 4, "progress": False}
    here = posbias.open(place / "bloom").lookup(**asked)
    there = posbias.load_lookup(found)
    for name in there.results:
        assert np.allclose(here.results[name], there.results[name], equal_nan=True, atol=1e-6), name
    assert repr(here) == "\n".join(summary_lines(here.results))
    table = here.to_pandas()
    assert table["prompts"].sum() == 12 and table.loc[0, "accuracy"] == there.results["accuracy_mean"][0]
    assert (table["log_probability_low"] <= table["log_probability"]).all()
    assert posbias.load_lookup(here.save(tmp_path / "r.nc")).to_xarray().attrs == here.results.attrs
    added = posbias.open(place / "bloom").lookup(**asked, bias={"kind": "alibi", "slope": 1.0})
    assert added.results.attrs["change"] != "none" and not np.allclose(
        added.results["log_probability"], here.results["log_probability"]
    )
    with pytest.raises(ValueError, match=r"received a lookup, which posbias\.load_lookup and"):
        posbias.load(tmp_path / "r.nc")


def test_a_model_in_memory_is_asked_and_given_back(place):
    network = AutoModelForCausalLM.from_pretrained(place / "bloom").train()
    asked = {"pairs": 5, "prompts": 4, "profile_prompts": 2}
    here = posbias.open(network, tokenizer=str(place / "bloom")).lookup(**asked)
    there = posbias.open(place / "bloom").lookup(**asked)
    assert np.allclose(here.results["log_probability"], there.results["log_probability"], atol=1e-4)
    assert network.training and all(one.requires_grad for one in network.parameters())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"task": "sort"}, "task: expected one of kv, copy"),
        ({"pairs": 1}, "pairs: expected an integer of at least 2, received 1"),
        ({"pairs": 5000}, "tokenizer: expected one with words of one token for 5000 keys and as many values, received"),
        ({"dataset": "builtin"}, "dataset: expected none with the task kv, which reads no text"),
        ({"bias": "log:1", "temperature": 2.0}, "temperature: expected 1 with a bias: one change at a time"),
        ({"bias": [{"kind": "none"}]}, "bias: expected one bias, or one for each of 4 heads"),
        ({"prompts": 4, "profile_prompts": 5}, "profile_prompts: expected at most the 4 prompts"),
        ({"rule": "cut"}, "lookup: expected settings among separator, field"),
    ],
)
def test_bad_arguments_are_refused_before_the_model_is_loaded(place, monkeypatch, changes, expected):
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("loaded"))
    with pytest.raises(ValueError) as error:
        posbias.open(place / "bloom").lookup(**changes)
    assert str(error.value).startswith(expected)


# What is refused


def test_a_file_that_is_no_lookup_is_refused(found, tmp_path):
    broken = tmp_path / "broken.nc"
    for change, said in (
        (lambda x: x.attrs.update(posbias_retrieval=2), "a lookup of layout 1, received layout 2"),
        (lambda x: x.attrs.update(prompts=9), "prompts: expected 12, which the file has, received 9"),
        (lambda x: x["log_probability_mean"].values.fill(np.nan), "log_probability_mean: expected finite numbers"),
        (lambda x: x.attrs.pop("change"), "expected a complete lookup, received none of change"),
    ):
        results = read_lookup(found).copy(deep=True)
        change(results)
        results.to_netcdf(broken, engine="h5netcdf")
        with pytest.raises(ValueError, match=said):
            posbias.load_lookup(broken)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": "letters", "pairs": 20}, ("pairs: expected at most 15, of 4 tokens", "context of 64 tokens")),
        ({"model": "letters", "pairs": 33}, ("pairs: expected at most 32, of 2 tokens or more each", "context of 64")),
        ({"model": "named", "task": "copy"}, ("tokenizer: expected one that makes tokens of text",)),
        ({"task": "copy", "prompts": 13, "profile_prompts": 1}, ("d.jsonl", "13 prompts of 21 tokens")),
    ],
)
def test_what_does_not_fit_is_refused_before_the_model_is_loaded(
    place, tmp_path, capsys, monkeypatch, changes, expected
):
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("loaded"))
    changes = {**changes, "model": place / changes.get("model", "bloom")}
    refused(capsys, tmp_path, arguments(place, tmp_path / "r.nc", **changes), *expected)


def test_a_number_that_is_none_is_refused_with_its_prompt(place, tmp_path, capsys, monkeypatch):
    real = Instrument.tail
    monkeypatch.setattr(Instrument, "tail", lambda self, *rest: real(self, *rest) * float("nan"))
    refused(capsys, tmp_path, arguments(place, tmp_path / "r.nc"), "prompt 0, log_probability: expected finite numbers")

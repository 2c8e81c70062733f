"""posbias retrieval: the file, its report, killed and resumed runs, several processes, and what is refused."""

import html
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

from killed import killed
from measuring import refused, save, status, write_documents
from retrieval_worlds import byte_tokenizer, named_tokenizer, save_network, word_tokenizer

from posbias.lookup import run as module
from posbias.lookup.file import ATTRIBUTES, VARIABLES, read_retrieval
from posbias.lookup.run import Change, Retrieval, RetrievalStudy, retrieve
from posbias.lookup.tasks import Task
from posbias.measure.instrument import Instrument
from posbias.measure.loading import Source


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with tiny models and documents; tests write elsewhere."""
    root = tmp_path_factory.mktemp("place")
    save(root / "bloom", "bloom")
    save_network(root / "named", named_tokenizer(), "llama")
    save_network(root / "letters", byte_tokenizer(), "gpt2")
    save_network(root / "one", word_tokenizer(["ban"]), "llama")
    write_documents(root / "d.jsonl", [40] * 12)
    return root


def arguments(place, output, *more, task="kv", **changes):
    """Return a command line; a change of None leaves an option out."""
    own = {"pairs": 5} if task == "kv" else {"length": 28, "segment": 5, "cue": 2, "dataset": place / "d.jsonl"}
    options = {"model": place / "bloom", "task": task, **own, "prompts": 12, "profile_prompts": 6, "batch_size": 4}
    options |= {"output": output, **changes}
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None]
    return ["retrieval", *(word for pair in pairs for word in pair), *more]


def same_bits(first, second):
    one, two = read_retrieval(first), read_retrieval(second)
    assert set(one) == set(two) and one.attrs == two.attrs
    for name in one:
        assert one[name].values.tobytes() == two[name].values.tobytes(), name


def test_content_is_sharpened_while_the_model_is_asked(place, tmp_path, capsys):
    """With a large temperature attention is what positions say, in each prompt the same: its rollout is smooth."""
    found = {}
    for temperature in ("1", "0.25", "1e6"):
        words = arguments(place, tmp_path / f"{temperature}.nc", "--temperature", temperature, profile_prompts=12)
        code, said, _ = status(capsys, words)
        assert code == 0 and ("changed by temperature" in said) == (temperature != "1")
        found[temperature] = read_retrieval(tmp_path / f"{temperature}.nc")
    assert found["0.25"].attrs["change"] == "temperature 0.25" and found["1"].attrs["change"] == "none"
    assert not found["1"]["log_probability"].equals(found["0.25"]["log_probability"])
    kernels = {x: y["profile"].sel(profile_name="kernels").values for x, y in found.items()}
    rough = {x: np.abs(np.diff(np.log(p), 2)).max() for x, p in kernels.items()}
    assert rough["1e6"] < rough["1"] < rough["0.25"]
    html = tmp_path / "page.html"
    assert status(capsys, ["report", str(tmp_path / "0.25.nc"), "-o", str(html)])[0] == 0
    assert "--temperature 0.25" in html.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--temperature", "0"], "temperature: expected a number above 0, received 0"),
        (["--temperature", "nan"], "temperature: expected"),
        (["--temperature", "0.5", "--bias", "alibi:1"], "temperature: expected 1 with --bias"),
    ],
)
def test_a_temperature_that_is_none_is_refused(place, tmp_path, capsys, words, message):
    code, _, err = status(capsys, arguments(place, tmp_path / "found.nc", *words))
    assert code == 2 and message in err and not (tmp_path / "found.nc").exists()


@pytest.mark.parametrize("task", ["kv", "copy"])
def test_the_command_writes_scores_and_profiles_and_says_them(place, tmp_path, capsys, task):
    code, out, err = status(capsys, arguments(place, tmp_path / "r.nc", task=task))
    assert code == 0 and err == "" and [p.name for p in tmp_path.iterdir()] == ["r.nc"]
    results = read_retrieval(tmp_path / "r.nc")
    assert set(results) <= set(VARIABLES) and set(ATTRIBUTES) < set(results.attrs)
    lines = out.splitlines()
    assert len(lines) in (4, 5) and lines[0].startswith(f"{tmp_path / 'r.nc'}: bloom, ")
    is_open = "places are not told apart (p " in lines[2]
    assert is_open == (lines[-1].startswith("places are not told apart: their order is noise")) == (len(lines) == 5)
    assert lines[3].startswith("rank correlation of ") and "measured influence" in lines[3]
    if task == "kv":
        assert "5 pairs (keys of 1 token, values of 1 token, no separators), 12 prompts of 13 tokens" in lines[0]
        assert np.bincount(results["place"]).tolist() in ([2, 2, 3, 2, 3], [2, 3, 2, 3, 2], [2, 3, 2, 2, 3])
        assert np.isclose(results.attrs["chance"], 0.2) and "chance 0.2" in lines[1]
    else:
        assert "segments of 5 tokens after a cue of 2 (d.jsonl), 12 prompts of 28 tokens" in lines[0]
        assert np.allclose(results["gain"], results["loss_without"] - results["loss"])
        assert (results["gain"] != 0).all(), "the control changes what the model sees"
    assert {"measured", "a", "b", "c", "kernels", "own"} == set(results["profile_name"].values)
    assert (results["profile"].values > 0).all()


def test_the_profile_is_that_of_the_same_prompts_up_to_the_answer(place, tmp_path, capsys):
    assert status(capsys, arguments(place, tmp_path / "r.nc", model=place / "letters", pairs=3))[0] == 0
    results = read_retrieval(tmp_path / "r.nc")
    assert results.attrs["made_of"].startswith("keys of 1 token, values of 1 token")
    assert status(capsys, arguments(place, tmp_path / "two.nc", model=place / "letters", pairs=32))[0] == 2
    rows = results["profile_index"].values
    ids = torch.from_numpy(results["prompt_tokens"].values[rows]).long()
    source = Source(str(place / "letters"))
    influence = Instrument(source.load_model(torch.float32, "cpu", None)).measure(ids).influence.numpy()
    starts, width = results["place_start"].values, int(np.diff(results["place_start"].values)[0])
    expected = np.stack([influence[:, s : s + width].sum(1) for s in starts], axis=1)
    assert np.allclose(results["influence_places"], expected, rtol=1e-4)
    share = expected.sum(0) / influence.sum()
    assert np.allclose(results["profile"].sel(profile_name="measured"), share, rtol=1e-4)
    assert np.allclose(results["profile_group"].sel(profile_name="measured").values.mean(), share.mean(), rtol=1e-4)


def test_networks_of_keys_and_values_by_name(place, tmp_path, capsys):
    code, out, _ = status(capsys, arguments(place, tmp_path / "r.nc", model=place / "named", profile_prompts=0))
    assert code == 0 and "no separators" in out and "rank correlation" not in out
    results = read_retrieval(tmp_path / "r.nc")
    assert results["prompt_tokens"].shape == (12, 12) and (results["prompt_tokens"][:, 0] == 0).all()
    assert "profile" not in results
    words = arguments(place, tmp_path / "bare.nc", "--no-special-tokens", model=place / "named", profile_prompts=0)
    assert status(capsys, words)[0] == 0
    assert read_retrieval(tmp_path / "bare.nc")["prompt_tokens"].shape == (12, 11)


def test_keys_of_several_tokens_are_said(place, tmp_path, capsys):
    model = save_network(tmp_path / "long", byte_tokenizer(), "gpt2", n_positions=300)
    words = arguments(place, tmp_path / "r.nc", model=model, pairs=32, prompts=8, profile_prompts=2)
    code, out, _ = status(capsys, words)
    assert code == 0 and 'keys of 2 tokens, values of 2 tokens, ":" and "\\n" between' in out
    assert 0.01 < read_retrieval(tmp_path / "r.nc").attrs["chance"] < 0.06


def test_batch_sizes_agree(place, tmp_path, capsys):
    for size in (1, 5):
        assert status(capsys, arguments(place, tmp_path / f"{size}.nc", batch_size=size))[0] == 0
    one, two = (read_retrieval(tmp_path / f"{size}.nc") for size in (1, 5))
    for name in ("log_probability", "accuracy", "profile", "rank_correlation", "influence_places"):
        assert np.allclose(one[name], two[name], rtol=1e-4, atol=1e-5, equal_nan=True), name


@pytest.mark.parametrize("after", [1, 3, 4])
def test_stopped_after_any_batch_it_goes_on(place, tmp_path, capsys, monkeypatch, after):
    """Three batches of scores come first, then two of the profile."""
    whole, stopped = tmp_path / "whole" / "r.nc", tmp_path / "stopped" / "r.nc"
    whole.parent.mkdir(), stopped.parent.mkdir()
    assert status(capsys, arguments(place, whole))[0] == 0
    calls, real = [], {name: getattr(Instrument, name) for name in ("tail", "measure")}

    def counted(name, most):
        def call(self, *rest):
            calls.append(name)
            if len(calls) > most:
                raise KeyboardInterrupt
            return real[name](self, *rest)

        return call

    words = arguments(place, stopped, "--resume", checkpoint_every=0)
    for name in real:
        monkeypatch.setattr(Instrument, name, counted(name, after))
    assert status(capsys, words)[0] == 130
    assert [p.name for p in stopped.parent.iterdir()] == ["r.nc.rank0.checkpoint"]
    calls.clear()
    for name in real:
        monkeypatch.setattr(Instrument, name, counted(name, 99))
    assert status(capsys, words)[0] == 0
    assert calls == ["tail", "tail", "tail", "measure", "measure"][after:], "what was done is not done again"
    same_bits(whole, stopped)
    assert [p.name for p in stopped.parent.iterdir()] == ["r.nc"]


def test_killed_by_sigkill_it_ends_with_the_same_bits(place, tmp_path, capsys, one_thread):
    whole, part = tmp_path / "whole.nc", tmp_path / "killed.nc"
    words = arguments(place, part, task="copy", checkpoint_every=0)
    killed(words)
    assert (tmp_path / "killed.nc.rank0.checkpoint").exists() and not part.exists()
    assert status(capsys, arguments(place, whole, task="copy"))[0] == 0
    assert status(capsys, [*words, "--resume"])[0] == 0
    same_bits(whole, part)


def test_what_is_there_is_returned_kept_or_refused(place, tmp_path, capsys, monkeypatch):
    output = tmp_path / "r.nc"
    assert status(capsys, arguments(place, output))[0] == 0
    before = output.read_bytes()
    code, _, err = status(capsys, arguments(place, output))
    assert code == 2 and "r.nc: expected a file that is not there yet, or --overwrite" in err
    for changes, said in (({"seed": 4}, "seed 0, not 4"), ({"pairs": 4}, "pairs 5, not 4")):
        code, _, err = status(capsys, arguments(place, output, "--resume", **changes))
        assert code == 2 and "a result of the same settings, or --overwrite, received " in err
        assert said in err
    with monkeypatch.context() as patch:
        patch.setattr(Source, "load_model", lambda *_: pytest.fail("measured again"))
        code, out, _ = status(capsys, arguments(place, output, "--resume"))
    assert code == 0 and "12 prompts of 13 tokens" in out and output.read_bytes() == before
    words = arguments(place, tmp_path / "part.nc", checkpoint_every=0)
    monkeypatch.setattr(module, "write_retrieval", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert status(capsys, words)[0] == 130
    monkeypatch.undo()
    code, _, err = status(capsys, [*words, "--resume", "--seed", "9"])
    assert code == 2 and "a checkpoint of a run with the same settings" in err and not (tmp_path / "part.nc").exists()
    assert status(capsys, [*words, "--resume"])[0] == 0
    same_bits(output, tmp_path / "part.nc")


def test_two_processes_agree_with_one(place, tmp_path, capsys):
    assert status(capsys, arguments(place, tmp_path / "one.nc"))[0] == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "posbias"]
    done = subprocess.run(
        [*launch, *arguments(place, tmp_path / "two.nc")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout.count("12 prompts") == 1, done.stderr
    one, two = read_retrieval(tmp_path / "one.nc"), read_retrieval(tmp_path / "two.nc")
    for name in one:
        assert np.allclose(one[name], two[name], rtol=1e-5, atol=1e-7, equal_nan=True), name
    assert two.attrs["processes"] == 2 and sorted(p.name for p in tmp_path.iterdir()) == ["one.nc", "two.nc"]


def test_a_change_wraps_the_whole_measurement_and_is_taken_back(place, tmp_path):
    seen = []

    @contextmanager
    def doubled(model):
        embedding = model.get_output_embeddings()
        handle = embedding.register_forward_hook(lambda module, args, out: seen.append(1) or out * 0)
        try:
            yield
        finally:
            handle.remove()
            seen.append("end")

    plain = Retrieval(Source(str(place / "bloom")), Task("kv", pairs=4), prompts=8, profile_prompts=0)
    changed = Retrieval(**{**vars(plain), "change": Change("nothing said", doubled)})
    one, two = retrieve(plain, tmp_path / "one.nc"), retrieve(changed, tmp_path / "two.nc")
    assert (
        seen == [1, "end"]
        and np.allclose(two["log_probability"], -np.log(97))
        and two.attrs["change"] == "nothing said"
    )
    assert not np.allclose(one["log_probability"], two["log_probability"]) and one.attrs["change"] == "none"
    with pytest.raises(ValueError, match="change nothing said, not none"):
        retrieve(plain, tmp_path / "two.nc", resume=True)

    @contextmanager
    def untouched(model):
        yield

    profiled = Retrieval(**{**vars(plain), "profile_prompts": 4, "change": Change("as it is", untouched)})
    found = retrieve(profiled, tmp_path / "three.nc")
    assert set(found["profile_name"].values) == {"measured", "kernels", "own"}, "no formula knows of the change"


def test_a_bias_is_added_while_the_model_is_asked(place, tmp_path, capsys):
    """A slope of 1 moves the rollout's profile towards the last pairs, one of -1 towards the first."""
    found = {}
    for bias in ("none", "alibi:1", "alibi:-1"):
        words = arguments(place, tmp_path / f"{bias}.nc", "--bias", bias, profile_prompts=12)
        code, said, _ = status(capsys, words)
        assert code == 0 and ("changed by" in said) == (bias != "none")
        found[bias] = read_retrieval(tmp_path / f"{bias}.nc")
    kernels = {bias: x["profile"].sel(profile_name="kernels").values for bias, x in found.items()}
    means = {bias: np.arange(5) @ p / p.sum() for bias, p in kernels.items()}
    assert means["alibi:-1"] + 0.5 < means["none"] < means["alibi:1"] - 0.5
    assert found["none"].attrs["change"] == "none" and "slope" in found["alibi:1"].attrs["change"]


@pytest.mark.parametrize("task", ["kv", "copy"])
def test_the_report_has_figure_tables_and_data(place, tmp_path, capsys, task):
    output, page = tmp_path / "r.nc", tmp_path / "r.html"
    assert status(capsys, arguments(place, output, "--report", str(page), task=task, prompts=12))[0] == 0
    first = page.read_text()
    code, out, _ = status(capsys, ["report", str(output), "-o", str(page)])
    assert code == 0 and "12 prompts of" in out and page.read_text() == first
    assert first.count("<svg") == 1 and "http" not in first.replace("http-equiv", "") and "<script" not in first
    for part in ("By place", "rank correlation with", "How to read it", "places.csv", "prompts.csv", "profiles.csv"):
        assert part in first, part
    assert f"posbias retrieval --model bloom --task {task}" in first
    code, _, err = status(capsys, ["report", str(output), "-o", str(page), "--compare", str(output)])
    assert code == 2 and "compare: expected none with a retrieval" in err
    lean = tmp_path / "lean.nc"
    assert status(capsys, arguments(place, lean, task=task, profile_prompts=0))[0] == 0
    assert status(capsys, ["report", str(lean), "-o", str(page)])[0] == 0
    assert "rank correlation with" not in page.read_text()


def damaged(results, change):
    changed = results.copy(deep=True)
    change(changed)
    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.attrs.update(posbias_retrieval=2), "a retrieval of layout 1, received layout 2"),
        (lambda x: x.attrs.update(task="find"), "task: expected one of kv, copy"),
        (lambda x: x.attrs.update(prompts=9), "prompts: expected 12, which the file has, received 9"),
        (lambda x: x.attrs.pop("chance"), "a complete retrieval, received none of chance"),
        (lambda x: x["log_probability_mean"].values.fill(np.nan), "log_probability_mean: expected finite numbers"),
    ],
)
def test_a_file_that_is_no_retrieval_is_refused(place, tmp_path, capsys, change, said):
    assert status(capsys, arguments(place, tmp_path / "r.nc"))[0] == 0
    broken = tmp_path / "broken.nc"
    damaged(read_retrieval(tmp_path / "r.nc"), change).to_netcdf(broken, engine="h5netcdf")
    code, out, err = status(capsys, ["report", str(broken), "-o", str(tmp_path / "p.html")])
    assert code == 2 and out == "" and said in err and err.count("\n") == 1 and not (tmp_path / "p.html").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": "letters", "pairs": 20}, ("pairs: expected at most", "in the model's context of 64 tokens")),
        ({"model": "one"}, ("tokenizer: expected one with words for 5 distinct keys", "1 token that can be used")),
        ({"model": "named", "task": "copy"}, ("tokenizer: expected one that makes tokens of text",)),
        ({"task": "copy", "prompts": 13, "profile_prompts": 1}, ("d.jsonl", "13 prompts of 21 tokens")),
        ({"model": "letters", "task": "copy", "length": 65}, ("length: expected at most 64",)),
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


def test_a_study_opens_the_model_once(place):
    study = RetrievalStudy(Retrieval(Source(str(place / "bloom")), Task("kv", pairs=3), prompts=4, profile_prompts=2))
    assert study.instrument is study.instrument and study.ids.shape == (2, study.placed.asked.shape[1])
    assert "dataset" in study.provenance() and study.settings.length == study.placed.asked.shape[1]


def test_one_prompt_has_no_interval_and_is_counted_as_one(place, tmp_path, capsys):
    words = arguments(place, tmp_path / "r.nc", pairs=1, prompts=1, profile_prompts=1)
    code, out, err = status(capsys, [*words, "--report", str(tmp_path / "r.html")])
    assert code == 0 and err == "" and "1 pair (keys" in out and "1 prompt of 5 tokens" in out
    results = read_retrieval(tmp_path / "r.nc")
    assert np.isnan(results["log_probability_low"]).all() and np.isfinite(results["log_probability_mean"]).all()
    assert np.isnan(results["overall"].sel(score="log_probability").values[1:]).all()


def test_the_report_of_a_changed_model_says_how_to_change_it_again(place, tmp_path, capsys):
    output, page, again = tmp_path / "r.nc", tmp_path / "r.html", tmp_path / "bias.json"
    heads = [{"kind": "log", "alpha": 0.5 + h / 7} for h in range(4)]
    again.write_text(json.dumps([heads] * 3))
    words = arguments(place, output, "--bias", str(again), "--report", str(page), profile_prompts=0)
    code, out, _ = status(capsys, words)
    assert code == 0 and max(map(len, out.splitlines()[:1])) < 600, "a bias for each head is not written out"
    said = html.unescape(re.sub("<[^>]+>", "", page.read_text()))
    assert (
        f"echo '{read_retrieval(output).attrs['change']}' > bias.json" in said and "--bias bias.json --output" in said
    )

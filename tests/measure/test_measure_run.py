"""Whole measurements: killed and resumed, on two processes, and everything that can be wrong with what is given."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("xarray", reason="xarray is not installed")

from killed import killed
from measuring import EVERYTHING, agree, arguments, refused, save, status, write_documents

from posbias.cli import main
from posbias.measure import batches
from posbias.measure import run as module
from posbias.measure.instrument import Instrument
from posbias.measure.loading import Source
from posbias.measure.processes import Processes
from posbias.measure.results import read_results
from posbias.measure.rollouts import measured_profile, variants_of

LONG = {"gpt2": {"n_positions": 400}, "mistral": {"max_position_embeddings": 400, "sliding_window": 50}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a tiny model and documents; tests write elsewhere."""
    root = tmp_path_factory.mktemp("place")
    save(root / "bloom", "bloom")
    write_documents(root / "d.jsonl", [40] * 12)
    return root


@pytest.fixture
def each_batch(monkeypatch):
    """Have a checkpoint after each batch."""
    monkeypatch.setattr(batches, "EVERY", 0.0)


def same_bits(first, second):
    one, two = read_results(first), read_results(second)
    assert set(one) == set(two) and one.attrs == two.attrs
    for name in one:
        assert one[name].values.tobytes() == two[name].values.tobytes(), name


def test_the_command_measures(place, tmp_path, capsys):
    code, out, err = status(capsys, arguments(place, tmp_path / "m.nc", "-q", "kernels,content,heads", seed=3))
    assert code == 0 and "Measurement of bloom, 10 prompts of 16 tokens (d.jsonl)\n3 layers × 4 heads, total" in out
    assert err == "", "no progress bar where stderr is no terminal, and no line for what is quick"
    results = read_results(tmp_path / "m.nc")
    assert results.attrs["seed"] == 3 and results.attrs["rule"] == "first" and "attention_heads" in results
    assert results.attrs["architecture"] == "bloom" and results.attrs["dtype"] == "float32"
    assert [p.name for p in tmp_path.iterdir()] == ["m.nc"]


def test_batch_sizes_agree(place, tmp_path, capsys):
    for size in (1, 4, 10):
        assert status(capsys, arguments(place, tmp_path / f"{size}.nc", batch_size=size))[0] == 0
    one = read_results(tmp_path / "1.nc")
    for size in (4, 10):
        agree(one, read_results(tmp_path / f"{size}.nc"))


def test_rules_without_documents_and_with_cuts(place, tmp_path, capsys):
    assert status(capsys, arguments(place, tmp_path / "r.nc", rule="random", dataset=None))[0] == 0
    assert read_results(tmp_path / "r.nc").attrs["dataset"] == "random tokens"
    words = arguments(place, tmp_path / "c.nc", rule="cut", per_document=2)
    assert status(capsys, words)[0] == 0
    assert read_results(tmp_path / "c.nc").attrs["rule"] == "cut, 2 a document"


@pytest.mark.parametrize(
    ("names", "there", "variants"),
    [
        ("mixing,influence", {"influence", "lambda_token"}, ("a", "b")),
        ("kernels", {"attention", "rollout_own"}, ("a", "b", "kernels", "own")),
        ("content", {"content_diagonal", "histogram_diagonal", "similarity_diagonal"}, ("a", "b", "c")),
        (
            "content,logits",
            {"content_diagonal", "content_logits", "histogram_diagonal", "similarity_diagonal"},
            ("a", "b", "c"),
        ),
        ("kernels,heads", {"attention", "attention_heads", "rollout_own"}, ("a", "b", "kernels", "own")),
        ("branches", {"branch_gain", "step_gain"}, ("a", "b", "birth")),
    ],
)
def test_what_is_asked_for_is_what_is_measured(place, tmp_path, capsys, names, there, variants):
    assert status(capsys, arguments(place, tmp_path / "m.nc", "-q", names))[0] == 0
    results = read_results(tmp_path / "m.nc")
    every = {"influence", "lambda_token", "attention", "rollout_own", "content_diagonal", "histogram_diagonal"}
    every |= {"similarity_diagonal", "content_logits", "attention_heads", "branch_gain", "step_gain"}
    assert set(results) & every == there | {"influence", "lambda_token"} and variants_of(results) == variants
    assert all(np.isclose(measured_profile(results, variant).sum(), 1) for variant in variants)


def test_prompts_are_kept_and_can_be_left_out(place, tmp_path, capsys):
    assert status(capsys, arguments(place, tmp_path / "with.nc", rule="cut"))[0] == 0
    assert status(capsys, arguments(place, tmp_path / "without.nc", "--no-tokens", rule="cut"))[0] == 0
    kept, lean = read_results(tmp_path / "with.nc"), read_results(tmp_path / "without.nc")
    ids = kept["tokens"].values
    digest = hashlib.sha256(np.ascontiguousarray(ids, dtype="<i8").tobytes()).hexdigest()
    assert ids.shape == (10, 16) and digest == kept.attrs["prompts_sha256"] == lean.attrs["prompts_sha256"]
    assert "tokens" not in lean and lean["document"].values.tolist() == list(range(10)) and "offset" in lean


def test_a_result_is_not_overwritten_and_a_finished_one_is_returned(place, tmp_path, capsys, monkeypatch):
    output = tmp_path / "m.nc"
    assert status(capsys, arguments(place, output))[0] == 0
    before = output.read_bytes()
    code, _, err = status(capsys, arguments(place, output))
    assert code == 2 and "m.nc: expected a file that is not there yet, or --overwrite" in err
    code, _, err = status(capsys, arguments(place, output, "--resume", seed=4))
    assert code == 2 and "a result of the same settings, or --overwrite, received seed 0, not 4" in err
    code, _, err = status(capsys, arguments(place, output, "--resume", "--no-tokens"))
    assert code == 2 and "received tokens in it, which were not to be kept" in err
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("measured again"))
    code, out, _ = status(capsys, arguments(place, output, "--resume"))
    assert code == 0 and "10 prompts of 16 tokens" in out and output.read_bytes() == before
    monkeypatch.undo()
    assert status(capsys, arguments(place, output, "--overwrite", seed=4))[0] == 0
    assert read_results(output).attrs["seed"] == 4


def test_a_dry_run_says_what_it_would_take_and_measures_nothing(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("loaded"))
    code, out, _ = status(capsys, arguments(place, tmp_path / "m.nc", "--dry-run"))
    assert code == 0 and out.startswith("memory: about 0.") and "\ndisk: at most " in out and "\ntime: about 0:0" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_what_a_number_format_costs_is_in_the_file(place, tmp_path, capsys, name):
    model, words = save(tmp_path / "model", name), {"dtype": "bfloat16"}
    output = tmp_path / "m.nc"
    assert status(capsys, arguments(place, output, model=model, **words))[0] == 0
    found = json.loads(read_results(output).attrs["format_error"])
    assert (
        0 < found["lambda"] < 0.1 and 0 < found["attention"] < 0.5 and 0 < found["content"] < found["content_largest"]
    )
    assert 0 < found["influence"] < 0.5 and found["tokens"] == 16
    assert status(capsys, arguments(place, tmp_path / "wide.nc", model=model))[0] == 0
    wide = read_results(tmp_path / "wide.nc")
    assert "format_error" not in wide.attrs
    assert ("soft-capped" in wide.attrs["content_form"]) == (name == "gemma2")


@pytest.mark.parametrize("name", ["bloom", "gpt2", "mistral"])
def test_long_prompts_are_kept_in_cells(tmp_path, capsys, name):
    model, n = save(tmp_path / "model", name, **LONG.get(name, {})), 300
    words = {"model": model, "dataset": None, "rule": "random", "prompts": 2, "length": n, "batch_size": 1}
    whole, coarse = tmp_path / "whole.nc", tmp_path / "coarse.nc"
    every = ["-q", "kernels,content,logits,heads,branches"]
    assert status(capsys, arguments(None, whole, *every, **words))[0] == 0
    assert status(capsys, arguments(None, coarse, *every, kernel_size=140, **words))[0] == 0
    full, part = read_results(whole), read_results(coarse)
    assert part.sizes["cell"] == 140 and not {"attention", "step_gain", "content_logits"} & set(part)
    assert coarse.stat().st_size < whole.stat().st_size / 2
    for variant in variants_of(full):
        p, q = (measured_profile(x, variant) for x in (full, part))
        assert np.abs(np.cumsum(p - q)).mean() < 5e-3, variant
        assert np.allclose(p[[0, -1]], q[[0, -1]], rtol=0.05), variant
        curve = tmp_path / f"{variant}.csv"
        assert status(capsys, ["rollout", str(coarse), "--variant", variant, "-o", str(curve)])[0] == 0
        assert abs(q.sum() - 1) < 1e-12, variant


def test_a_model_spread_by_accelerate(place, tmp_path, capsys):
    pytest.importorskip("accelerate")
    assert status(capsys, arguments(place, tmp_path / "one.nc"))[0] == 0
    assert status(capsys, arguments(place, tmp_path / "spread.nc", device_map="auto"))[0] == 0
    agree(read_results(tmp_path / "one.nc"), read_results(tmp_path / "spread.nc"))


# Faults.


@pytest.mark.parametrize("after", [1, 3])
def test_stopped_after_any_batch_it_goes_on(place, tmp_path, capsys, monkeypatch, each_batch, after):
    whole, stopped = tmp_path / "whole" / "m.nc", tmp_path / "stopped" / "m.nc"
    whole.parent.mkdir(), stopped.parent.mkdir()
    assert status(capsys, arguments(place, whole))[0] == 0
    real, calls = Instrument.measure, []

    def stop(self, *rest):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return real(self, *rest)

    monkeypatch.setattr(Instrument, "measure", stop)
    words = arguments(place, stopped, "--resume")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        main(words)
    assert [p.name for p in stopped.parent.iterdir()] == ["m.nc.rank0.checkpoint"]
    calls.clear()
    monkeypatch.setattr(Instrument, "measure", lambda self, *rest: calls.append(1) or real(self, *rest))
    assert status(capsys, words)[0] == 0
    assert len(calls) == 4 - after, "what was done is not done again"
    same_bits(whole, stopped)
    assert [p.name for p in stopped.parent.iterdir()] == ["m.nc"]


def test_killed_by_sigkill_it_ends_with_the_same_bits(place, tmp_path, capsys, monkeypatch, one_thread):
    whole, part = tmp_path / "whole.nc", tmp_path / "killed.nc"
    words, checkpoint = arguments(place, part), tmp_path / "killed.nc.rank0.checkpoint"
    killed(words, "from posbias.measure import batches; batches.EVERY = 0.0")
    assert checkpoint.exists() and not part.exists()
    assert status(capsys, arguments(place, whole))[0] == 0
    real, calls = Instrument.measure, []
    monkeypatch.setattr(Instrument, "measure", lambda self, *rest: calls.append(1) or real(self, *rest))
    assert status(capsys, [*words, "--resume"])[0] == 0
    assert len(calls) == 3, "the first batch was in the whole checkpoint, the second in the half written one"
    same_bits(whole, part)
    assert not checkpoint.exists()


def test_two_processes_agree_with_one(place, tmp_path, capsys):
    assert status(capsys, arguments(place, tmp_path / "one.nc", "-q", EVERYTHING))[0] == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "posbias"]
    done = subprocess.run(
        [*launch, *arguments(place, tmp_path / "two.nc", "-q", EVERYTHING)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("10 prompts") == 1, "the first process speaks for all"
    one, two = read_results(tmp_path / "one.nc"), read_results(tmp_path / "two.nc")
    agree(one, two)
    assert two.attrs["processes"] == 2 and two.attrs["prompts_sha256"] == one.attrs["prompts_sha256"]
    rows, others = one.influence_prompts.values, two.influence_prompts.values
    nearest = abs(rows[:, None] - others).max(-1).argmin(1)
    assert nearest.tolist() == list(range(10)), "each prompt in its own row"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.nc", "two.nc"]


def test_a_process_says_that_another_has_stopped(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(torch.distributed, "all_reduce", fail)
    with pytest.raises(ChildProcessError, match="process 1: expected all 2 to finish, one stopped"):
        Processes(1, 2).add_up(torch.ones(1))


def test_a_checkpoint_in_the_way_is_named(place, tmp_path, capsys):
    (tmp_path / "m.nc.rank0.checkpoint").write_bytes(b"")
    code, _, err = status(capsys, arguments(place, tmp_path / "m.nc"))
    assert code == 2 and "m.nc.rank0.checkpoint: expected no checkpoint" in err
    code, _, err = status(capsys, arguments(place, tmp_path / "m.nc", "--resume"))
    assert code == 2 and "expected an intact checkpoint" in err and not (tmp_path / "m.nc").exists()


def test_a_checkpoint_of_another_run_is_refused(place, tmp_path, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    (tmp_path / "other").mkdir()
    monkeypatch.setattr(module, "write_results", stop)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        main(arguments(place, tmp_path / "m.nc"))
    monkeypatch.undo()
    code, _, err = status(capsys, arguments(place, tmp_path / "m.nc", "--resume", batch_size=5))
    assert code == 2 and "a run with the same settings, received batch_size=3" in err
    other = write_documents(tmp_path / "other" / "d.jsonl", [40] * 12, seed=50)
    code, _, err = status(capsys, arguments(place, tmp_path / "m.nc", "--resume", dataset=other))
    assert code == 2 and "received prompts_sha256=" in err, "another corpus of the same name"
    assert not (tmp_path / "m.nc").exists()


def test_a_nan_names_layer_and_prompt_and_leaves_nothing(place, tmp_path, capsys, monkeypatch):
    broken, out = save(tmp_path / "broken", "llama"), tmp_path / "out"
    out.mkdir()
    write_documents(tmp_path / "d.jsonl", [40] * 6)
    from safetensors.torch import load_file, save_file

    weights = load_file(broken / "model.safetensors")
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(broken)(json.loads((tmp_path / "d.jsonl").read_text().splitlines()[4])["text"])
    others = [AutoTokenizer.from_pretrained(broken)(json.loads(line)["text"])["input_ids"][:16]
              for k, line in enumerate((tmp_path / "d.jsonl").read_text().splitlines()) if k != 4]  # fmt: skip
    rare = next(t for t in ids["input_ids"][:16] if not any(t in other for other in others))
    weights["model.embed_tokens.weight"][rare] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    words = arguments(place, out / "m.nc", model=broken, dataset=tmp_path / "d.jsonl", prompts=6)
    refused(capsys, out, words, "prompt 4, the input of layer 0: expected finite numbers, received nan in float32")


def test_a_model_without_gradients_leaves_nothing(place, tmp_path, capsys):
    broken, out = save(tmp_path / "broken", "llama"), tmp_path / "out"
    out.mkdir()
    from safetensors.torch import load_file, save_file

    weights = load_file(broken / "model.safetensors")
    weights["lm_head.weight"].zero_()
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    code, _, err = status(capsys, arguments(place, out / "m.nc", model=broken))
    assert code == 2 and "influence: expected gradients above 0, received none in float32" in err
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "size", "advice"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), 8, "received 8; try 4"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 5, "received 5; try 2"),
        (MemoryError(), 1, "received 1; try --quantities mixing,influence or --device-map auto or a smaller length"),
    ],
)
def test_out_of_memory_says_what_to_try(place, tmp_path, capsys, monkeypatch, error, size, advice):
    def fail(*_):
        raise error

    monkeypatch.setattr(Instrument, "measure", fail)
    refused(capsys, tmp_path, arguments(place, tmp_path / "m.nc", batch_size=size), "batch_size: expected", advice)


def test_a_model_larger_than_the_device_says_what_to_try(place, tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.nn.Module, "to", fail)
    refused(capsys, tmp_path, arguments(place, tmp_path / "m.nc"), "expected one that fits on cpu", "--device-map auto")


def test_other_errors_are_not_taken_for_memory(place, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(Instrument, "measure", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        main(arguments(place, tmp_path / "m.nc"))


def test_attention_beyond_all_bounds_is_refused(place, tmp_path, capsys):
    words = arguments(place, tmp_path / "m.nc", length=200_000, batch_size=1)
    refused(capsys, tmp_path, words, "memory: expected at most the", "prompts of 200000 tokens", "try a smaller length")


def test_a_tokenizer_of_another_model_is_refused(place, tmp_path, capsys):
    model, out = save(tmp_path / "model", "llama", vocab_size=50), tmp_path / "out"
    out.mkdir()
    words = arguments(place, out / "m.nc", model=model)
    refused(capsys, out, words, "tokenizer: expected at most the model's 50 tokens, received 77")


def test_pickled_weights_are_not_loaded_unless_asked(place, tmp_path, capsys):
    pickled, out = tmp_path / "pickled", tmp_path / "out"
    shutil.copytree(place / "bloom", pickled)
    out.mkdir()
    from safetensors.torch import load_file

    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    words = arguments(place, out / "m.nc", model=pickled)
    refused(capsys, out, words, "safetensors")
    assert status(capsys, [*words, "--allow-pickle"])[0] == 0


@pytest.mark.parametrize("size", [0, 1000, -1])
def test_weights_that_end_early_are_refused(place, tmp_path, capsys, size):
    broken, out = tmp_path / "broken", tmp_path / "out"
    shutil.copytree(place / "bloom", broken)
    out.mkdir()
    content = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(content[:size])
    refused(capsys, out, arguments(place, out / "m.nc", model=broken), "expected whole .safetensors files, received")


def test_code_that_comes_with_a_model_is_not_run(place, tmp_path, capsys):
    foreign, out = tmp_path / "foreign", tmp_path / "out"
    shutil.copytree(place / "bloom", foreign)
    out.mkdir()
    config = json.loads((foreign / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}}
    (foreign / "config.json").write_text(json.dumps(config))
    (foreign / "code.py").write_text(f"open({str(out / 'ran')!r}, 'w')\n")
    refused(capsys, out, arguments(place, out / "m.nc", model=foreign), "--trust-remote-code, received one with code")


def test_the_hub_offline_is_refused_in_a_line(place, tmp_path):
    """In a process of its own, for what libraries write past us, one for both: most of its time it imports."""
    commands = [
        arguments(place, tmp_path / "m.nc", model="someone/some-model"),
        arguments(place, tmp_path / "m.nc", dataset="wikipedia"),
    ]
    parts = [f"try: main({command})\nexcept SystemExit as ended: print(ended.code)" for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(["from posbias.cli import main", *parts])],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "2\n2\n", done.stderr
    model, dataset = done.stderr.splitlines()
    assert model.startswith("posbias: model someone/some-model: expected"), model
    assert dataset.startswith("posbias: dataset wikipedia: expected"), dataset
    assert list(tmp_path.iterdir()) == []

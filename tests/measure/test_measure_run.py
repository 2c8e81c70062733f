"""Whole measurements: stopped and resumed, and everything that can be wrong with what is given."""

import hashlib
import json
import shutil

import datasets
import huggingface_hub
import numpy as np
import pytest
import torch
from measuring import EVERYTHING, WORDS, agree, arguments, refused, save, status, write_documents
from safetensors.torch import load_file, save_file

from posbias.cli import main
from posbias.measure.instrument import Instrument
from posbias.measure.results import read_results
from posbias.models.loading import Source
from posbias.predict import available, predict

CONTENT = {"content_diagonal", "content_offdiagonal"}
PLAIN = ("attention-only", "layer-shares")


@pytest.fixture
def out(tmp_path):
    """Return an empty folder."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def raising(error):
    """Return a function that raises an error, whatever it is given."""

    def fail(*_, **__):
        raise error

    return fail


def test_the_command_measures_and_batch_sizes_agree(place, tmp_path, capsys):
    code, said, err = status(capsys, arguments(place, tmp_path / "m.nc", "-q", "kernels,content,heads", seed=3))
    assert code == 0 and "Measurement of bloom, 10 prompts of 16 tokens (d.jsonl)\n3 layers × 4 heads, total" in said
    assert err == "", "no progress bar where stderr is no terminal, and no line for what is quick"
    assert [p.name for p in tmp_path.iterdir()] == ["m.nc"]
    one = read_results(tmp_path / "m.nc")
    expected = {"seed": 3, "rule": "first", "architecture": "bloom", "dtype": "float32"}
    assert expected.items() <= one.attrs.items() and "attention_heads" in one
    words = arguments(place, tmp_path / "10.nc", "-q", "kernels,content,heads", seed=3, batch_size=10)
    assert status(capsys, [*words, "--device-map", "auto"])[0] == 0
    agree(one, read_results(tmp_path / "10.nc"))


def test_other_rules_and_prompts_that_are_left_out(place, tmp_path, capsys):
    assert status(capsys, arguments(place, tmp_path / "r.nc", rule="random", dataset=None))[0] == 0
    assert read_results(tmp_path / "r.nc").attrs["dataset"] == "random tokens"
    kept, lean = tmp_path / "with.nc", tmp_path / "without.nc"
    assert status(capsys, arguments(place, kept, rule="cut", per_document=2))[0] == 0
    assert status(capsys, arguments(place, lean, "--no-tokens", rule="cut", per_document=2))[0] == 0
    kept, lean = read_results(kept), read_results(lean)
    assert kept.attrs["rule"] == "cut, 2 a document"
    ids = kept["tokens"].values
    digest = hashlib.sha256(np.ascontiguousarray(ids, dtype="<i8").tobytes()).hexdigest()
    assert ids.shape == (10, 16) and digest == kept.attrs["prompts_sha256"] == lean.attrs["prompts_sha256"]
    assert "tokens" not in lean and np.bincount(lean["document"]).max() == 2


@pytest.mark.parametrize(
    ("names", "there", "variants"),
    [
        ("mixing,influence", set(), PLAIN),
        ("content", CONTENT, (*PLAIN, "layer-shares-self")),
        ("content,logits", CONTENT | {"content_logits"}, (*PLAIN, "layer-shares-self")),
        (
            "kernels,heads",
            {"attention", "attention_heads", "rollout_own"},
            (*PLAIN, "measured-attention", "measured-attention-own"),
        ),
        ("branches", {"branch_gain", "step_gain"}, (*PLAIN, "head-gains-squared", "head-gains-added")),
    ],
)
def test_what_is_asked_for_is_what_is_measured(place, tmp_path, capsys, names, there, variants):
    assert status(capsys, arguments(place, tmp_path / "m.nc", "-q", names))[0] == 0
    results = read_results(tmp_path / "m.nc")
    every = {"attention", "rollout_own", "content_logits", "attention_heads", "branch_gain", "step_gain"} | CONTENT
    assert set(results) & every == there and {"influence", "lambda_token"} <= set(results)
    assert available(results) == variants
    assert all(np.isclose(predict(results, variant).sum(), 1) for variant in variants)


def test_of_long_prompts_no_matrices_are_kept(place, tmp_path, capsys):
    whole, long, words = tmp_path / "whole.nc", tmp_path / "long.nc", (place, tmp_path / "never.nc")
    said = status(capsys, arguments(*words, "-q", EVERYTHING, kernel_size=15))[2]
    assert "kernel_size: expected 16 or more, all tokens, for matrices of each head, received 15" in said
    asked = "kernels,content,branches,ladder,contributions"
    for file, size in ((whole, 16), (long, 15)):
        code, out, _ = status(capsys, arguments(place, file, "-q", asked, kernel_size=size))
        assert code == 0 and ("no matrices (branches, contributions, kernels): 16 tokens" in out) == (size == 15)
    full, part = read_results(whole), read_results(long)
    assert {*full} - {*part} >= {"attention", "step_gain", "contributions"} and "query" not in part.sizes
    lost = {"measured-attention", "head-gains-squared", "head-gains-added", "contributions"}
    assert {*available(full)} - {*available(part)} == lost
    for variant in available(part):
        assert np.allclose(predict(part, variant), predict(full, variant), rtol=1e-6), variant
    for missing, words in (
        (part, ""),
        (part.assign_attrs(quantities="mixing"), "--quantities with contributions, and "),
    ):
        with pytest.raises(ValueError, match=f"needs {words}--kernel-size 16, for matrices of all tokens"):
            predict(missing, "contributions")


# Faults.


@pytest.mark.parametrize("after", [1, 3])
def test_stopped_after_any_batch_it_goes_on(place, tmp_path, capsys, monkeypatch, after):
    monkeypatch.setattr("posbias.measure.run.SHARE", 0)
    whole, output = tmp_path / "whole.nc", tmp_path / "out" / "m.nc"
    output.parent.mkdir()
    words = ("-q", "kernels,content,ladder,contributions,use")
    assert status(capsys, arguments(place, whole, *words))[0] == 0
    real, calls = Instrument.measure, []

    def stop(self, *rest):
        if len(rest) < 3:  # the self-check, which climbs no ladder
            return real(self, *rest)
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return real(self, *rest)

    monkeypatch.setattr(Instrument, "measure", stop)
    code, _, err = status(capsys, arguments(place, output, *words))
    assert code == 130 and "m.nc.partial is left: the same command with --resume goes on" in err
    assert [p.name for p in output.parent.iterdir()] == ["m.nc.partial"]
    code, _, err = status(capsys, arguments(place, output, *words))
    assert code == 2 and "m.nc.partial: expected no partial sums of an unfinished run" in err
    calls.clear()
    monkeypatch.setattr(Instrument, "measure", lambda self, *rest: calls.append(rest) or real(self, *rest))
    assert status(capsys, arguments(place, output, *words, "--resume"))[0] == 0
    assert len(calls) == 1 + 4 - after, "the self-check, and what was not done before"
    agree(read_results(whole), read_results(output))
    assert [p.name for p in output.parent.iterdir()] == ["m.nc"]


def test_partial_sums_that_are_damaged_or_of_another_run_are_refused(place, tmp_path, capsys, monkeypatch):
    partial, words = tmp_path / "m.nc.partial", arguments(place, tmp_path / "m.nc")
    with monkeypatch.context() as patch:
        patch.setattr("posbias.measure.results.write_results", raising(KeyboardInterrupt()))
        assert status(capsys, words)[0] == 130
    monkeypatch.setattr(Source, "load_model", lambda *_: pytest.fail("loaded"))
    code, _, err = status(capsys, arguments(place, tmp_path / "m.nc", "--resume", batch_size=5))
    assert code == 2 and "partial sums of a run with the same settings, received batch_size=3" in err
    (tmp_path / "other").mkdir()
    other = write_documents(tmp_path / "other" / "d.jsonl", [40] * 12, seed=50)
    code, _, err = status(capsys, arguments(place, tmp_path / "m.nc", "--resume", dataset=other))
    assert code == 2 and "received prompts_sha256=" in err, "another corpus of the same name"
    code, _, err = status(capsys, [*words, "--resume", "--condition", 'bias:{"kind": "log", "alpha": 1.0}'])
    assert code == 2 and "received condition=none" in err, "a setting that the other run had not"
    whole = partial.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"junk"):
        partial.write_bytes(content)
        code, _, err = status(capsys, [*words, "--resume"])
        assert code == 2 and "m.nc.partial: expected intact partial sums" in err and partial.exists()


def test_a_result_is_not_overwritten(place, tmp_path, capsys):
    output = tmp_path / "m.nc"
    assert status(capsys, arguments(place, output))[0] == 0
    for more in ((), ("--resume",)):
        code, _, err = status(capsys, arguments(place, output, *more))
        assert code == 2 and "m.nc: expected a file that is not there yet, or --overwrite" in err
    assert status(capsys, arguments(place, output, "--overwrite", seed=4))[0] == 0
    assert read_results(output).attrs["seed"] == 4


def broken(folder, name, change):
    """Save a tiny model after a change of one of its tensors."""
    file = save(folder, "llama") / "model.safetensors"
    weights = load_file(file)
    change(weights[name])
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def test_a_nan_names_layer_and_prompt_and_leaves_nothing(place, tmp_path, out, capsys):
    """A token that only the text of prompt 4 has; the checkpoint of the first batch goes too."""
    texts = [json.loads(line)["text"].split()[:15] for line in (place / "d.jsonl").read_text().splitlines()[:6]]
    rare = next(WORDS.index(x) + 2 for x in texts[4] if not any(x in text for k, text in enumerate(texts) if k != 4))
    model = broken(tmp_path / "m", "model.embed_tokens.weight", lambda x: x[rare].fill_(float("nan")))
    words = arguments(place, out / "m.nc", model=model, prompts=6)
    refused(capsys, out, words, "prompt 4, the input of layer 0: expected finite numbers, received nan in float32")


def test_a_model_without_gradients_leaves_nothing(place, tmp_path, out, capsys):
    words = arguments(place, out / "m.nc", model=broken(tmp_path / "m", "lm_head.weight", torch.Tensor.zero_))
    capsys.readouterr()  # how far the writing of the model was
    refused(capsys, out, words, "influence: expected gradients above 0, received none in float32")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_says_what_to_try(place, tmp_path, capsys, monkeypatch, error):
    monkeypatch.setattr(Instrument, "measure", raising(error))
    refused(
        capsys, tmp_path, arguments(place, tmp_path / "m.nc"), "memory: expected enough to measure", "try a smaller"
    )


def test_other_errors_are_not_taken_for_memory(place, tmp_path, monkeypatch):
    monkeypatch.setattr(Instrument, "measure", raising(RuntimeError("a defect")))
    with pytest.raises(RuntimeError, match="a defect"):
        main(arguments(place, tmp_path / "m.nc"))


def test_a_tokenizer_of_another_model_is_refused(place, tmp_path, out, capsys):
    words = arguments(place, out / "m.nc", model=save(tmp_path / "model", "llama", vocab_size=50))
    refused(capsys, out, words, "tokenizer: expected at most the model's 50 tokens, received 77")


def test_code_that_comes_with_a_model_is_not_run(place, tmp_path, out, capsys):
    foreign = shutil.copytree(place / "bloom", tmp_path / "foreign")
    config = json.loads((foreign / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}}
    (foreign / "config.json").write_text(json.dumps(config))
    (foreign / "code.py").write_text(f"open({str(out / 'ran')!r}, 'w')\n")
    refused(capsys, out, arguments(place, out / "m.nc", model=foreign), "--trust-remote-code, received one with code")


def test_the_hub_offline_is_refused_in_a_line(place, tmp_path, monkeypatch, capfd):
    """Also what libraries write past us is seen."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(SystemExit) as ended:
        main(arguments(place, tmp_path / "m.nc", model="someone/some-model"))
    out, err = capfd.readouterr()
    said = "posbias: model someone/some-model: expected"
    assert (ended.value.code, out) == (2, "") and err.startswith(said) and err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []

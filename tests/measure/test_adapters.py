"""Adapters of peft, alone and beside their base: merged as peft merges them, or refused in a line."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from measuring import make, prompts, save
from safetensors.torch import load_file, save_file

import posbias
from posbias.measure.instrument import Instrument
from posbias.measure.loading import Source

TAKES = {"dtype": torch.float32, "device": "cpu", "device_map": None}
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a base, a LoRA adapter of it as peft writes it, and both in one folder."""
    folder = tmp_path_factory.mktemp("adapters")
    save(folder / "base", "llama")
    fields = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "../base", "r": 4}
    fields |= {"lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    generator, tensors = torch.Generator().manual_seed(0), {}
    for t in range(3):
        for name, out in (("q_proj", 32), ("v_proj", 16)):
            key = f"base_model.model.model.layers.{t}.self_attn.{name}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(4, 32, generator=generator)
            tensors[f"{key}.lora_B.weight"] = torch.randn(out, 4, generator=generator) / 8
    shutil.copytree(folder / "base", folder / "beside")
    for one in ("adapter", "beside"):
        (folder / one).mkdir(exist_ok=True)
        (folder / one / CONFIG).write_text(json.dumps(fields))
        save_file(tensors, folder / one / WEIGHTS, metadata={"format": "pt"})
    return folder


def edited(folder, **changes):
    fields = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(fields | changes))


def kept(folder, keep):
    save_file({key: x for key, x in load_file(folder / WEIGHTS).items() if keep(key)}, folder / WEIGHTS)


@pytest.mark.parametrize("name", ["adapter", "beside"])
def test_without_peft_it_is_refused_and_its_base_is_not_measured_in_its_place(place, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        ValueError, match=r"^model .*: expected no adapter, or peft installed.*, received an adapter \(LORA\)$"
    ):
        posbias.open(place / name)
    assert posbias.open(place / "base").layers == 3


@pytest.mark.parametrize("name", ["adapter", "beside"])
def test_it_is_merged_and_part_of_the_name_and_the_version(place, name):
    pytest.importorskip("peft", reason="peft is not installed")
    source, base = Source(str(place / name)), Source(str(place / "base"))
    wanted, tensors = base.load_model(**TAKES), load_file(place / name / WEIGHTS)
    for key in [key for key in tensors if "lora_A" in key]:
        module = wanted.get_submodule(key.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        module.weight.data += 2 * tensors[key.replace("lora_A", "lora_B")] @ tensors[key]  # lora_alpha / r
    wanted, found = (Instrument(x).measure(prompts()).influence for x in (wanted, source.load_model(**TAKES)))
    assert torch.allclose(found, wanted, rtol=1e-5)
    assert not torch.allclose(found, Instrument(base.load_model(**TAKES)).measure(prompts()).influence, rtol=0.01)
    assert source.name() == ("adapter, adapter of base" if name == "adapter" else "beside, adapter")
    assert source.version() != base.version() and (name == "beside" or base.version() in source.version())
    assert len(source.load_tokenizer()) == len(base.load_tokenizer())


def test_what_it_does_to_a_measurement_is_that_of_its_merged_weights(place):
    pytest.importorskip("peft", reason="peft is not installed")
    alone, beside = (posbias.open(place / name).measure(prompts=2, length=16) for name in ("adapter", "beside"))
    np.testing.assert_allclose(alone.influence.values, beside.influence.values, rtol=1e-5)
    assert "branch_gain" in alone.results and "adapter of base" in repr(alone)


BROKEN = [
    ({"base_model_name_or_path": None}, None, "adapter_config.json: expected a base_model_name_or_path, received None"),
    (
        {"base_model_name_or_path": "./gone"},
        None,
        "expected an adapter whose base is there, received model ./gone: expected",
    ),
    ({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 2}, None, "adapter: expected one that changes weights"),
    ({"peft_type": "NONE_SUCH"}, None, "adapter_config.json: expected what peft reads, received"),
    ({"r": 8}, None, "adapter: expected one that fits its base, received"),
    ({"target_modules": ["w_1"]}, None, "adapter: expected one that fits its base, received"),
    ({}, lambda key: "layers.2" not in key, "adapter: expected the tensors of its base's layers, received"),
    ({"target_modules": ["q_proj"]}, None, "adapter: expected the tensors of its base's layers, received"),
    ({}, lambda key: False, "adapter: expected"),
]


@pytest.mark.parametrize(("changes", "keep", "message"), BROKEN)
def test_what_does_not_fit_is_refused(place, tmp_path, monkeypatch, changes, keep, message):
    pytest.importorskip("peft", reason="peft is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    shutil.copytree(place / "adapter", folder := tmp_path / "adapter")
    shutil.copytree(place / "base", tmp_path / "base")
    edited(folder, **changes)
    if keep is not None:
        kept(folder, keep)
    with pytest.raises(ValueError, match=r"^model ") as error:
        Source(str(folder)).load_model(**TAKES)
    assert message in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 500


def test_pickled_adapters_ask_for_trust(place, tmp_path):
    pytest.importorskip("peft", reason="peft is not installed")
    shutil.copytree(place / "beside", folder := tmp_path / "beside")
    torch.save(load_file(folder / WEIGHTS), folder / "adapter_model.bin")
    (folder / WEIGHTS).unlink()
    with pytest.raises(ValueError, match="received a pickled one; give --allow-pickle if you trust it"):
        Source(str(folder)).config()
    trusted = Source(str(folder), allow_pickle=True).load_model(**TAKES)
    assert torch.equal(trusted.lm_head.weight, make("llama").lm_head.weight)

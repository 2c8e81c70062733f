"""Models in memory: measured as their files are, given back as they were, and refused where files are needed."""

import json

import numpy as np
import pytest
import torch
from measuring import make, save, text
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

import posbias
from posbias.models.in_memory import InMemory

ASKED = {"texts": [text(20, seed) for seed in range(3)], "length": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("place") / "llama")


@pytest.fixture
def network(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch.compile's own
@pytest.mark.parametrize("wrap", [lambda x: x, torch.compile, torch.nn.DataParallel])
def test_it_is_what_its_files_are_and_is_given_back_as_it_was(folder, network, tokenizer, wrap):
    network.train()
    network.lm_head.requires_grad_(False)
    network.set_attn_implementation("eager")
    opened = posbias.open(wrap(network), tokenizer=tokenizer)
    found, there = opened.measure(**ASKED), posbias.open(folder).measure(**ASKED)
    assert set(found.results) == set(there.results)
    for name in there.results:
        np.testing.assert_allclose(found.results[name], there.results[name], rtol=1e-6, err_msg=name)
    assert all(module.training for module in network.modules()) and network.config._attn_implementation == "eager"
    assert {name for name, x in network.named_parameters() if not x.requires_grad} == {"lm_head.weight"}
    assert all(x.grad is None for x in network.parameters())
    assert repr(opened).startswith("llama (in memory): llama, 3 layers") and "weights as they are when" in repr(opened)
    assert (found.model, found.provenance["tokenizer"]) == ("llama (in memory)", "llama")


def test_its_version_follows_every_weight_and_the_configuration(network, tokenizer):
    source = InMemory(network=network, tokenizer=tokenizer)
    versions = [source.version(), source.version()]
    with torch.no_grad():
        network.model.layers[1].mlp.up_proj.weight[-1, -1] += 1e-3
    versions.append(source.version())
    network.config.rms_norm_eps = 0.5
    versions.append(source.version())
    versions.append(InMemory(network=network.to(torch.bfloat16)).version())
    assert versions[0].startswith("memory-") and versions[0] == versions[1] and len(set(versions)) == 4


def test_a_directory_is_a_tokenizer_and_random_tokens_need_none(folder, network):
    assert posbias.open(network, tokenizer=folder).measure(**ASKED).provenance["tokenizer"] == "llama"
    random = posbias.open(network).measure(prompts=2, length=8, rule="random", quantities="influence")
    assert [random.provenance[x] for x in ("tokenizer", "special_tokens")] == ["none", "False"]
    where = {"device": torch.device("cpu"), "dtype": torch.bfloat16}
    low = posbias.open(network.to(torch.bfloat16)).measure(2, 8, rule="random", quantities="influence", **where)
    assert low.provenance["dtype"] == "bfloat16" and json.loads(low.provenance["self_check"])["bits"] == 16


def test_adapters_are_part_of_it(network, tokenizer):
    import peft

    before = posbias.open(network, tokenizer=tokenizer).measure(**ASKED, quantities="influence")
    lora = peft.get_peft_model(network, peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    found = posbias.open(lora, tokenizer=tokenizer).measure(**ASKED)
    assert "branch_gain" not in found.results
    with pytest.raises(ValueError, match="quantities: expected none of branches beside adapters"):
        posbias.open(lora, tokenizer=tokenizer).measure(**ASKED, quantities="branches")
    lora.merge_adapter()
    posbias.open(lora, tokenizer=tokenizer).measure(**ASKED, quantities="branches")  # is not refused
    merged = posbias.open(lora.unload(), tokenizer=tokenizer).measure(**ASKED, quantities="kernels")
    np.testing.assert_allclose(found.influence, merged.influence, rtol=1e-4)
    np.testing.assert_allclose(found.results["attention"], merged.results["attention"], atol=1e-5)
    assert np.abs(found.influence - before.influence).max() > 1e-3
    added = peft.get_peft_model(make("llama"), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(ValueError, match="model: expected adapters that change weights, not ones that add tokens"):
        posbias.open(added)


@pytest.mark.parametrize(
    ("opening", "asked", "message"),
    [
        ({"revision": "main"}, {}, "revision: expected none with a model in memory, received main"),
        ({"tokenizer": [5]}, {}, "tokenizer: expected one of transformers, a directory or an id, received list"),
        ({"tokenizer": len}, {}, "tokenizer: expected one of transformers, a directory or an id, received builtin"),
        ({"tokenizer": None}, {}, "tokenizer: expected .*, for prompts that are cut from text, received none"),
        ({}, {"dtype": "bfloat16"}, "dtype: expected float32, as the model in memory has it, received bfloat16"),
        ({}, {"device": "cuda"}, "device: expected cpu, as the model in memory has it, received cuda"),
        ({}, {"device_map": "auto"}, "device_map: expected none, as the model in memory has it, received auto"),
    ],
)
def test_what_needs_files_is_refused(network, tokenizer, opening, asked, message):
    with pytest.raises(ValueError, match=message):
        posbias.open(network, **{"tokenizer": tokenizer, **opening}).measure(**ASKED, **asked)


def test_a_model_that_was_never_saved_has_the_name_of_its_class():
    assert InMemory(network=make("gpt2")).name() == "GPT2LMHeadModel (in memory)"


def test_what_is_no_causal_model_is_refused(folder, network, tokenizer):
    with pytest.raises(ValueError, match="model: expected a causal language model of transformers, received Linear"):
        posbias.open(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="expected a causal language model of transformers, received LlamaModel"):
        posbias.open(AutoModel.from_pretrained(folder))
    with pytest.raises(ValueError, match="model: expected numbers in float32, bfloat16, float16, received float64"):
        posbias.open(network.double())
    network.float().config.position_bias = {"kind": "log", "alpha": 1.0}
    with pytest.raises(ValueError, match="model: position_bias: expected none; a bias is given beside a model"):
        posbias.open(network)
    with pytest.raises(ValueError, match="tokenizer: expected a path or a name, received .*for a model in memory"):
        posbias.open(folder, tokenizer=tokenizer)

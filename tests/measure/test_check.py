"""Before a measurement: right models agree with themselves in every number format, and what is wrong is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from measuring import CONFIGS, arguments, make, prompts, refused, save, write_documents
from torch import nn
from transformers.models.llama import modeling_llama

import posbias
from posbias.measure import check
from posbias.measure.instrument import Instrument
from posbias.models.families import family_of
from posbias.models.hooks import hooked, rereturned, returned

ROWS = (
    "bloom mpt falcon-alibi falcon-new llama mistral qwen3 gpt_neox gptj gpt2 opt opt-projected gemma2 phi olmo2 "
    "granite cohere mixtral deepseek_v3 gpt_oss"
).split()
"""One row of each mechanism."""


def apart(model, n=24):
    return json.loads(check.check_instrument(Instrument(model), prompts(1, n)[0]))


@pytest.mark.parametrize("name", [name for name in ROWS if name in CONFIGS])
def test_what_is_right_is_a_fifth_of_what_is_refused(name):
    model = make(name)
    before = {key: (id(x), x.dtype) for key, x in model.named_parameters()}
    instrument = Instrument(model)
    found = [json.loads(check.check_instrument(instrument, ids)) for ids in prompts(5, 24)]
    assert all(x["bits"] == 32 and 18 <= x["tokens"] <= 24 for x in found)
    assert all(x["logits"] < check.LOGITS / 5 and x["sums"] < check.SUMS / 5 for x in found)
    # where a derivative happens to be small, rounding is a larger part of it: one prompt in 400 is over a fifth
    assert np.median([x["gradient"] for x in found]) < check.GRADIENT / 5
    assert {key: (id(x), x.dtype) for key, x in model.named_parameters()} == before


@pytest.mark.parametrize("name", ["llama", "bloom", "gemma2", "mixtral"])
def test_in_16_bits_what_is_right_is_let_pass(name):
    found = apart(make(name, torch.bfloat16))
    assert found["bits"] == 16 and found["gradient"] is None


@pytest.mark.parametrize("name", ["llama", "mistral", "falcon-alibi", "mixtral", "deepseek_v3", "gemma3"])
def test_fused_attention_too(name):
    found = apart(make(name, attention="sdpa"))
    assert found["logits"] < check.LOGITS / 5 and found["gradient"] < check.GRADIENT / 5


def test_fused_attention_that_differs_from_eager_is_refused(monkeypatch):
    model, right = make("llama", attention="sdpa"), modeling_llama.eager_attention_forward
    assert apart(model)["logits"] < check.LOGITS / 5

    def wrong(*args, scaling, **more):
        return right(*args, scaling=1.2 * scaling, **more)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", wrong)
    with pytest.raises(ValueError, match=r"^self-check of the logits: .* as llama computes fused attention; try --at"):
        apart(model)


def test_experts_between_which_rounding_decides_are_those_of_the_other_pass():
    """Of two that are equally good a rounding chooses one; the second pass is given what the first one chose."""
    x = torch.tensor([[3.0, 3.0, 1.0], [0.0, 2.0, 2.0]])
    with (first := check._FixedChoice(1)):
        x.topk(1)
    with check._FixedChoice(2, first.experts):
        values, chosen = (x[:1] + torch.tensor([[[0.0, 1e-6, 0.0]]] * 2)).topk(1)
    assert chosen.flatten().tolist() == first.experts[0][:1].flatten().tolist() * 2 and (values == 3).all()


class Stop(torch.autograd.Function):
    """Let numbers through, and no gradient."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return torch.zeros_like(gradient)


def stopped(module, args, output):
    return rereturned(output, Stop.apply(returned(output)))


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral"])
@pytest.mark.parametrize("where", ["q", "attention of a layer"])
def test_a_gradient_that_misses_a_part_is_refused(name, where):
    model = make(name)
    layer = family_of(model.config).layers(model)[1]
    attention = family_of(model.config).attention_of(layer)
    part = attention if where != "q" else getattr(attention, "q_proj", None) or attention.c_attn
    with pytest.raises(
        ValueError, match=r"^self-check of the gradient: expected finite .* within 5%, received .* off$"
    ):
        with hooked([], [(part, stopped)]):
            apart(model)


MULTIPLIED = {"multiplier": lambda layer: 1.01}


@pytest.mark.parametrize(
    ("name", "change"),
    [("llama", MULTIPLIED), ("phi", MULTIPLIED), ("llama", {"output": "mlp"}), ("bloom", {"output": "mlp"})],
)
def test_a_row_that_finds_another_attention_output_is_refused(name, change):
    instrument = Instrument(make(name))
    instrument.family = replace(instrument.family, **change)
    with pytest.raises(
        ValueError, match=rf"^self-check of layer 0: expected x \+ a inside .* {name} finds it, received"
    ):
        check.check_instrument(instrument, prompts(1, 12)[0])


def test_a_scale_that_changes_the_model_is_refused():
    """Where a row says the scale to our attention function: Falcon's own tells it to nobody."""
    instrument = Instrument(make("falcon-alibi"))
    instrument.family = replace(instrument.family, scale=lambda attention: 0.1)
    with pytest.raises(ValueError, match=r"^self-check of the logits: expected the model's own within 0.1%"):
        check.check_instrument(instrument, prompts(1, 12)[0])


def test_where_rounding_hides_differences_a_token_without_gradient_is_still_seen(monkeypatch):
    """As in models of 8 bits, where what layers are given is rounded to codes."""
    monkeypatch.setattr(check, "HIDDEN", 0.0)
    model = make("llama")
    assert apart(model)["gradient"] is None
    with pytest.raises(ValueError, match="self-check of the gradient"), hooked([], [(model.model.layers[0], stopped)]):
        apart(model)


def test_it_costs_no_more_than_two_batches_of_one_pass():
    """Of eight prompts each; a pass back counts twice."""
    model, rows = make("llama"), []
    with hooked([(model.model.layers[0], lambda module, args, kwargs: rows.append(len(args[0])))]):
        apart(model)
    assert sum(rows) + 2 <= 12


def test_it_is_in_the_file_and_a_failure_leaves_none(tmp_path, capsys, monkeypatch):
    save(tmp_path / "in" / "bloom", "bloom")
    place = write_documents(tmp_path / "in" / "d.jsonl", [60] * 4).parent
    found = posbias.open(place / "bloom").measure(
        prompts=2, length=16, quantities="mixing,influence", dataset=place / "d.jsonl"
    )
    assert json.loads(found.provenance["self_check"])["gradient"] < check.GRADIENT
    monkeypatch.setattr(check, "GRADIENT", 0.0)
    (out := tmp_path / "out").mkdir()
    capsys.readouterr()
    refused(capsys, out, arguments(place, out / "m.nc", prompts=2), "self-check of the gradient: expected")


class Packs(nn.Linear):
    """Do as a 4-bit layer of bitsandbytes on a CPU: the first pass without gradient packs its weights."""

    support_avx512bf16_for_cpu = True
    packed = False

    def forward(self, x):
        self.packed |= self.support_avx512bf16_for_cpu and not self.training and not x.requires_grad
        return super().forward(x.detach() if self.packed else x)


def packing(model):
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and "layers" in name:
            module.__class__ = Packs
    return model


def test_weights_that_are_packed_let_no_gradient_through_and_are_kept_from_it():
    from posbias.models.weights import let_gradients_pass

    wanted = Instrument(make("llama")).measure(prompts()).influence
    with pytest.raises(ValueError, match="self-check of the gradient"):
        apart(packing(make("llama")))
    kept = packing(make("llama"))
    let_gradients_pass(kept)
    assert apart(kept)["gradient"] < check.GRADIENT / 5
    assert torch.allclose(Instrument(kept).measure(prompts()).influence, wanted, rtol=1e-5)


def test_torchs_own_devices_and_formats_are_taken():
    model = posbias.open("reference/bloom-8")
    asked = {"prompts": 2, "length": 16, "quantities": "influence", "dataset": "builtin"}
    found = model.measure(**asked, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert (found.provenance["device"], found.provenance["dtype"]) == ("cpu", "bfloat16")
    assert json.loads(found.provenance["self_check"])["bits"] == 32
    with pytest.raises(ValueError, match="dtype: expected float32, bfloat16 or float16, received 'int8'"):
        model.measure(**asked, dtype=torch.int8)

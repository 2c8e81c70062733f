"""Quantised weights: measured where that is right; what would be read from their codes is left out, with the reason."""

import warnings

import numpy as np
import pytest
import torch
from measuring import make, save
from torch import nn

import posbias
from posbias.measure.branches import no_branches
from posbias.measure.instrument import Instrument
from posbias.measure.plain import PlainInstrument

REASON = "attention weights that are codes, or have adapters beside them"


class Codes(nn.Module):
    """Multiply by integers and their scale, as 8-bit layers do."""

    def __init__(self, linear):
        super().__init__()
        self.scale = linear.weight.abs().max() / 127
        self.weight = nn.Parameter((linear.weight / self.scale).round().char(), False)

    def forward(self, x):
        return x @ (self.weight.to(x) * self.scale).mT


class Beside(nn.Module):
    """Show the weight of the base alone, as peft's layers do."""

    def __init__(self, linear):
        super().__init__()
        self.base_layer = linear

    weight = property(lambda self: self.base_layer.weight)

    def forward(self, x):
        return 2 * self.base_layer(x)


@pytest.mark.parametrize("kind", [Codes, Beside])
@pytest.mark.parametrize("part", ["v_proj", "o_proj"])
def test_the_law_of_untrained_networks_is_not_read_from_what_is_no_weight(kind, part):
    model = make("llama")
    assert no_branches(Instrument(model)) is None
    attention = model.model.layers[2].self_attn
    setattr(attention, part, kind(getattr(attention, part)))
    assert no_branches(Instrument(model)) == f"{REASON} ({kind.__name__})"


def test_what_is_left_out_is_said(tmp_path, undrawn):
    model = make("llama")
    for layer in model.model.layers:
        layer.self_attn.v_proj = Codes(layer.self_attn.v_proj)
    found = posbias.open(model).measure(prompts=2, length=8, rule="random")
    said = f"none, of a model with {REASON} (Codes)"
    assert "branch_gain" not in found.results and f"head gains: {said}\n" in repr(found)
    assert f"none of a model with {REASON} (Codes)" in found.report(tmp_path / "r.html").read_text()


@pytest.mark.parametrize("bits", [4, 8])
def test_layers_of_bitsandbytes(tmp_path, bits):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    sizes = {"hidden_size": 128, "intermediate_size": 256}
    base = save(tmp_path / "base", **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
        network = AutoModelForCausalLM.from_pretrained(base, quantization_config=how, dtype=torch.float32)
        save(tmp_path / "coded", **sizes)
        network.save_pretrained(tmp_path / "coded")
        found = posbias.open(tmp_path / "coded").measure(prompts=2, length=32)
        alone = posbias.open(tmp_path / "coded").measure(prompts=2, length=32, quantities="mixing", batch_size=1)
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "coded", dtype=torch.float32)
        ids = torch.from_numpy(alone.results["tokens"].values.astype(np.int64))
        own = [PlainInstrument(plain).measure(row[None]).influence for row in ids]  # autograd through the whole
        wanted = posbias.open(base).measure(prompts=2, length=32)
    assert REASON in found.provenance["no_branches"] and "branch_gain" not in found.results
    assert np.allclose(alone.results["influence_prompts"], np.concatenate(own), rtol=1e-4)
    assert 0.5 * np.abs(found.influence.values - wanted.influence.values).sum() < (0.4 if bits == 4 else 0.05)

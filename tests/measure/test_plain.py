"""Influence alone: of models whose families have no row, hybrids and state-space models among them."""

import numpy as np
import pytest
import torch
from measuring import CONFIGS, LLAMA, VOCABULARY, N, make, prompts, save, write_documents
from transformers import AutoConfig, AutoModelForCausalLM, set_seed

import posbias
from posbias.measure.check import check_instrument
from posbias.measure.instrument import Instrument
from posbias.measure.plain import PlainInstrument
from posbias.models.families import FAMILIES
from posbias.models.hooks import hooked

ROWLESS = {
    "persimmon": LLAMA,
    "mamba": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3, "state_size": 4},
    "bamba": {**LLAMA, "mamba_n_heads": 8, "mamba_d_state": 8, "attn_layer_indices": [1]},
    "jamba": {**LLAMA, "num_experts": 2, "mamba_d_state": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
}
"""model_type → settings of a tiny model; none of them may have a row."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with texts and a model of each family, all with one tokenizer."""
    folder = tmp_path_factory.mktemp("plain")
    write_documents(folder / "d.jsonl", [40] * 6)
    for kind, fields in ROWLESS.items():
        save(folder / kind)
        (folder / kind / "model.safetensors").unlink()
        set_seed(0)
        AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **fields)).save_pretrained(folder / kind)
    return folder


@pytest.mark.parametrize("name", ["bloom", "llama", "gpt2", "opt-projected"])
def test_influence_is_that_of_the_instrument(name):
    assert name in CONFIGS
    one, two = (kind(make(name)).measure(prompts()) for kind in (PlainInstrument, Instrument))
    for field in ("influence", "influence_signed", "probability"):
        assert torch.allclose(getattr(one, field), getattr(two, field), rtol=1e-4, atol=1e-6), field


@pytest.mark.parametrize("kind", ROWLESS)
def test_a_model_without_a_row_has_influence_alone(kind, place, tmp_path, undrawn):
    assert kind not in FAMILIES
    model = posbias.open(place / kind)
    assert "no row for this family" in repr(model)
    found = model.measure(4, N, place / "d.jsonl", quantities="influence")
    assert not {"lambda_frobenius", "slopes", "window"} & {*found.results} and found.variants == ()
    plain = PlainInstrument(AutoModelForCausalLM.from_pretrained(place / kind))
    own = plain.measure(torch.from_numpy(found.results["tokens"].values.astype(np.int64))).influence
    assert np.allclose(found.results["influence_prompts"], own, rtol=1e-5)
    again = posbias.load(found.save(tmp_path / "m.nc"))
    assert np.array_equal(again.influence.values, found.influence.values)
    assert [*again.compare()] == ["last", "even", "power-law"], "which know nothing of a model"
    assert found.described in repr(found) and "influence alone" in repr(found)
    page = found.report(tmp_path / "r.html").read_text()
    assert "The file has influence alone" in page and "a family without a row" in page
    for asked in ({}, {"quantities": "mixing,influence"}, {"quantities": "influence", "condition": "sharper:2"}):
        with pytest.raises(ValueError, match="^architecture: expected a family with a row, received ") as refused:
            model.measure(4, N, place / "d.jsonl", **asked)
        assert "-q influence" in str(refused.value)
    with pytest.raises(ValueError, match="^mixing: expected a measurement of mixing"):
        _ = found.mixing
    with pytest.raises(ValueError, match="^variant: expected none, of a measurement of influence alone, received lay"):
        found.rollout("b")


def test_a_model_that_looks_at_tokens_beside_embeddings_is_refused():
    """As Gemma 3n does: each layer embeds the tokens once more."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("persimmon", **LLAMA)).eval()

    def looks(module, args, kwargs):
        if kwargs.get("input_ids") is not None:
            return (), {"inputs_embeds": 2 * module.get_input_embeddings()(kwargs["input_ids"])}

    with hooked([(model, looks)]), pytest.raises(ValueError, match="is given embeddings in place of tokens$"):
        check_instrument(PlainInstrument(model), prompts()[0])


def test_a_model_that_takes_no_embeddings_is_refused():
    class Deaf(torch.nn.Module):
        config = AutoConfig.for_model("persimmon", **LLAMA)
        get_input_embeddings = make("llama").get_input_embeddings

        def forward(self, input_ids):
            """Take ids alone."""

    with pytest.raises(ValueError, match="^architecture: expected a model that runs on inputs_embeds, .* persimmon"):
        PlainInstrument(Deaf())

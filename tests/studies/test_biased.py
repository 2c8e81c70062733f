"""Networks that are given position biases: parity by hand, what is measured of them, and what they are called."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from biased import FOUR, LAYERS, described, first_layer, heads, implementations, logits_of
from measuring import N, make, save, settings, write_documents

from posbias import alibi_slopes
from posbias.measure.corpus import Corpus
from posbias.measure.instrument import Instrument
from posbias.measure.positions import read_positions
from posbias.measure.results import read_results, write_results
from posbias.measure.run import measure
from posbias.models.families import FAMILIES, family_of, window
from posbias.predict import predict
from posbias.rollout import masks
from posbias.rollout.influence import influence_profile
from posbias.rollout.kernels import attention_kernel, mix_heads
from posbias.rollout.position_bias import layered_biases
from posbias.rollout.untrained import untrained_profile
from posbias.settings import Settings
from studies.biased import Biased, about, attach_biases
from studies.interventions import replaced_rope
from studies.rotation import NO_ROTATION
from studies.sizes import Sized, Untrained
from studies.summaries import summarise


def given(name, description=None, **options):
    """Return a tiny model with biases in the place of its own ALiBi, beside other positions."""
    model = make(name, position_bias=described(name) if description is None else description, **options)
    attach_biases(model)
    return model


@pytest.mark.parametrize("name", ["bloom", "mpt", "llama", "mistral", "gpt2"])
def test_weights_are_those_of_content_and_given_biases(name):
    """The first layer has the same content with and without biases; its weights follow by a softmax in 64 bits."""
    config, rows = settings(name), layered_biases(described(name), 3, heads(name))[0]
    content, plain = first_layer(Instrument(make(name)))
    wide = window(family_of(config).attention_of(family_of(config).layers(make(name))[0]), config)
    mask = masks.sliding_window(wide) if wide else masks.causal()
    seen = mask.matrix(N)
    for attention in implementations(name):
        own, weights = first_layer(Instrument(given(name, attention=attention)))
        for h, bias in enumerate(rows):
            assert np.abs(own[:, h][..., seen] - content[:, h][..., seen]).max() < 1e-5  # also of keys that it hides
            expected = np.stack([attention_kernel(z[h] + bias.logits(N), mask) for z in np.where(seen, content, 0.0)])
            assert np.abs(weights[:, h] - expected).max() < 3e-6, (attention, h)
            assert np.abs(plain[:, h] - expected).max() > 1e-3


@pytest.mark.parametrize(("name", "most"), [("bloom-6-heads", 3e-6), ("mpt", 1e-5), ("mpt-6-heads", 1e-5)])
def test_alibi_of_its_own_slopes_is_the_native_model(name, most):
    slopes = [{"kind": "alibi", "slope": float(m)} for m in alibi_slopes(heads(name))]
    native = logits_of(make(name, attention=implementations(name)[-1]))
    for attention in implementations(name):
        assert (logits_of(given(name, slopes, attention=attention)) - native).abs().max() < most
        assert (logits_of(given(name, {"kind": "none"}, attention=attention)) - native).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "changes", "kind"),
    [("bloom", {}, "given"), ("mpt", {}, "given"), ("llama", {}, "rotary and given")]
    + [("llama", NO_ROTATION, "given"), ("gpt2", {}, "learned and given")],
)
def test_attributes_say_what_is_given(name, changes, kind):
    model = given(name, LAYERS, **changes)
    assert about(model.config)["position"] == kind
    assert json.loads(about(model.config)["position_bias"]) == LAYERS
    assert about(make(name, **changes).config) == ({"position": "none"} if changes else {})
    rows = np.stack([bias.logits(N)[-1] for bias in layered_biases(FOUR, 3)[0]])
    assert np.allclose(read_positions(Instrument(model), N).bias, rows - rows[:, -1:], rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return measurements of tiny models with biases of their own in every layer: name → path."""
    root = tmp_path_factory.mktemp("given")
    documents = write_documents(root / "d.jsonl", [30] * 8)
    for name in ("bloom", "llama", "mistral"):
        source = Biased(str(save(root / name, name, position_bias=LAYERS)))
        found = measure(Settings(source, Corpus(str(documents)), prompts=4, length=16, batch_size=2))
        write_results(root / f"{name}.nc", found)
    return {name: root / f"{name}.nc" for name in ("bloom", "llama", "mistral")}


def kernel_of(results, t, h, variant):
    """Return a head's kernel from its description, as a matrix."""
    z = layered_biases(LAYERS, 3)[t][h].logits(16)
    if variant == "c":
        z = z + np.eye(16) * float(results.content_diagonal[t, h] - results.content_offdiagonal[t, h])
    mask = masks.sliding_window(5) if results.attrs["model"] == "mistral" else masks.causal()
    return attention_kernel(z, mask)


@pytest.mark.parametrize("name", ["bloom", "llama", "mistral"])
def test_rollouts_have_the_given_kernels_layer_by_layer(measured, name):
    results = read_results(measured[name])
    assert results.attrs["position"] == ("given" if name == "bloom" else "rotary and given")
    assert json.loads(results.attrs["position_bias"]) == LAYERS[:2] + [LAYERS[2]]
    for variant in "abc":
        A = np.stack([mix_heads(np.stack([kernel_of(results, t, h, variant) for h in range(4)])) for t in range(3)])
        lambda_ = np.ones(3) if variant == "a" else results.lambda_frobenius.values
        expected = influence_profile(A, lambda_)
        assert np.abs(predict(results, variant) - expected).max() < 1e-12, variant
    A = np.stack([np.stack([kernel_of(results, t, h, "b") for h in range(4)]) for t in range(3)])
    numbers = {"scales": results.branch_scale, "outputs": results.output_scale, "steps": results.step_gain}
    numbers = {key: x.values.astype(float) for key, x in numbers.items()}
    law = untrained_profile(A, results.branch_gain.values, **numbers, parallel=results.parallel.values)
    assert np.abs(predict(results, "untrained") - law).max() < 1e-9
    without = predict(results.drop_attrs(deep=False).assign_attrs(length=16), "b")
    assert np.abs(without - predict(results, "b")).max() > 1e-3
    assert (predict(summarise(results), "b") == predict(results, "b")).all()


@pytest.mark.parametrize("family", ["bloom", "mpt", "llama", "gemma2"])
def test_a_network_is_built_with_biases_alone(family, tmp_path):
    """Rotation is off as if it were taken out, ALiBi is replaced, and weights are the same bits as without."""
    settings(family).save_pretrained(tmp_path)
    source = Untrained(str(tmp_path), position_bias=described(family), spread=0.2)
    model = source.load_model(torch.float32, "cpu", None)
    plain = replace(source, position_bias=None).load_model(torch.float32, "cpu", None)
    assert all(torch.equal(x, y) for x, y in zip(model.state_dict().values(), plain.state_dict().values(), strict=True))
    instrument, logits = Instrument(model), logits_of(model)
    assert source.about()["position"] == "given" and (logits - logits_of(plain)).abs().max() > 1e-4
    if FAMILIES[family].position_of(model.config) == "rotary":
        with replaced_rope(instrument, "identity"):
            torch.testing.assert_close(logits_of(model), logits)
    assert source.name().endswith(", given biases (untrained)")
    assert source.version() != replace(source, position_bias=None).version()


def test_spread_is_the_standard_deviation_of_the_weights():
    model = Sized("llama-12x256", spread=0.0625).load_model(torch.float32, "cpu", None)
    assert abs(model.model.layers[3].self_attn.q_proj.weight.std().item() - 0.0625) < 0.001

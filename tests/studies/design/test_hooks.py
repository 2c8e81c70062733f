"""Remedies that act inside contexts: what their formulas say, and the model as before."""

import numpy as np
import pytest
import torch
from measuring import make, prompts

from posbias.measure.instrument import Instrument
from studies.design.hooks import added_logits, calibration_logits, distance_ratios, scaled_channel, scaled_rope
from studies.interventions import replaced_rope
from studies.rotation import rope_logits

ALL_HEADS = {"num_key_value_heads": 4}


def left(model):
    return [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


def seen(instrument, ids, what="logits"):
    """Return what the softmax was given or gave, (T, B, H, n, n), hidden logits as 0."""
    found = {}

    def observe(reading):
        x = getattr(reading, what)
        found[reading.layer] = torch.where(reading.allowed, x, 0.0).double().numpy()

    instrument.forward(ids, observe)
    return np.stack([found[t] for t in range(instrument.T)])


CONTEXTS = {
    "scales": lambda instrument: scaled_rope(instrument, np.linspace(1.2, 1.8, 12).reshape(3, 4)),
    "channel": lambda instrument: scaled_channel(instrument, 5, -1.0, [1]),
    "logits": lambda instrument: added_logits(instrument, np.random.default_rng(0).normal(size=(3, 4, 12, 12))),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_remedy_acts_inside_its_context_and_leaves_the_model_as_it_was(name):
    model, ids = make("llama", **ALL_HEADS), prompts()
    instrument = Instrument(model)
    weights = {key: x.clone() for key, x in model.state_dict().items()}
    before, influence = seen(instrument, ids), instrument.measure(ids).influence
    with pytest.raises(RuntimeError, match="stop"), CONTEXTS[name](instrument):
        assert not np.allclose(seen(instrument, ids), before)
        assert not torch.allclose(instrument.measure(ids).influence, influence)
        raise RuntimeError("stop")
    assert not left(model)
    np.testing.assert_allclose(seen(instrument, ids), before, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(x, weights[key]) for key, x in model.state_dict().items())


@pytest.mark.parametrize(("keys", "own"), [(4, [1.0, 1.5, 2.0, 4.0]), (2, [1.5, 1.5, 4.0, 4.0])])
def test_scales_of_heads_by_hand(keys, own):
    """Each head's logits are those of the model's queries and keys, turned by position / scale."""
    model, ids = make("llama", num_key_value_heads=keys), prompts(B=1)
    instrument = Instrument(model)
    attention = instrument.attentions[0]
    x = instrument.layers[0].input_layernorm(instrument.embeddings(ids))
    q, k = (p(x)[0].unflatten(-1, (-1, 8)).detach().double().numpy() for p in (attention.q_proj, attention.k_proj))
    theta = model.model.rotary_emb.inv_freq.double().numpy()
    order = np.arange(8).reshape(2, -1).T.ravel()  # pairs in halves
    with scaled_rope(instrument, np.array([own] * 3)):
        logits = seen(instrument, ids)[0, 0]
    for h, s in enumerate(own):
        turned = rope_logits(q[:, h][:, order], k[:, h * keys // 4][:, order], theta / s)
        assert np.allclose(logits[h], np.tril(attention.scaling * turned), atol=1e-4)


def test_a_scaled_channel_by_hand():
    """Queries and keys of the layer read the scaled channel; the values do not."""
    instrument, ids = Instrument(make("llama", **ALL_HEADS)), prompts(B=1)
    attention, values = instrument.attentions[0], []
    x = instrument.layers[0].input_layernorm(instrument.embeddings(ids)).detach()
    scaled = x.clone()
    scaled[..., 3] *= -0.5
    q, k = (p(scaled)[0].unflatten(-1, (4, -1)).detach().double() for p in (attention.q_proj, attention.k_proj))
    attention.v_proj.register_forward_hook(lambda module, args, output: values.append(output))
    with scaled_channel(instrument, 3, -0.5, [0]), replaced_rope(instrument, "identity"):
        logits = seen(instrument, ids)
    expected = attention.scaling * torch.einsum("ihd,jhd->hij", q, k).tril().numpy()
    assert np.allclose(logits[0, 0], expected, atol=1e-4)
    assert torch.allclose(values[0], attention.v_proj(x))


@pytest.mark.parametrize("name", ["bloom", "mistral"])
def test_added_logits_are_added_where_the_mask_allows(name):
    """In the first layer alone: what it returns changes the others. A sliding window stays."""
    instrument, ids = Instrument(make(name)), prompts()
    plain, weights = seen(instrument, ids)[0], seen(instrument, ids, "probabilities")[0]
    z = np.random.default_rng(1).normal(size=(3, 4, 12, 12)).astype(np.float32)
    with added_logits(instrument, z):
        found, after = seen(instrument, ids)[0], seen(instrument, ids, "probabilities")[0]
    allowed = plain[0, 0] != 0
    assert np.allclose(np.where(allowed, found - plain, 0), np.where(allowed, z[0], 0), atol=1e-3)
    expected = weights * np.exp(z[0])
    assert np.allclose(after, expected / expected.sum(-1, keepdims=True), atol=1e-4)


def test_calibrated_attention_by_hand():
    """Where attention is a function of distance, and of the query for key 0, calibrated attention is uniform."""
    n = 6
    shape = np.tril(0.5 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / np.arange(1, n + 1)[:, None])
    shape[:, 0] = 0.9 / np.arange(1, n + 1)
    near, first = distance_ratios(1e9 * shape[None, None], 10**9)
    assert np.allclose(near[0, 0, :-1], 0.5 ** np.arange(n - 1)) and np.allclose(first, 0.9)
    logits = np.log(np.maximum(shape, 1e-300)) + calibration_logits(near, first)[0, 0]
    A = np.exp(logits) * np.tri(n)
    assert np.allclose(A / A.sum(1, keepdims=True), np.tri(n) / np.arange(1, n + 1)[:, None])
    none = distance_ratios(np.zeros((1, 1, n, n)), 3)
    assert none[0].min() > 0 and none[1] == pytest.approx(0.25)  # one uniform pair beside three that are 0


def test_a_model_without_rotations_is_refused():
    with pytest.raises(ValueError, match="model: expected one with rotary"):
        scaled_rope(Instrument(make("bloom")), np.ones((3, 4))).__enter__()

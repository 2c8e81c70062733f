"""Mean queries and keys that are read of models: without content their kernels are the models' own."""

import numpy as np
import pytest
import torch
from measuring import N, make, prompts

from posbias.measure.instrument import Instrument
from studies.ladder.rotary import read_rotary_means
from studies.ladder.rotary_kernels import distance_kernels

YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8}
MODELS = {
    "llama": {},
    "llama, ungrouped": {"num_key_value_heads": 4},
    "llama, biased": {"attention_bias": True},
    "llama, base": {"rope_parameters": {"rope_type": "default", "rope_theta": 43872.9}},
    "llama, NTK": {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0}},
    "llama, YaRN": {"rope_parameters": YARN},
    **dict.fromkeys(("mistral", "qwen2", "qwen3", "gemma", "phi"), {}),
}
"""Most share keys; NTK scales angles beyond 8 tokens; a window of 5; YaRN scales features; half of Phi's turn."""


def model(name):
    changes = dict(MODELS[name])
    if changes.get("rope_parameters", {}).get("rope_type") == "dynamic":
        changes["max_position_embeddings"] = 8
    return Instrument(make(name.split(",")[0], **changes))


@pytest.mark.parametrize("name", MODELS)
def test_without_content_the_kernel_is_the_model(name):
    """One token everywhere: queries and keys are constant in every layer, and so exact."""
    ours, ids = model(name), torch.full((1, N), 5)
    seen = []
    ours.forward(ids, lambda r: seen.append((r.probabilities[0].clone(), r.allowed.clone())))
    means = read_rotary_means(ours, ids.numpy())
    for (A, allowed), logits in zip(seen, means.logits(N), strict=True):
        kernel = distance_kernels(logits, allowed.numpy())
        assert np.allclose(kernel, A.numpy(), atol=2e-5)
        assert abs(kernel - distance_kernels(np.zeros_like(logits), allowed.numpy())).max() > 0.05
    assert not any(m._forward_hooks for m in ours.model.modules())


def test_means_are_those_of_the_first_layer():
    """Queries and keys of the first layer, by another route; features 0 and 4, 1 and 5, ... turn together."""
    ours, ids = Instrument(make("llama")), prompts(B=5)
    found = read_rotary_means(ours, ids.numpy(), batch_size=2)
    layer = ours.layers[0]
    with torch.no_grad():
        x = layer.input_layernorm(ours.embeddings(ids))
        q, k = (p(x).unflatten(-1, (-1, 8)) for p in (layer.self_attn.q_proj, layer.self_attn.k_proj))
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    q, k = q.numpy()[..., order].astype(float), k.numpy()[..., [0, 0, 1, 1], :][..., order].astype(float)
    assert np.allclose(found.query[0], q.mean((0, 1)), atol=1e-5)
    assert np.allclose(found.key[0], k.mean((0, 1)), atol=1e-5) and not np.allclose(found.key[0], k[:, 1:].mean((0, 1)))
    assert np.allclose(found.theta, 10000.0 ** (-np.arange(4) / 4)) and np.allclose(found.scale, 8**-0.5)


def test_models_that_cannot_be_read():
    ids = prompts().numpy()
    for name in ("gpt2", "bloom", "opt"):
        with pytest.raises(ValueError, match="model: expected one with rotary positions"):
            read_rotary_means(Instrument(make(name)), ids)
    with pytest.raises(ValueError, match="not enough values"):
        read_rotary_means(Instrument(make("gptj")), ids)
    for name in ("gpt_neox", "falcon-rotary"):
        with pytest.raises(ValueError, match="model: expected one with modules for queries and keys before"):
            read_rotary_means(Instrument(make(name)), ids)
    with pytest.raises(ValueError, match="model: expected logits without a soft cap, received 5.0"):
        read_rotary_means(Instrument(make("gemma2")), ids)


def test_a_model_that_does_something_else_is_noticed():
    """Queries that are changed after their projection, as Phi's may be by a norm."""
    ours = Instrument(make("phi", qk_layernorm=True))
    with pytest.raises(ValueError, match="model: expected logits that are scaled products .* others in layer 0"):
        read_rotary_means(ours, prompts().numpy())
    assert not any(m._forward_hooks for m in ours.model.modules())

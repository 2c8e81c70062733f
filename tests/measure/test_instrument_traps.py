"""Traps for the instrument: each was met, and each comes back as a failing test if the code forgets it."""

import numpy as np
import pytest
import torch
from measuring import N, make, prompts, settings
from watching import Products, Readings

from posbias import alibi_slopes
from posbias.measure.instrument import Instrument, NotFinite
from posbias.measure.positions import read_positions
from posbias.models.families import family_of, longest_of
from posbias.models.hooks import hooked
from studies.interventions import unrotated


@pytest.fixture(scope="module")
def measured():
    return Readings().__getitem__


@pytest.mark.parametrize("name", ["falcon-alibi", "falcon-alibi-parallel"])
def test_falcons_doubled_alibi_is_taken_out(measured, name):
    """Eager attention adds ALiBi twice; with the instrument at work it gives what the fused kernel gives."""
    model, instrument, _ = measured(name)
    x = instrument.embeddings(prompts())
    with torch.no_grad():
        fused = make(name, attention="sdpa")(inputs_embeds=x, use_cache=False).logits[:, -1]
        doubled = model(inputs_embeds=x, use_cache=False).logits[:, -1]
        watched = instrument.logits(x)
    assert (watched - fused).abs().max() < 1e-4
    assert (doubled - fused).abs().max() > 1e-2  # if this fails, transformers has repaired it


@pytest.mark.parametrize("name", ["bloom", "bloom-6-heads", "mpt", "mpt-6-heads", "falcon-alibi"])
def test_slopes_are_read_as_the_module_applies_them(measured, name):
    """Falcon's are divided by the root of the head size, and rounded."""
    _, instrument, _ = measured(name)
    found, is_falcon = read_positions(instrument, N), name == "falcon-alibi"
    expected = alibi_slopes(instrument.H) / (8**0.5 if is_falcon else 1)
    assert found.slopes.shape == (3, instrument.H)
    assert np.allclose(found.slopes, expected, rtol=0.01 if is_falcon else 1e-5)
    off = 0.02 if is_falcon else 1e-5
    assert np.allclose(found.bias, -expected[:, None] * np.arange(N)[::-1], atol=off)


@pytest.mark.parametrize(("name", "width"), [("mistral", [5] * 3), ("qwen2", [0, 5, 5]), ("gemma2", [5, 0, 5])])
def test_windows_are_read_layer_by_layer(measured, name, width):
    _, instrument, _ = measured(name)
    found = read_positions(instrument, N)
    assert found.window.tolist() == width and found.reach.tolist() == [w or N for w in width]
    assert read_positions(instrument, 4).reach.tolist() == [4] * 3
    assert (found.slopes == 0).all()


def test_gemma_3_applies_no_soft_cap_whatever_its_settings_say():
    plain, capped = (Instrument(make("gemma3_text", attn_logit_softcapping=cap)) for cap in (None, 5.0))
    assert torch.allclose(capped.measure(prompts()).influence, plain.measure(prompts()).influence, rtol=1e-5)


@pytest.mark.parametrize("name", ["smollm3", "cohere2", "exaone4", "llama"])
def test_layers_without_positions_are_known(measured, name):
    """There, and only there, content is the product of what is to be rotated elsewhere."""
    model, instrument, kept = measured(name)
    found = [] if name == "llama" else [1]
    made, paths = [], unrotated(instrument.family)
    modules = [attention.get_submodule(path) for attention in instrument.attentions for path in paths]
    with torch.no_grad(), hooked(after=[(module, lambda m, args, out: made.append(out)) for module in modules]):
        model(prompts(), use_cache=False)
    for t, (_, _, content) in enumerate(kept):
        q, k = (x if x.dim() == 4 else x.unflatten(-1, (-1, 8)).transpose(1, 2) for x in made[2 * t : 2 * t + 2])
        plain = q @ k.repeat_interleave(2, dim=1).mT / 8**0.5
        seen = content > -1e30
        assert torch.allclose(content[seen], plain[seen], atol=1e-4) == (t in found), t


def test_mpt_takes_no_more_than_its_context():
    assert [longest_of(settings(name)) for name in ("mpt", "bloom")] == [64, None]


def test_allowed_keys_are_read_off_the_mask_where_weights_round_to_0():
    """A slope of 2^-1 leaves nothing of keys 250 tokens back in 32 bits: they are allowed all the same."""
    model = make("bloom", n_head=16, hidden_size=32)
    seen = []
    Instrument(model).measure(prompts(1, 256), lambda r: seen.append((r.allowed.clone(), r.probabilities.clone())))
    allowed, p = seen[0]
    assert torch.equal(allowed, torch.ones(256, 256, dtype=torch.bool).tril())
    assert (p[0, :, -1] == 0).any()


@pytest.mark.parametrize("name", ["bloom", "mpt"])
def test_content_is_computed_again_in_16_bits(name):
    """The sum of product and bias is rounded where the bias is large; the product in 32 bits is not."""
    model = make(name, dtype=torch.bfloat16, **({"max_seq_len": 128} if name == "mpt" else {}))
    seen, watch = [], Products(128)
    with watch:
        Instrument(model).measure(prompts(2, 128), lambda reading: seen.append(reading.content().clone()))
    own = [(q @ k).view(2, 4, 128, 128) / 8**0.5 for q, k in watch.found[:3]]
    allowed = torch.ones(128, 128, dtype=torch.bool).tril()
    assert max((z - y)[:, :, allowed].abs().max() for z, y in zip(seen[::-1], own, strict=True)) < 1e-4
    assert (own[0].bfloat16() - own[0])[:, :, allowed].abs().max() > 1e-3


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-alibi", "llama", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_agree_with_32(measured, name, dtype):
    low = Instrument(make(name, dtype=dtype)).measure(prompts())
    high = measured(name)[2].batch
    assert (low.lambda_token - high.lambda_token).abs().max() < 0.05
    assert torch.isfinite(low.influence).all()


def test_a_nan_names_layer_and_prompt():
    model = make("llama")

    def poison(module, args, out):
        out[0][2, -1] = float("nan")
        return out

    Instrument(model).layers[1].self_attn.register_forward_hook(poison)
    with pytest.raises(NotFinite, match="the attention output of layer 1 of prompt 2 in the batch"):
        Instrument(model).measure(prompts())


def test_attention_that_is_neither_eager_nor_torchs_own_is_refused():
    model = make("llama")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="expected eager or sdpa, received flash_attention_2"):
        Instrument(model)


def test_masks_that_are_not_causal_are_noticed():
    model = make("llama")
    for layer in family_of(model.config).layers(model):
        replace = lambda m, args, kw: (args, {**kw, "attention_mask": 0 * kw["attention_mask"]})  # noqa: E731
        layer.self_attn.register_forward_pre_hook(replace, with_kwargs=True)
    with pytest.raises(RuntimeError, match="expected a causal mask"):
        Instrument(model).measure(prompts())


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_attention_that_is_computed_elsewhere_is_noticed(name):
    model = make(name)
    attention = Instrument(model).attentions[1]
    attention.forward = lambda hidden_states, *args, **kwargs: (hidden_states, None)
    with pytest.raises(RuntimeError, match=r"attention once in each of 3 layers, received layers \[0, 2\]"):
        Instrument(model).forward(prompts(), lambda reading: None)


@pytest.mark.parametrize("name", ["llama", "gptj", "falcon-rotary", "bloom"])
def test_a_model_computes_its_attention_as_before_also_after_an_error(name):
    model = make(name)
    before, layer = model.config._attn_implementation, Instrument(model).layers[-1]
    own = model(prompts()).logits

    def fail(reading):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Instrument(model).forward(prompts(), fail)
    assert model.config._attn_implementation == before and "_attn" not in vars(
        family_of(model.config).attention_of(layer)
    )
    assert torch.equal(model(prompts()).logits, own)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("bloom", {"apply_residual_connection_post_layernorm": True}), ("opt", {"do_layer_norm_before": False})],
)
def test_lambda_refers_to_what_attention_is_added_to(name, changes):
    """x is computed here from each layer's input, a is what the layer adds to it; both are independent of the hooks."""
    model, taken, summed = make(name, **changes), [], []
    layers = family_of(model.config).layers(model)
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, args, kw: taken.append((*args, *kw.values())[0]), with_kwargs=True)
        after = layer.post_attention_layernorm if name == "bloom" else layer.self_attn_layer_norm
        after.register_forward_pre_hook(lambda _, args: summed.append(args[0]))
    with torch.no_grad():
        model(prompts(), use_cache=False)
    for module in model.modules():
        module._forward_pre_hooks.clear()
    reading = Instrument(model).measure(prompts())
    for t, layer in enumerate(layers):
        x = layer.input_layernorm(taken[t]).detach() if name == "bloom" else taken[t]
        a = summed[t].view_as(x) - x
        (x_token, x_all), (a_token, a_all) = ((y.norm(dim=-1), y.norm(dim=(1, 2))) for y in (x.double(), a.double()))
        assert torch.allclose(reading.lambda_frobenius[:, t], a_all / (x_all + a_all), atol=1e-6)
        assert torch.allclose(reading.lambda_token[:, t], (a_token / (x_token + a_token)).mean(-1), atol=1e-6)

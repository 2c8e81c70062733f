"""The instrument against the models themselves, on a tiny random model of every family."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from measuring import CONFIGS, HYBRIDS, N, make, prompts
from watching import Products, Readings

from posbias import alibi_slopes
from posbias.measure.instrument import Instrument
from posbias.measure.positions import read_positions
from posbias.models.families import FAMILIES, family_of, text_config
from posbias.rollout import masks


@pytest.fixture(scope="module")
def measured():
    return Readings().__getitem__


EVERY = sorted(CONFIGS)
ALIBI = [name for name in EVERY if name.split("-")[0] in ("bloom", "mpt") or name.startswith("falcon-alibi")]


@contextmanager
def alibi_once(model):
    """Give Falcon's eager attention a keyword of zeros, the mask carrying ALiBi already; nothing for the others."""
    hooks = []
    for module in model.modules():
        if type(module).__name__ == "FalconAttention":
            zeros = lambda m, args, kw: (args, {**kw, "alibi": None if kw["alibi"] is None else 0 * kw["alibi"]})  # noqa: E731
            hooks.append(module.register_forward_pre_hook(zeros, with_kwargs=True))
    yield
    for hook in hooks:
        hook.remove()


def own_products(model, ids):
    """Return the model's own q·k for each layer, (B, H, n, n), before scale, cap, bias and mask."""
    watch = Products(ids.shape[1])
    with watch, alibi_once(model), torch.no_grad():
        model(ids, use_cache=False)
    B, n = ids.shape
    products = [(q @ k).reshape(B, -1, n, n) for q, k in watch.found]
    return [x.expand(B, text_config(model.config).num_attention_heads, n, n) for x in products]


def test_every_family_of_the_table_has_a_tiny_model():
    assert {kind for kind, _ in (CONFIGS | HYBRIDS).values()} == set(FAMILIES)


@pytest.mark.parametrize("name", EVERY)
def test_captured_weights_are_the_models_own(measured, name):
    model, _, kept = measured(name)
    with alibi_once(model):
        own = model(prompts(), output_attentions=True, use_cache=False).attentions
    for (layer, seen, _), weights in zip(kept, own, strict=True):
        torch.testing.assert_close(seen["probabilities"], weights, rtol=1e-5, atol=1e-6, msg=str(layer))
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5) != name.startswith("gpt_oss"), "sinks"
        assert (weights.triu(1) == 0).all()


@pytest.mark.parametrize("name", EVERY)
def test_content_is_scaled_and_capped_qk(measured, name):
    model, instrument, kept = measured(name)
    own = own_products(model, prompts())
    assert len(own) == instrument.T
    for (t, seen, content), product in zip(kept, own, strict=True):
        attention = instrument.attentions[t]
        expected = product * (1.0 if name.startswith("opt") else instrument.family.scale(attention))
        cap = None if name.startswith("gemma3") else getattr(model.config, "attn_logit_softcapping", None)
        expected = expected if cap is None else cap * torch.tanh(expected / cap)
        gap = (content.double() - expected)[:, :, seen["allowed"]].abs().max()
        assert gap < 2e-5, (t, gap)
        assert (content[:, :, ~seen["allowed"]] < -1e30).all()


@pytest.mark.parametrize("name", EVERY)
def test_content_bias_and_mask_through_a_softmax_give_the_weights(measured, name):
    _, instrument, kept = measured(name)
    config = text_config(instrument.model.config)
    H, D = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    distance = torch.tensor(np.arange(N)[None, :] - np.arange(N)[:, None], dtype=torch.float64)
    slopes = torch.tensor(alibi_slopes(H))
    slopes = slopes / D**0.5 if name.startswith("falcon") else slopes
    for t, seen, content in kept:
        width = int(read_positions(instrument, N).window[t]) or N
        allowed = torch.tensor(masks.sliding_window(width).matrix(N))
        assert torch.equal(seen["allowed"], allowed)
        logits = content.double() + (slopes[:, None, None] * distance if name in ALIBI else 0.0)
        logits = logits.masked_fill(~allowed, -torch.inf)
        if name == "gpt_oss":
            sinks = instrument.attentions[t].sinks.double()[:, None, None].expand(len(logits), -1, N, 1)
            logits = torch.cat([logits, sinks], dim=-1)
        weights = logits.softmax(-1)[..., :N]
        rounded = 0.02 if name.startswith("falcon-alibi") else 1e-5  # Falcon rounds its bias to bf16
        assert (weights - seen["probabilities"]).abs().max() < rounded


@pytest.mark.parametrize("name", EVERY)
def test_lambda_is_the_share_of_attention_in_what_is_added(measured, name):
    """x and a are taken off the model by other hooks; x + a must be what the layer's next step is given."""
    model, instrument, kept = measured(name)
    x, a, after = own_residuals(model, name)
    for t in range(instrument.T):
        if after[t] is not None:
            assert torch.allclose(x[t] + a[t], after[t].view_as(x[t]), atol=1e-5), t
        norm_x, norm_a = x[t].double().norm(dim=-1), a[t].double().norm(dim=-1)
        token = (norm_a / (norm_x + norm_a)).mean(-1)
        frobenius = a[t].double().norm(dim=(1, 2)) / (a[t].double().norm(dim=(1, 2)) + x[t].double().norm(dim=(1, 2)))
        assert torch.allclose(kept.batch.lambda_token[:, t], token, atol=1e-6)
        assert torch.allclose(kept.batch.lambda_frobenius[:, t], frobenius, atol=1e-6)
        ratio = norm_x.amax(-1) / norm_x.median(-1).values
        assert torch.allclose(kept.batch.norm_ratio[:, t].double(), ratio, rtol=1e-5)


def own_residuals(model, name):
    """Return x_t, a_t and x_t + a_t of every layer; the sum is None where no module is given it."""
    kind = CONFIGS[name][0]
    x, a, after, mlp, out, attn = ([] for _ in range(6))
    first = lambda value: (value[0] if isinstance(value, tuple) else value).detach().clone()  # noqa: E731
    parallel = "parallel" in name or kind in ("gptj", "phi", "cohere", "cohere2")
    parallel |= name in ("gpt_neox", "falcon-rotary", "falcon-new")
    normed = dict.fromkeys(("gemma2", "gemma3", "gemma3_text", "olmo2", "olmo3", "exaone4"), "post_attention_layernorm")
    normed |= {"glm4": "post_self_attn_layernorm"}  # whose output is added
    step = {"mpt": "norm_2", "opt": "final_layer_norm"} | dict.fromkeys(("gpt2", "gpt_neo", "gpt_bigcode"), "ln_2")
    step |= dict.fromkeys(("gemma2", "gemma3", "gemma3_text"), "pre_feedforward_layernorm")
    step |= dict.fromkeys(("olmo2", "olmo3", "exaone4"), "mlp")
    feed = {"mpt": "ffn", "opt": "fc2", "llama4_text": "feed_forward"}.get(kind, "mlp")
    for layer in family_of(model.config).layers(model):
        attention = family_of(model.config).attention_of(layer)
        layer.register_forward_pre_hook(
            lambda m, args, kw: x.append(first((args or (kw["hidden_states"],))[0])), with_kwargs=True
        )
        attention.register_forward_hook(lambda m, args, value: attn.append(first(value)))
        layer.register_forward_hook(lambda m, args, value: out.append(first(value)))
        getattr(layer, feed).register_forward_hook(lambda m, args, value: mlp.append(first(value)))
        if kind in normed:
            getattr(layer, normed[kind]).register_forward_hook(lambda m, args, value: a.append(first(value)))
        if not parallel and not (kind == "opt" and not model.config.do_layer_norm_before):
            next_ = getattr(layer, step.get(kind, "post_attention_layernorm"))
            next_.register_forward_pre_hook(lambda m, args: after.append(first(args)))
    with alibi_once(model):
        model(prompts(), use_cache=False)
    for layer in family_of(model.config).layers(model):
        for module in layer.modules():
            module._forward_hooks.clear()
            module._forward_pre_hooks.clear()
    if kind == "bloom":
        a = [y - z for y, z in zip(attn, x, strict=True)]
    elif kind not in normed:
        a = [y * CONFIGS[name][1].get("residual_multiplier", 1.0) for y in attn]
    if parallel:  # the layer's output less its MLP: x + a, the MLP's output kept before anything is added in place
        after = [y - m for y, m in zip(out, mlp, strict=True)]
    return x, a, after or [None] * len(x)


@pytest.mark.parametrize("name", EVERY)
def test_influence_against_finite_differences(name):
    """In 64 bits, where modules that insist on 32 bits inside leave noise; all steps of a position in one batch."""
    changes = {"reorder_and_upcast_attn": False} if name.startswith("gpt2") else {}
    changes |= {"experts_implementation": "eager"} if "experts_per_tok" in str(CONFIGS[name]) else {}
    instrument = Instrument(make(name, dtype=torch.float64, **changes))
    batch, h = instrument.measure(prompts(1)), 1e-3
    x = instrument.embeddings(prompts(1))
    d, scale = x.shape[-1], float(batch.influence.max())
    with torch.no_grad():
        p = instrument.logits(x).softmax(-1)
        assert batch.probability[0] == pytest.approx(float(p.max()), abs=1e-6)
        for position in (0, N // 2, N - 1):
            steps = torch.zeros(2 * d, N, d, dtype=x.dtype)
            steps[:, position] = h * torch.cat([torch.eye(d), -torch.eye(d)])
            q = instrument.logits(x + steps).softmax(-1)[:, p.argmax()]
            gradient = (q[:d] - q[d:]) / (2 * h)
            assert abs(batch.influence[0, position] - gradient.norm()) < 3.5e-4 * scale
            assert abs(batch.influence_signed[0, position] - gradient @ x[0, position]) < 3.5e-4 * scale * x.norm()


@pytest.mark.parametrize("name", EVERY)
def test_a_batch_is_its_prompts_one_by_one(measured, name):
    _, instrument, kept = measured(name)
    for b in range(3):
        one = instrument.measure(prompts()[b : b + 1])
        for field in ("lambda_frobenius", "lambda_token", "influence", "influence_signed", "probability"):
            together, alone = getattr(kept.batch, field)[b], getattr(one, field)[0]
            assert torch.allclose(together, alone, rtol=1e-4, atol=1e-6), field


@pytest.mark.parametrize("name", EVERY)
def test_layers_run_once_more_give_the_gradient_of_the_whole(name):
    """The way back through one layer at a time against autograd through all of them at once."""
    instrument = Instrument(make(name))
    found, x = instrument.measure(prompts()), instrument.embeddings(prompts()).requires_grad_(True)
    p = instrument.logits(x).softmax(-1).amax(-1)
    (gradient,) = torch.autograd.grad(p.sum(), x)
    assert torch.allclose(gradient.norm(dim=-1).double(), found.influence, rtol=1e-6, atol=0)

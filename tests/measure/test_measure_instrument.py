"""The instrument against the models themselves, on a tiny random model of every family."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from measuring import CONFIGS, HYBRIDS, N, make, prompts, settings
from torch.overrides import TorchFunctionMode

from posbias import alibi_slopes
from posbias.measure.instrument import Instrument, NotFinite
from posbias.measure.positions import read_positions
from posbias.models.families import FAMILIES, family_of, longest_of, text_config
from posbias.models.hooks import hooked
from posbias.rollout import masks
from studies.interventions import unrotated

EVERY = sorted(CONFIGS)
ALIBI = [name for name in EVERY if name.split("-")[0] in ("bloom", "mpt") or name.startswith("falcon-alibi")]


class Kept:
    """Copies of all that a measurement hands out."""

    def __init__(self, instrument, ids):
        self.readings = []
        self.batch = instrument.measure(ids, self.keep)

    def keep(self, reading):
        fields = ("logits", "probabilities", "bias", "allowed")
        copies = {f: getattr(reading, f).clone() for f in fields if getattr(reading, f) is not None}
        self.readings.append((reading.layer, copies, reading.content().clone()))

    def __iter__(self):
        return iter(sorted(self.readings, key=lambda seen: seen[0]))


@pytest.fixture(scope="module")
def measured():
    """Return a function: name → (model, instrument, readings), each made once."""
    made = {}

    def get(name):
        if name not in made:
            model = make(name)
            made[name] = model, Instrument(model), Kept(Instrument(model), prompts())
        return made[name]

    return get


class Products(TorchFunctionMode):
    """Collect the operands of the products (B, H, n, d) × (B, H, d, n) that a model forms: q and k themselves."""

    def __init__(self, n):
        super().__init__()
        self.n, self.found = n, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func in (torch.Tensor.baddbmm, torch.baddbmm):
            operands = (kwargs["batch1"], kwargs["batch2"]) if "batch1" in kwargs else args[1:3]
        else:
            operands = args if func in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__) else ()
        if len(operands) == 2 and operands[0].shape[-2] == self.n == operands[1].shape[-1] != operands[0].shape[-1]:
            self.found.append(tuple(x.detach().double() for x in operands))
        return out


def own_products(model, ids):
    """Return the model's own q·k for each layer, (B, H, n, n), before scale, cap, bias and mask."""
    watch = Products(ids.shape[1])
    with watch, alibi_once(model), torch.no_grad():
        model(ids, use_cache=False)
    B, n = ids.shape
    products = [(q @ k).reshape(B, -1, n, n) for q, k in watch.found]
    return [x.expand(B, text_config(model.config).num_attention_heads, n, n) for x in products]


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


# Traps: each was met, and each comes back as a failing test if the code forgets it.


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


@pytest.mark.parametrize("name", EVERY)
def test_layers_run_once_more_give_the_gradient_of_the_whole(name):
    """The way back through one layer at a time against autograd through all of them at once."""
    instrument = Instrument(make(name))
    found, x = instrument.measure(prompts()), instrument.embeddings(prompts()).requires_grad_(True)
    p = instrument.logits(x).softmax(-1).amax(-1)
    (gradient,) = torch.autograd.grad(p.sum(), x)
    assert torch.allclose(gradient.norm(dim=-1).double(), found.influence, rtol=1e-6, atol=0)


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
